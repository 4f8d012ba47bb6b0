package guard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/guard"
)

// TestHastyCallersDoNotOpen: a caller that gives a store no time, while it is well, is not admitted by a limit that would step aside: over gRPC it is the
// client that chooses the deadline.
func TestHastyCallersDoNotOpen(t *testing.T) {
	t.Parallel()
	bubble(t, &guard.Options{Instances: 3, StartFull: true}, func(t *testing.T, g *guard.Store, store *faulty) {
		plan := policy(t, drawgate.FallbackOpen, rolling(30, time.Hour))
		drain(t, store, plan, "k")
		store.during = func() { time.Sleep(2 * time.Millisecond) }
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
			var out [1]drawgate.Decision
			err := g.Take(ctx, []drawgate.Take{{Buckets: []drawgate.BucketCost{cost(plan, "k", 1)}}}, out[:])
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%+v, %v", out[0].Allowed, err)
			}
		}
		if g.State().Away {
			t.Error("the store is well")
		}
	})
}
