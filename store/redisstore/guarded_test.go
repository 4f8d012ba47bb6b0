package redisstore_test

import (
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/storetest"
)

// TestGuardedStore runs the suite with a guard in front of each store, while the clock moves: a
// guard changes nothing while the store works, and learns the time from the store's answers.
//
// req: B1, E5
func TestGuardedStore(t *testing.T) {
	needs.NoRace(t) // which sees guard and stores in their own tests
	t.Parallel()
	for _, on := range topologies {
		if on.name == "standalone" || long {
			t.Run(on.name, func(t *testing.T) {
				t.Parallel()
				guardedStore(t, harnessOn(t, on.start(t)))
			})
		}
	}
}

func guardedStore(t *testing.T, h storetest.Harness) {
	t.Helper()
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
