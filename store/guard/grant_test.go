package guard_test

import (
	"errors"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/guard"
)

// settleGrant settles a grant of job-7, and returns the outcome.
func settleGrant(t *testing.T, s drawgate.Store, plan *drawgate.Plan, g drawgate.Grant, n int64) drawgate.Outcome {
	t.Helper()
	var out [1]drawgate.Outcome
	st := drawgate.Settlement{Op: drawgate.OpSettle, ID: "job-7", Grant: g, Buckets: []drawgate.BucketCost{cost(plan, "k", n, 1)}}
	if err := s.Settle(t.Context(), []drawgate.Settlement{st}, out[:]); err != nil {
		t.Fatal(err)
	}
	return out[0]
}

// tryGrant takes as job-7 under a grant, and returns the decision's error.
func tryGrant(t *testing.T, s drawgate.Store, plan *drawgate.Plan, g drawgate.Grant, n int64) (d drawgate.Decision) {
	t.Helper()
	var out [1]drawgate.Decision
	if err := s.Take(t.Context(), []drawgate.Take{reserve(plan, "job-7", g, n, 1)}, out[:]); err != nil {
		t.Fatal(err)
	}
	return out[0]
}

// TestGrantsOfOneIDAreApart: during an outage and afterwards, a settlement that was kept ends the
// grant that it names, never a later one.
//
// req: A1, A6
func TestGrantsOfOneIDAreApart(t *testing.T) {
	t.Parallel()
	for _, m := range []mood{refuses, stalls, mute} {
		bubble(t, full(1), func(t *testing.T, g *guard.Store, store *faulty) {
			plan := policy(t, 0, rolling(100, 24*time.Hour), slots(2))
			if !tryGrant(t, g, plan, 1, 10).Allowed {
				t.Fatal("refused")
			}
			store.set(m)
			if d := tryGrant(t, g, plan, 2, 10); !errors.Is(d.Fail, drawgate.ErrIDOpen) {
				t.Errorf("another grant of an id that is open: allowed %v, %v", d.Allowed, d.Fail)
			}
			if d := tryGrant(t, g, plan, 1, 9); !errors.Is(d.Fail, drawgate.ErrIDReused) {
				t.Errorf("the same grant with another content: allowed %v, %v", d.Allowed, d.Fail)
			}
			if o := settleGrant(t, g, plan, 1, 3); o.Gone || o.Err != nil {
				t.Errorf("%+v", o)
			}
			if d := tryGrant(t, g, plan, 3, 10); !d.Allowed || d.Replayed {
				t.Errorf("the id is free again: allowed %v, replayed %v, %v", d.Allowed, d.Replayed, d.Fail)
			}
			if o := settleGrant(t, g, plan, 1, 0); !o.Gone {
				t.Errorf("the first settlement again: %+v", o)
			}
			back(t, g, store)
			time.Sleep(10 * time.Second)
			if got := used(t, store.Store, plan, "k"); got[0] != 13 || got[1] != 1 {
				t.Errorf("%v used in the store, want 3 of the first grant and 10 of the third, with its slot", got)
			}
			if o := settleGrant(t, g, plan, 1, 0); !o.Gone {
				t.Errorf("the first settlement once more: %+v", o)
			}
			if o := settleGrant(t, g, plan, 3, 5); o.Gone || o.Err != nil {
				t.Errorf("%+v", o)
			}
			wantBack(t, g, 2*time.Second)
			if got := used(t, store.Store, plan, "k"); got[0] != 8 || got[1] != 0 {
				t.Errorf("%v used in the end, want 3 and 5", got)
			}
		})
	}
}
