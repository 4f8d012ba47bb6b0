package pgstore_test

import (
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/pgstore"
	"github.com/drawgate/drawgate/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

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

// TestStore runs the contract.
func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness(func(t *testing.T) string {
		t.Helper()
		return pgtest.Shared(t).Schema(t)
	}))
}
