package sqlitestore_test

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
// req: A8 B1
func TestGuardedStore(t *testing.T) {
	needs.NoRace(t) // which sees guard and stores in their own tests
	t.Parallel()
	if testing.Short() {
		t.Skip("left out by -short: store/guard runs the suite over SQLite, and over a store with a clock of the test")
	}
	storetest.Run(t, storetest.Wrapped(harness(), func(t *testing.T, s store.Store) store.Store {
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
