package guard_test

import (
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
)

// TestPeers19StoreUnavailable: peers answer with an error after ten seconds, or with success after
// five, admit a whole limit per process, or everything, or panic, or never come back. Here three
// processes answer at once, by their shares, and come back.
//
// req: A10, E7
func TestPeers19StoreUnavailable(t *testing.T) {
	t.Parallel()
	for _, m := range []mood{refuses, stalls, mute, slow} {
		bubble(t, full(3), func(t *testing.T, one *guard.Store, store *faulty) {
			guards := []*guard.Store{one, guarded(t, unclosed{store}, full(3)), guarded(t, unclosed{store}, full(3))}
			plan := policy(t, 0, rolling(30, time.Hour))
			store.set(m)
			admitted := int64(0)
			for _, g := range guards {
				for range 30 {
					start := time.Now()
					if take(t, g, plan, "k", 1).Allowed {
						admitted++
					}
					if took := time.Since(start); took > 50*time.Millisecond {
						t.Errorf("answered after %v", took)
					}
				}
			}
			if admitted != 30 {
				t.Errorf("three processes admitted %d of 30", admitted)
			}
			store.set(well)
			for _, g := range guards {
				wantBack(t, g, 2*time.Second)
			}
			for _, g := range guards {
				if d := take(t, g, plan, "k", 1); d.Allowed || d.Fallback {
					t.Errorf("after the return: allowed %v, fallback %v", d.Allowed, d.Fallback)
				}
			}
		})
	}
}

// TestPeers20DegradedAllowIsMarked: the caller can recognise an answer that the store did not give,
// and the reason for a refusal.
//
// req: E8
func TestPeers20DegradedAllowIsMarked(t *testing.T) {
	t.Parallel()
	bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
		share, closed := policy(t, drawgate.FallbackShare, rolling(1, time.Hour)),
			policy(t, drawgate.FallbackClosed, rolling(1, time.Hour))
		open := policy(t, drawgate.FallbackOpen, rolling(1, time.Hour))
		said := func(what string, d store.Verdict, allowed, fallback bool, reason store.Reason) {
			t.Helper()
			if d.Allowed != allowed || d.Fallback != fallback || d.Reason != reason {
				t.Errorf("%s: allowed %v, fallback %v, reason %v", what, d.Allowed, d.Fallback, d.Reason)
			}
		}
		said("the store's", take(t, g, share, "a", 1), true, false, store.Passed)
		said("the store's", take(t, g, share, "a", 1), false, false, store.Limited) // distributed_exhausted
		inner.set(refuses)
		said("a share", take(t, g, share, "b", 1), true, true, store.Passed)
		said("a share that is used up", take(t, g, share, "b", 1), false, true, store.Limited) // local_exhausted
		said("closed", take(t, g, closed, "c", 1), false, true, store.Unavailable)             // backend_error
		said("open", take(t, g, open, "d", 1), true, true, store.Passed)
		said("a reservation", hold(t, g, "id", time.Hour, share, "e", 1), true, true, store.Passed)
		var out [1]store.State
		if err := g.Peek(t.Context(), []store.BucketCost{cost(share, "b", 1)}, 0, out[:]); err != nil ||
			!out[0].Fallback || out[0].Allowed || out[0].States[0].Used != 1 {
			t.Errorf("a look: %v, %+v", err, out[0])
		}
		if err := g.Peek(t.Context(), []store.BucketCost{cost(open, "d", 1)}, 0, out[:]); err != nil ||
			!out[0].Fallback || !out[0].Allowed || out[0].States[0].Used != 1 || out[0].States[0].Max != 1 {
			t.Errorf("a look: %v, %+v", err, out[0])
		}
	})
}
