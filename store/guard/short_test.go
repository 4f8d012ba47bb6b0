package guard_test

import (
	"context"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

// curt is a store whose verdicts say nothing of a take's buckets, but of the first one.
type curt struct {
	store.Store
	down bool
}

func (s *curt) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if s.down {
		return &store.Error{Store: "curt", Op: "take", Err: context.DeadlineExceeded}
	}
	err := s.Store.Take(ctx, batch, out)
	for i := range out {
		out[i].Rest = nil
	}
	return err
}

// TestAVerdictThatIsShort: of a bucket that a store does not describe nothing is left, and what was
// held of it counts in full without the store.
func TestAVerdictThatIsShort(t *testing.T) {
	t.Parallel()
	s := &curt{Store: memstore.New(nil)}
	g := guarded(t, s, &guard.Options{Instances: 1})
	plan := policy(t, drawgate.FallbackShare, rolling(10, 24*time.Hour))
	both := func(n int64) []store.BucketCost {
		return []store.BucketCost{cost(plan, "a", n), cost(plan, "b", n)}
	}
	held := store.Take{ID: "job", Grant: 1, Hold: time.Hour, Buckets: both(6)}
	if v := send(t, g, held); !v.Allowed || v.Granted(1)[0] != 6 {
		t.Fatalf("%+v", v)
	}
	if v := send(t, g, store.Take{Buckets: both(5)}); v.Allowed || v.Fail != nil {
		t.Errorf("%+v", v)
	}
	s.down = true
	if v := send(t, g, store.Take{Buckets: []store.BucketCost{cost(plan, "b", 5)}}); v.Allowed || !v.Fallback {
		t.Errorf("5 more than the 6 of 10 that are held: %+v", v)
	}
}
