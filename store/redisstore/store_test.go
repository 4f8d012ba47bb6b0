package redisstore_test

import (
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
	"github.com/drawgate/drawgate/store/storetest"
)

// clocked is a store whose clock a test moves.
type clocked struct {
	*redisstore.Store
	clock  *fakeClock
	prefix string
}

// harness returns stores on a server of the test's own.
func harness(t *testing.T) storetest.Harness {
	t.Helper()
	return harnessOn(t, redistest.Start(t).URL())
}

// inBatches returns stores that send each request in a batch.
func inBatches(t *testing.T) storetest.Harness {
	t.Helper()
	return harnessOf(t, redistest.Start(t).URL(), (*redisstore.Store).AlwaysInBatches)
}

// harnessOn returns stores on some servers.
func harnessOn(t *testing.T, url string) storetest.Harness {
	t.Helper()
	return harnessOf(t, url, func(s *redisstore.Store) *redisstore.Store { return s })
}

func harnessOf(t *testing.T, url string, set func(*redisstore.Store) *redisstore.Store) storetest.Harness {
	t.Helper()
	conn := clientOf(t, url)
	on := func(t *testing.T, clock *fakeClock, prefix string) store.Store {
		t.Helper()
		s := set(redisstore.NewWithClock(conn, &redisstore.Options{Prefix: prefix}, clock.now))
		if err := s.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Learn()
		t.Cleanup(func() { _ = s.Close() })
		return &clocked{s, clock, prefix}
	}
	return storetest.Harness{
		New: func(t *testing.T) store.Store { return on(t, newClock(), prefix()) },
		Advance: func(s store.Store, d time.Duration) {
			c := s.(*clocked)
			c.clock.advance(d)
			c.Learn() // a batch of which one take needs other calendar windows is not carried out in order
		},
		Second: func(t *testing.T, s store.Store) store.Store {
			c := s.(*clocked)
			return on(t, c.clock, c.prefix)
		},
	}
}

// req: B1, C3, E5, E10
func TestStore(t *testing.T) {
	t.Parallel()
	for _, on := range topologies {
		if on.name == "sentinel" && !long { // TestServerClock is enough: the server's part is the same
			continue
		}
		t.Run(on.name, func(t *testing.T) {
			t.Parallel()
			h := harnessOn(t, on.start(t))
			h.Without = lengthy()
			storetest.Run(t, h)
		})
	}
}

// lengthy returns the cases that compute for seconds, for one caller and one bucket.
func lengthy() map[string]string {
	if long {
		return nil
	}
	const reason = "TestLengthyCases runs it; \"make long\" runs it here, too"
	return map[string]string{
		"ids used again": reason, "huge numbers": reason, "bookings": reason, "too many open": reason,
	}
}

// TestLengthyCases runs what the others leave out: once, and without the race detector.
func TestLengthyCases(t *testing.T) {
	needs.NoRace(t)
	t.Parallel()
	h := harness(t)
	h.Without = map[string]string{}
	for _, c := range storetest.Cases(h) {
		if lengthy()[c] == "" {
			h.Without[c] = "TestStore runs it"
		}
	}
	storetest.Run(t, h)
}

// TestStoreInBatches runs the suite with each request in a batch, which is no other way to decide.
//
// req: B1, C3, E5, E10
func TestStoreInBatches(t *testing.T) {
	t.Parallel()
	h := inBatches(t)
	h.Without = lengthy()
	storetest.Run(t, h)
}

// TestScripts compares the store with the engine on the scripts of the suite.
//
// req: E5, E10
func TestScripts(t *testing.T) {
	needs.NoRace(t) // one caller
	t.Parallel()
	scripts(t, harness(t))
}

// TestScriptsInBatches is the same with each request in a batch.
//
// req: E5, E10
func TestScriptsInBatches(t *testing.T) {
	needs.NoRace(t) // one caller
	t.Parallel()
	scripts(t, inBatches(t))
}

func scripts(t *testing.T, h storetest.Harness) {
	t.Helper()
	n := 100
	if long {
		n = 3000
	}
	type reference struct {
		*model.Records
		clock *fakeClock
	}
	storetest.Scripts(t, h, storetest.Harness{
		New: func(*testing.T) store.Store {
			clock := newClock()
			return &reference{model.NewRecords(clock.now, false), clock}
		},
		Advance: func(s store.Store, d time.Duration) { s.(*reference).clock.advance(d) },
	}, n)
}

// TestServerClock runs the cases that need no other clock by the server's own.
//
// req: E5
func TestServerClock(t *testing.T) {
	t.Parallel()
	for _, on := range topologies {
		if on.name == "cluster" && !long { // TestStore runs there
			continue
		}
		t.Run(on.name, func(t *testing.T) {
			t.Parallel()
			url := on.start(t)
			storetest.Run(t, storetest.Harness{New: func(t *testing.T) store.Store {
				s, err := redisstore.Open(url, &redisstore.Options{Prefix: prefix()})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close() })
				return s
			}})
		})
	}
}
