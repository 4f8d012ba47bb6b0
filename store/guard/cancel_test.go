package guard_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
)

// reserve is a take with an ID that takes n units for an hour.
func reserve(plan *store.Plan, id string, g store.Grant, n ...int64) store.Take {
	return store.Take{ID: id, Grant: g, Hold: time.Hour, Buckets: []store.BucketCost{cost(plan, "k", n...)}}
}

// free waits until nothing is used in the store.
func free(t *testing.T, store *faulty, plan *store.Plan, within time.Duration) {
	t.Helper()
	for end := time.Now().Add(within); used(t, store.Store, plan, "k")[0] > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%v are used after %v, want none", used(t, store.Store, plan, "k"), within)
		}
	}
}

// TestARefusedTakeLeavesNothingInTheStore: the store's answer was lost, so it may hold the units,
// and then the guard refuses the take.
//
// req: A1, A12
func TestARefusedTakeLeavesNothingInTheStore(t *testing.T) {
	t.Parallel()
	for _, m := range []mood{mute, late} {
		bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, drawgate.FallbackClosed, rolling(10, 24*time.Hour))
			inner.set(m)
			if d := send(t, g, reserve(plan, "id", 1, 10)); d.Allowed || d.Reason != store.Unavailable {
				t.Fatalf("allowed %v, reason %v, want a refusal for want of the store", d.Allowed, d.Reason)
			}
			inner.set(well)
			if m == late { // the cancellation comes first, and finds nothing
				time.Sleep(500 * time.Millisecond)
				if inner.cancelled() == 0 {
					t.Error("it is not cancelled at once")
				}
				time.Sleep(600 * time.Millisecond)
				if inner.arrived.Load() == 0 { // it may have been cancelled by now
					t.Error("the take did not arrive late")
				}
			}
			free(t, inner, plan, 2*store.SendLife)
		})
	}
}

// TestARefusedTakeMayBeSentAgain: a waiting caller sends the same grant again. What is held then
// stays held. First no copy of a cancellation may be on its way any more: one that was not
// answered, one that came before the take, and a last one if several messages might open the grant.
func TestARefusedTakeMayBeSentAgain(t *testing.T) {
	t.Parallel()
	for _, m := range []mood{mute, late} {
		bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, drawgate.FallbackClosed, slots(1))
			inner.set(m)
			if send(t, g, reserve(plan, "id", 1, 1)).Allowed {
				t.Fatal("allowed by a limit that is closed")
			}
			for range 3 {
				send(t, g, reserve(plan, "id", 1, 1)) // cancelled or not, nobody knows
			}
			inner.set(well)
			var d store.Verdict
			for end := time.Now().Add(3*store.SendLife + time.Second); !d.Allowed &&
				time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				d = send(t, g, reserve(plan, "id", 1, 1))
			}
			if !d.Allowed || d.Fallback {
				t.Fatalf("%v: allowed %v, fallback %v", m, d.Allowed, d.Fallback)
			}
			time.Sleep(10 * time.Second)
			if got := used(t, inner.Store, plan, "k")[0]; got != 1 {
				t.Errorf("%d slots are held, want the one that was granted", got)
			}
		})
	}
}

// TestNothingIsSentWithoutTime: the time of a take is over in the instant in which it need not wait
// any more. If it were sent, nobody would see its answer, and the caller that sends it again would
// wait until it is cancelled.
func TestNothingIsSentWithoutTime(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, g *guard.Store, _ *faulty) {
		if err := g.DeliverFirst(t.Context()); err != nil {
			t.Error(err)
		}
		over, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		<-over.Done()
		err := g.DeliverFirst(over)
		if _, ok := errors.AsType[*store.Error](err); !ok || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want an error of the store that the time is over", err)
		}
		over, cancel = context.WithCancel(t.Context())
		cancel()
		if err := g.DeliverFirst(over); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want that the caller has gone", err)
		}
	})
}

// TestGivingUpLeavesNothingInTheStore: callers leave while the store decides. The error says that
// the store may have allowed the take, and what it granted is cancelled.
func TestGivingUpLeavesNothingInTheStore(t *testing.T) {
	t.Parallel()
	for _, m := range []mood{mute, late, slow} {
		bubble(t, &guard.Options{Instances: 1, Start: drawgate.StartFull, Failures: 1000},
			func(t *testing.T, g *guard.Store, inner *faulty) {
				plan := policy(t, 0, rolling(1000, 24*time.Hour))
				inner.set(m)
				for i := range 60 {
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(10*time.Millisecond, cancel)
					var out [1]store.Verdict
					err := g.Take(ctx, []store.Take{reserve(plan, fmt.Sprint(i), store.NewGrant(), 10)}, out[:])
					if !errors.Is(err, context.Canceled) || err == context.Canceled { //nolint:errorlint // it must say more than the context does
						t.Fatalf("%v, want an error that says more than that the caller gave up", err)
					}
				}
				inner.set(well)
				time.Sleep(1100 * time.Millisecond) // until what is late has arrived
				free(t, inner, plan, 2*store.SendLife)
				if st := g.State(); st.Unavailable || st.Pending > 0 {
					t.Errorf("%+v", st)
				}
			})
	}
}

// TestGivingUpASettlement: the settlement is kept and counts once.
func TestGivingUpASettlement(t *testing.T) {
	t.Parallel()
	for _, m := range []mood{mute, stalls} {
		bubble(t, &guard.Options{Instances: 1, Start: drawgate.StartFull, Failures: 1000},
			func(t *testing.T, g *guard.Store, inner *faulty) {
				plan := policy(t, 0, rolling(1000, 24*time.Hour))
				hold(t, g, "id", time.Hour, plan, "k", 10)
				inner.set(m)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(10*time.Millisecond, cancel)
				st := store.Settlement{
					Op: store.OpSettle, ID: "id", Grant: grant("id"),
					Buckets: []store.BucketCost{cost(plan, "k", 3)},
				}
				if err := g.Settle(ctx, []store.Settlement{st}, make([]store.Outcome, 1)); !errors.Is(err,
					context.Canceled) {
					t.Fatal(err)
				}
				back(t, g, inner)
				if got := used(t, inner.Store, plan, "k")[0]; got != 3 {
					t.Errorf("%d used, want the 3 that were settled", got)
				}
			})
	}
}

// TestCancellationsAreBounded: their number is bounded. Holds without room end by themselves.
func TestCancellationsAreBounded(t *testing.T) {
	t.Parallel()
	bubble(t, &guard.Options{Instances: 1, Start: drawgate.StartFull, MaxHeld: 2, Failures: 100},
		func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, drawgate.FallbackClosed, rolling(100, 24*time.Hour))
			inner.only = func(op string, _ bool) mood {
				if op == "take" {
					return mute
				}
				return refuses
			}
			for i := range 10 {
				send(t, g, reserve(plan, fmt.Sprint(i), store.NewGrant(), 1))
			}
			inner.mu.Lock()
			inner.only, inner.cancels = nil, 0
			inner.mu.Unlock()
			time.Sleep(10 * time.Second)
			if got := used(t, inner.Store, plan, "k")[0]; got != 8 {
				t.Errorf("%d of 10 are held, want 8: two are cancelled", got)
			}
		})
}

// TestAGrantThatIsHeldHereIsNotCancelled: the store's first answer was lost, and then the grant was
// given here. It counts exactly once.
func TestAGrantThatIsHeldHereIsNotCancelled(t *testing.T) {
	t.Parallel()
	for _, m := range []mood{mute, late} {
		bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, rolling(100, 24*time.Hour), slots(5))
			inner.set(m)
			if d := send(t, g, reserve(plan, "id", 1, 10, 1)); !d.Allowed || !d.Fallback {
				t.Fatalf("allowed %v, fallback %v", d.Allowed, d.Fallback)
			}
			short := reserve(plan, "short", 2, 10, 1)
			short.Hold = time.Second
			if d := send(t, g, short); !d.Allowed {
				t.Fatal("refused")
			}
			time.Sleep(1500 * time.Millisecond)
			back(t, g, inner)
			time.Sleep(5 * time.Second)
			if got := used(t, inner.Store, plan, "k"); got[0] < 20 || got[0] > 30 || got[1] != 1 {
				t.Errorf("%v used, want 10 that are held with a slot, and 10 of the hold that is over (or twice, if the store had it: nobody knows)", got)
			}
			if o := end(t, g, store.OpSettle, "unknown", plan, "k", 0, 0); !o.Gone {
				t.Errorf("a grant that nobody has: %+v", o)
			}
			st := store.Settlement{Op: store.OpCancel, ID: "id", Grant: 1, Buckets: []store.BucketCost{cost(plan, "k")}}
			var out [1]store.Outcome
			if err := g.Settle(t.Context(), []store.Settlement{st}, out[:]); err != nil || out[0].Gone {
				t.Errorf("cancelled by its grant: %+v, %v", out[0], err)
			}
			wantBack(t, g, time.Second)
			if got := used(t, inner.Store, plan, "k"); got[1] != 0 {
				t.Errorf("%v used, want no slot", got)
			}
		})
	}
}

// TestACancellationOfAnOldCopyIsSent: the answer to a take was lost, and it was sent again, settled
// or refused. The first copy may open it again, so it is cancelled, although nothing else is to be
// delivered.
func TestACancellationOfAnOldCopyIsSent(t *testing.T) {
	t.Parallel()
	for _, settled := range []bool{true, false} {
		bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, rolling(10, time.Hour))
			n := int64(5)
			if !settled {
				n = 11
			}
			take(t, g, plan, "k", 1)
			lost := false
			inner.mu.Lock()
			inner.only = func(op string, _ bool) mood {
				if op == "take" && !lost {
					lost = true
					return refuses
				}
				return well
			}
			inner.mu.Unlock()
			if d := hold(t, g, "id", time.Hour, plan, "k", n); d.Allowed != settled || d.Fallback {
				t.Fatalf("%+v", d)
			}
			if settled {
				end(t, g, store.OpSettle, "id", plan, "k", 5)
			}
			time.Sleep(10 * time.Second)
			if inner.cancelled() == 0 || g.State().Undelivered {
				t.Errorf("settled %v: %d cancellations were sent; owed: %v", settled, inner.cancelled(), g.State().Undelivered)
			}
		})
	}
}
