package guard_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

// TestRacingCallersWhileTheStoreComesAndGoes: callers answered by the store and callers answered by
// the guard, at the same time and in the same buckets, together get no more than the limit. Every
// call is answered in time.
//
// req: A10, A12, E7, C12
func TestRacingCallersWhileTheStoreComesAndGoes(t *testing.T) {
	t.Parallel()
	rounds := 20
	if long {
		rounds = 1000
	}
	for round := range rounds {
		synctest.Test(t, func(t *testing.T) {
			const amount, callers, each = 300, 24, 60
			inner := &faulty{Store: memstore.New(nil)}
			var calls atomic.Int64
			inner.only = func(string, bool) mood { // in turn, and differently in each round
				n := calls.Add(1)
				return []mood{well, well, well, stalls, well, refuses, mute, slow}[(n*int64(round+1)/7+n/50)%8]
			}
			inner.during = func() { time.Sleep(time.Duration(calls.Load()%5) * time.Millisecond) }
			g := guarded(t, inner, share(1))
			plans := []*store.Plan{
				policy(t, 0, rolling(amount, 24*time.Hour)),
				compile(t, drawgate.Policy{Name: "q", Limits: []drawgate.Limit{{
					Name: "b", Kind: drawgate.Bucket,
					Amount: 1, Window: 300 * 24 * time.Hour, Burst: amount,
				}}}),
			}
			var granted [2]atomic.Int64
			var slowest atomic.Int64
			var wg sync.WaitGroup
			for c := range callers {
				wg.Go(func() {
					for i := range each {
						tk := store.Take{Buckets: []store.BucketCost{cost(plans[c%2], "k", 1)}}
						if i%3 == 0 {
							tk.ID, tk.Hold = fmt.Sprint(c, " ", i), time.Hour
						}
						start := time.Now()
						var out [1]store.Verdict
						if err := g.Take(t.Context(), []store.Take{tk}, out[:]); err != nil || out[0].Fail != nil {
							t.Error(err, out[0].Fail)
							return
						}
						slowest.Store(max(slowest.Load(), int64(time.Since(start))))
						if !out[0].Allowed {
							continue
						}
						granted[c%2].Add(1)
						if tk.ID != "" {
							st := store.Settlement{Op: store.OpSettle, ID: tk.ID, Buckets: tk.Buckets}
							var o [1]store.Outcome
							if err := g.Settle(t.Context(), []store.Settlement{st}, o[:]); err != nil || o[0].Gone {
								t.Errorf("settle: %v, %+v", err, o[0])
							}
						}
					}
				})
			}
			wg.Wait()
			for i := range granted {
				if n := granted[i].Load(); n > amount {
					t.Errorf("round %d, plan %d: %d of %d granted", round, i, n, amount)
				}
			}
			if d := time.Duration(slowest.Load()); d > 45*time.Millisecond {
				t.Errorf("a take took %v", d)
			}
		})
	}
}

// TestTakesUnderWayCount: while the store is being asked for the last unit, the guard does not give
// it away; nor is it lost if the store refuses.
func TestTakesUnderWayCount(t *testing.T) {
	t.Parallel()
	for _, l := range []drawgate.Limit{rolling(1, time.Hour), leaky(1, time.Hour, 1), daily(1)} {
		bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, l)
			inner.during = func() { time.Sleep(20 * time.Millisecond) }
			var first store.Verdict
			var wg sync.WaitGroup
			wg.Go(func() { first = take(t, g, plan, "k", 1) })
			time.Sleep(10 * time.Millisecond)
			inner.mu.Lock()
			inner.during = nil
			inner.only = func(string, bool) mood { return refuses }
			inner.mu.Unlock()
			second := take(t, g, plan, "k", 1)
			inner.mu.Lock()
			inner.only = nil
			inner.mu.Unlock()
			wg.Wait()
			if !first.Allowed || first.Fallback || second.Allowed || !second.Fallback || second.RetryAfter <= 0 ||
				second.Reason == store.Passed {
				t.Errorf("%v: the first allowed %v (fallback %v), the second %v (%v): %v", l.Kind, first.Allowed,
					first.Fallback, second.Allowed, second.Fallback, second.Fail)
			}
			if second.First.Limits[0].RetryAfter != second.RetryAfter {
				t.Errorf("refused by %+v", second.First)
			}
		})
	}
}

// TestRacingSettlementsAndReturns settles reservations while they are being delivered.
func TestRacingSettlementsAndReturns(t *testing.T) {
	t.Parallel()
	for range 10 {
		bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
			inner.during = func() { time.Sleep(3 * time.Millisecond) }
			plan := policy(t, 0, rolling(1000, time.Hour), slots(500))
			inner.set(refuses)
			const n = 400
			for i := range n {
				hold(t, g, fmt.Sprint(i), time.Hour, plan, "k", 2, 1)
			}
			inner.set(well)
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 5 * time.Millisecond)
					op := []store.Op{store.OpSettle, store.OpCancel}[i%2]
					if o := end(t, g, op, fmt.Sprint(i), plan, "k", 1, 1); o.Err != nil || o.Gone {
						t.Errorf("%v: %+v", op, o)
					}
					if o := end(t, g, op, fmt.Sprint(i), plan, "k", 1, 1); o.Err != nil || !o.Gone {
						t.Errorf("%v again: %+v", op, o)
					}
				})
			}
			wg.Wait()
			back(t, g, inner)
			if got := used(t, inner, plan, "k"); got[0] != n/2 || got[1] != 0 {
				t.Errorf("%v used, want %d settled with one unit each", got, n/2)
			}
		})
	}
}
