package dynamostore_test

import (
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/storetest"
)

// TestGuardedStore runs the suite with a guard in front of each store, while the clock moves: a
// guard changes nothing while DynamoDB works, and learns the time from the store's answers.
//
// req: A10
func TestGuardedStore(t *testing.T) {
	needs.NoRace(t) // which sees guard and stores in their own tests
	t.Parallel()
	h := harness(t, awstest.Dynalite(t))
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
