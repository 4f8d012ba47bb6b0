package guard_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
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
			store := &faulty{Store: memstore.New(nil)}
			var calls atomic.Int64
			store.only = func(string, bool) mood { // in turn, and differently in each round
				n := calls.Add(1)
				return []mood{well, well, well, stalls, well, refuses, mute, slow}[(n*int64(round+1)/7+n/50)%8]
			}
			store.during = func() { time.Sleep(time.Duration(calls.Load()%5) * time.Millisecond) }
			g := guarded(t, store, share(1))
			plans := []*drawgate.Plan{
				policy(t, 0, rolling(amount, 24*time.Hour)),
				compile(t, drawgate.Policy{Name: "q", Limits: []drawgate.Limit{{Name: "b", Kind: drawgate.Bucket, Amount: 1, Window: 300 * 24 * time.Hour, Burst: amount}}}),
			}
			var granted [2]atomic.Int64
			var slowest atomic.Int64
			var wg sync.WaitGroup
			for c := range callers {
				wg.Go(func() {
					for i := range each {
						tk := drawgate.Take{Buckets: []drawgate.BucketCost{cost(plans[c%2], "k", 1)}}
						if i%3 == 0 {
							tk.ID, tk.Hold = fmt.Sprint(c, " ", i), time.Hour
						}
						start := time.Now()
						var out [1]drawgate.Decision
						if err := g.Take(t.Context(), []drawgate.Take{tk}, out[:]); err != nil || out[0].Fail != nil {
							t.Error(err, out[0].Fail)
							return
						}
						slowest.Store(max(slowest.Load(), int64(time.Since(start))))
						if !out[0].Allowed {
							continue
						}
						granted[c%2].Add(1)
						if tk.ID != "" {
							st := drawgate.Settlement{Op: drawgate.OpSettle, ID: tk.ID, Buckets: tk.Buckets}
							var o [1]drawgate.Outcome
							if err := g.Settle(t.Context(), []drawgate.Settlement{st}, o[:]); err != nil || o[0].Gone {
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
		bubble(t, full(1), func(t *testing.T, g *guard.Store, store *faulty) {
			plan := policy(t, 0, l)
			store.during = func() { time.Sleep(20 * time.Millisecond) }
			var first drawgate.Decision
			var wg sync.WaitGroup
			wg.Go(func() { first = take(t, g, plan, "k", 1) })
			time.Sleep(10 * time.Millisecond)
			store.mu.Lock()
			store.during = nil
			store.only = func(string, bool) mood { return refuses }
			store.mu.Unlock()
			second := take(t, g, plan, "k", 1)
			store.mu.Lock()
			store.only = nil
			store.mu.Unlock()
			wg.Wait()
			if !first.Allowed || first.Fallback || second.Allowed || !second.Fallback || second.RetryAfter <= 0 || second.Err() == nil {
				t.Errorf("%v: the first allowed %v (fallback %v), the second %v (%v): %v", l.Kind, first.Allowed, first.Fallback, second.Allowed, second.Fallback, second.Err())
			}
			if l, ok := second.Refusing(); !ok || l.Limit.Name != "a" {
				t.Errorf("refused by %+v", l)
			}
		})
	}
}

// TestRacingSettlementsAndReturns settles reservations while they are being delivered.
func TestRacingSettlementsAndReturns(t *testing.T) {
	t.Parallel()
	for range 10 {
		bubble(t, full(1), func(t *testing.T, g *guard.Store, store *faulty) {
			store.during = func() { time.Sleep(3 * time.Millisecond) }
			plan := policy(t, 0, rolling(1000, time.Hour), slots(500))
			store.set(refuses)
			const n = 400
			for i := range n {
				hold(t, g, fmt.Sprint(i), time.Hour, plan, "k", 2, 1)
			}
			store.set(well)
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 5 * time.Millisecond)
					op := []drawgate.Op{drawgate.OpSettle, drawgate.OpCancel}[i%2]
					if o := end(t, g, op, fmt.Sprint(i), plan, "k", 1, 1); o.Err != nil || o.Gone {
						t.Errorf("%v: %+v", op, o)
					}
					if o := end(t, g, op, fmt.Sprint(i), plan, "k", 1, 1); o.Err != nil || !o.Gone {
						t.Errorf("%v again: %+v", op, o)
					}
				})
			}
			wg.Wait()
			back(t, g, store)
			if got := used(t, store, plan, "k"); got[0] != n/2 || got[1] != 0 {
				t.Errorf("%v used, want %d settled with one unit each", got, n/2)
			}
		})
	}
}
