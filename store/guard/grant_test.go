package guard_test

import (
	"errors"
	"testing"
	"time"

	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
)

// settleGrant settles a grant of job-7, and returns the outcome.
func settleGrant(t *testing.T, s store.Store, plan *store.Plan, g store.Grant, n int64) store.Outcome {
	t.Helper()
	var out [1]store.Outcome
	st := store.Settlement{
		Op: store.OpSettle, ID: "job-7", Grant: g,
		Buckets: []store.BucketCost{cost(plan, "k", n, 1)},
	}
	if err := s.Settle(t.Context(), []store.Settlement{st}, out[:]); err != nil {
		t.Fatal(err)
	}
	return out[0]
}

// tryGrant takes as job-7 under a grant, and returns the decision's error.
func tryGrant(t *testing.T, s store.Store, plan *store.Plan, g store.Grant, n int64) (d store.Verdict) {
	t.Helper()
	var out [1]store.Verdict
	if err := s.Take(t.Context(), []store.Take{reserve(plan, "job-7", g, n, 1)}, out[:]); err != nil {
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
		bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, rolling(100, 24*time.Hour), slots(2))
			if !tryGrant(t, g, plan, 1, 10).Allowed {
				t.Fatal("refused")
			}
			inner.set(m)
			if d := tryGrant(t, g, plan, 2, 10); !errors.Is(d.Fail, store.ErrIDOpen) {
				t.Errorf("another grant of an id that is open: allowed %v, %v", d.Allowed, d.Fail)
			}
			if d := tryGrant(t, g, plan, 1, 9); !errors.Is(d.Fail, store.ErrIDReused) {
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
			back(t, g, inner)
			time.Sleep(10 * time.Second)
			if got := used(t, inner.Store, plan, "k"); got[0] != 13 || got[1] != 1 {
				t.Errorf("%v used in the store, want 3 of the first grant and 10 of the third, with its slot", got)
			}
			if o := settleGrant(t, g, plan, 1, 0); !o.Gone {
				t.Errorf("the first settlement once more: %+v", o)
			}
			if o := settleGrant(t, g, plan, 3, 5); o.Gone || o.Err != nil {
				t.Errorf("%+v", o)
			}
			wantBack(t, g, 2*time.Second)
			if got := used(t, inner.Store, plan, "k"); got[0] != 8 || got[1] != 0 {
				t.Errorf("%v used in the end, want 3 and 5", got)
			}
		})
	}
}
