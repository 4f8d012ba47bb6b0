package guard_test

import (
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
)

// TestSettlingUnderASmallerAmountGivesNothingBack: if one rule has a smaller amount than another
// for the same bucket, settling its reservations does not make room for takes under the other.
//
// req: E7
func TestSettlingUnderASmallerAmountGivesNothingBack(t *testing.T) {
	t.Parallel()
	bubble(t, full(3), func(t *testing.T, g *guard.Store, inner *faulty) {
		small, large := policy(t, drawgate.FallbackShare, leaky(6, time.Minute, 6)),
			policy(t, drawgate.FallbackShare, leaky(6, time.Minute, 300))
		for _, id := range []string{"x", "y"} {
			hold(t, g, id, time.Hour, small, "k", 1)
		}
		if got := drain(t, g, large, "k"); got != 298 {
			t.Fatalf("the store gave %d, want 298", got)
		}
		end(t, g, store.OpSettle, "x", small, "k", 1)
		inner.set(refuses)
		if got := drain(t, g, large, "k"); got != 0 {
			t.Errorf("%d more without the store, want none: the share is used", got)
		}
		end(t, g, store.OpSettle, "y", small, "k", 1)
		if got := drain(t, g, large, "k"); got != 0 {
			t.Errorf("%d more after a settlement, want none", got)
		}
	})
}
