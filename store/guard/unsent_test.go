package guard_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

// TestUnsentTakesAreSaidToBe: a take waits until something that is pending for its bucket has been
// delivered. Whoever leaves meanwhile, or has no time left, is told that nothing was done.
func TestUnsentTakesAreSaidToBe(t *testing.T) {
	t.Parallel()
	bubble(t, &guard.Options{Instances: 3, Start: drawgate.StartFull}, func(t *testing.T, g *guard.Store, inner *faulty) {
		plan := policy(t, drawgate.FallbackOpen, rolling(3, time.Hour))
		drain(t, inner, plan, "k")
		inner.mu.Lock()
		inner.only = func(_ string, plain bool) mood {
			if plain {
				return refuses
			}
			return stalls // for long enough that nothing is delivered
		}
		inner.mu.Unlock()
		if d := take(t, g, plan, "k", 1); !d.Fallback {
			t.Fatal("the store decided it")
		}
		for want, hurried := range map[error]func() (context.Context, context.CancelFunc){
			context.Canceled: func() (context.Context, context.CancelFunc) {
				ctx, leave := context.WithCancel(t.Context())
				time.AfterFunc(3*time.Millisecond, leave)
				return ctx, leave
			},
			context.DeadlineExceeded: func() (context.Context, context.CancelFunc) {
				return context.WithTimeout(t.Context(), 3*time.Millisecond)
			},
		} {
			ctx, cancel := hurried()
			var out [1]store.Verdict
			err := g.Take(ctx, []store.Take{{Buckets: []store.BucketCost{cost(plan, "k", 1)}}}, out[:])
			cancel()
			if !errors.Is(err, want) || !errors.Is(err, store.ErrNothingDone) || strings.Contains(err.Error(), "may have") {
				t.Errorf("got %v, want %v, and that nothing was done", err, want)
			}
			if _, ok := errors.AsType[*store.Error](err); ok == (want == context.Canceled) { //nolint:errorlint // the key
				t.Errorf("%v is %T", err, err)
			}
		}
		inner.mu.Lock()
		inner.only = nil
		inner.mu.Unlock()
		wantBack(t, g, 3*time.Second)
	})
}

// lostFirst is a store that loses its first answer. What it is asked then is not done, and the
// caller leaves.
type lostFirst struct {
	*memstore.Store
	leave context.CancelFunc
	calls int
}

func (s *lostFirst) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	s.calls++
	if s.calls == 1 {
		_ = s.Store.Take(ctx, batch, out)
		return &store.Error{Store: "test", Op: "take", Err: store.ErrUnknownOutcome}
	}
	s.leave()
	return &store.Error{Store: "test", Op: "take", Err: store.ErrNothingDone}
}

// TestAnAttemptThatWasLostIsNotForgotten: that nothing was done by the last attempt says nothing of
// the one before.
func TestAnAttemptThatWasLostIsNotForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		s := &lostFirst{Store: memstore.New(nil), leave: leave}
		g := guarded(t, s, nil)
		var out [1]store.Verdict
		err := g.Take(ctx, []store.Take{reserve(policy(t, 0, rolling(3, time.Hour)), "id", store.NewGrant(), 1)}, out[:])
		if s.calls != 2 || errors.Is(err, store.ErrNothingDone) || !strings.Contains(err.Error(), "may have") {
			t.Errorf("after %d calls: %v", s.calls, err)
		}
	})
}
