package pgstore_test

import (
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/pgstore"
	"github.com/drawgate/drawgate/store/storetest"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(envChild); spec != "" {
		work(spec)
		return
	}
	os.Exit(pgtest.Run(m))
}

// open opens a store, and closes it at the test's end.
func open(t testing.TB, url string, opts *pgstore.Options) *pgstore.Store {
	t.Helper()
	if opts == nil {
		opts = &pgstore.Options{}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := pgstore.Open(url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// places are the schemas and clocks of the stores that the suite has opened.
var places sync.Map // of *pgstore.Store

type place struct {
	url   string
	clock *pgstore.Clock
}

func openAt(t *testing.T, p place) store.Store {
	t.Helper()
	o := &pgstore.Options{}
	p.clock.Use(o)
	s := open(t, p.url, o)
	if strings.HasPrefix(p.url, pgtest.Shared(t).URL()) { // and not that of a pooler
		t.Cleanup(func() {
			if s.Plain() {
				t.Error("statements are not prepared any more, although there is no pooler")
			}
		})
	}
	places.Store(s, p)
	return s
}

func placeOf(s store.Store) place {
	p, _ := places.Load(s)
	return p.(place)
}

func harness(url func(t *testing.T) string) storetest.Harness {
	return storetest.Harness{
		New: func(t *testing.T) store.Store {
			t.Helper()
			return openAt(t, place{url(t), pgstore.NewClock()})
		},
		Advance: func(s store.Store, d time.Duration) { placeOf(s).clock.Advance(d) },
		Second: func(t *testing.T, s store.Store) store.Store {
			t.Helper()
			return openAt(t, placeOf(s))
		},
		Slow: true,
	}
}

// lengthy returns the cases that ask hundreds of times for one caller and one bucket.
func lengthy() map[string]string {
	if needs.Long() {
		return nil
	}
	const reason = "TestLengthyCases runs it; \"make long\" runs it here, too"
	all := map[string]string{}
	for _, name := range []string{
		"ids used again", "huge numbers", "too many open", "bucket odd rates", "many open", "bookings",
		"unpause and leases",
		"absent is unused", "a changed rate", "never over, never idle",
	} {
		all[name] = reason
	}
	return all
}

// onSchemas is a harness whose stores have a schema each.
func onSchemas() storetest.Harness {
	return harness(func(t *testing.T) string {
		t.Helper()
		return pgtest.Shared(t).Schema(t)
	})
}

// TestStore runs the contract.
func TestStore(t *testing.T) {
	t.Parallel()
	h := onSchemas()
	h.Without = lengthy()
	storetest.Run(t, h)
}

// TestLengthyCases runs what the others leave out: once, and without the race detector.
func TestLengthyCases(t *testing.T) {
	needs.NoRace(t) // one caller
	t.Parallel()
	h, without := onSchemas(), map[string]string{}
	for _, name := range storetest.Cases(h) {
		if lengthy()[name] == "" {
			without[name] = "TestStore runs it"
		}
	}
	h.Without = without
	storetest.Run(t, h)
}

// TestStoreBehindPooler runs the contract through PgBouncer, which lends a connection to the server
// for one transaction, and keeps no prepared statements.
func TestStoreBehindPooler(t *testing.T) {
	needs.NoRace(t) // the server is the same; TestStore is for goroutines
	t.Parallel()
	server := pgtest.Shared(t)
	pooler := server.Pooler(t, server.URL())
	h := harness(func(t *testing.T) string {
		t.Helper()
		_, schema, _ := strings.Cut(server.Schema(t), server.URL())
		return pooler + schema
	})
	h.Without = lengthy()
	storetest.Run(t, h)
}

// TestGuardedStore runs the suite with a guard in front of each store, while the clock moves: a
// guard changes nothing while the store works, and learns the time from the store's answers.
func TestGuardedStore(t *testing.T) {
	needs.NoRace(t) // which sees guard and stores in their own tests
	t.Parallel()
	h := onSchemas()
	h.Without = lengthy()
	storetest.Run(t, storetest.Wrapped(h, func(t *testing.T, s store.Store) store.Store {
		t.Helper()
		g := guard.New(s, &guard.Options{Instances: 1, Timeout: time.Minute})
		t.Cleanup(func() {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		})
		return g.Full()
	}))
}

// TestScripts plays random scripts on the store and on records in memory: the answers are the same.
func TestScripts(t *testing.T) {
	needs.NoRace(t) // one caller
	t.Parallel()
	clocks := sync.Map{}
	reference := storetest.Harness{
		New: func(*testing.T) store.Store {
			c := pgstore.NewClock()
			s := model.NewRecords(c.Now, false)
			clocks.Store(s, c)
			return s
		},
		Advance: func(s store.Store, d time.Duration) {
			c, _ := clocks.Load(s)
			c.(*pgstore.Clock).Advance(d)
		},
	}
	h := onSchemas()
	var before store.Store
	h.New = func(t *testing.T) store.Store {
		t.Helper()
		if before != nil { // a script is one store's, and the server has too few connections for all
			if err := before.Close(); err != nil {
				t.Error(err)
			}
		}
		before = onSchemas().New(t)
		return before
	}
	storetest.Scripts(t, h, reference, needs.Rounds(4, 25, 1000))
}

// req: E2
func BenchmarkStore(b *testing.B) {
	storetest.Bench(b, func(b *testing.B) store.Store {
		b.Helper()
		s, err := pgstore.Open(pgtest.Shared(b).Schema(b), &pgstore.Options{HistoryFor: -1})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = s.Close() })
		return s
	})
}

// The function of the example makes its calls.
func TestExample(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).Schema(t)
	if err := makeCalls(t.Context(), url, 2); err != nil {
		t.Error(err)
	}
}
