package guard_test

import (
	"cmp"
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
	opts := &guard.Options{Instances: 3, Start: drawgate.StartFull}
	bubble(t, opts, func(t *testing.T, g *guard.Store, inner *faulty) {
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
			said := errors.Is(err, store.ErrNothingDone) && !strings.Contains(err.Error(), "may have")
			if !said || !errors.Is(err, want) {
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

// scripted is a store that answers its nth take as it is told.
type scripted struct {
	*memstore.Store
	answers []func(batch []store.Take, out []store.Verdict) error
	calls   int
}

func (s *scripted) Take(_ context.Context, batch []store.Take, out []store.Verdict) error {
	s.calls++
	return s.answers[min(s.calls, len(s.answers))-1](batch, out)
}

// TestALostAttemptIsNotForgotten: that nothing was done by the last attempt says nothing of the one
// before. Each take of a batch is told of its own, and what is left of it is cancelled.
func TestALostAttemptIsNotForgotten(t *testing.T) {
	t.Parallel()
	failed := func(err error) *store.Error { return &store.Error{Store: "test", Op: "take", Err: err} }
	unknown, nothing := failed(store.ErrUnknownOutcome), failed(store.ErrNothingDone)
	type answer = func(*memstore.Store, []store.Take, []store.Verdict) error
	all := func(m *memstore.Store, batch []store.Take, out []store.Verdict) error {
		return errors.Join(m.Take(t.Context(), batch, out), unknown)
	}
	for name, c := range map[string]struct {
		first, last answer
		lost        []bool
	}{
		"the batch": {
			all,
			func(*memstore.Store, []store.Take, []store.Verdict) error { return nothing },
			[]bool{true, true},
		},
		"each": {
			func(m *memstore.Store, batch []store.Take, out []store.Verdict) error {
				err := m.Take(t.Context(), batch[1:], out[1:])
				out[0], out[1] = store.Verdict{Fail: nothing}, store.Verdict{Fail: unknown}
				return err
			},
			func(_ *memstore.Store, _ []store.Take, out []store.Verdict) error {
				out[0], out[1] = store.Verdict{Fail: nothing}, store.Verdict{Fail: nothing}
				return nil
			},
			[]bool{false, true},
		},
		"each, and then the batch": {
			func(m *memstore.Store, batch []store.Take, out []store.Verdict) error {
				err := m.Take(t.Context(), batch[1:], out[1:])
				out[0] = store.Verdict{Fail: nothing}
				return err
			},
			func(*memstore.Store, []store.Take, []store.Verdict) error { return nothing },
			[]bool{true, true}, // it is one error of both
		},
		"nothing was done": {
			func(*memstore.Store, []store.Take, []store.Verdict) error { return nothing },
			func(*memstore.Store, []store.Take, []store.Verdict) error { return nothing },
			[]bool{false, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, leave := context.WithCancel(t.Context())
				m := memstore.New(nil)
				s := &scripted{Store: m}
				s.answers = []func([]store.Take, []store.Verdict) error{
					func(batch []store.Take, out []store.Verdict) error { return c.first(m, batch, out) },
					func(batch []store.Take, out []store.Verdict) error { leave(); return c.last(m, batch, out) },
				}
				g, plan := guarded(t, s, nil), policy(t, 0, rolling(3, time.Hour))
				batch := []store.Take{reserve(plan, "a", store.NewGrant(), 1), reserve(plan, "b", store.NewGrant(), 1)}
				var out [2]store.Verdict
				err := g.Take(ctx, batch, out[:])
				for i, lost := range c.lost {
					why := cmp.Or(err, out[i].Fail)
					if s.calls != 2 || why == nil || errors.Is(why, store.ErrNothingDone) == lost {
						t.Errorf("after %d calls, take %d: %v", s.calls, i, why)
					}
					if err != nil && !errors.Is(err, context.Canceled) {
						t.Errorf("%v does not say that the caller left", err)
					}
				}
				time.Sleep(2 * store.SendLife)
				if n := used(t, m, plan, "k")[0]; n != 0 {
					t.Errorf("%d are left in the store", n)
				}
			})
		})
	}
}
