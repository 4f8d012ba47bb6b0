package drawgate_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/linetest"
	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
)

// TestSimulatedOrder: 400 callers wait in eight processes, near the store. At most 64 of 10,000 are
// served after one who came over 10 ms later; of a window, of which all units come free at once,
// not counting those served within the same instant. If there are nearly as many units as tickets,
// a few more are: up to 6 of 3,000 were seen. Far from the store one of ten is served 100 ms after
// one who came later. If each arrival were late by the journey of the request that brought it, two
// of three would be.
//
// req: C5
func TestSimulatedOrder(t *testing.T) {
	t.Parallel()
	if !testing.Short() {
		needs.NoRace(t) // much of it is arithmetic; the quick proof is short enough
	}
	lasts := time.Duration(needs.Rounds(4, 10, 60)) * time.Second
	type simulated struct {
		limit drawgate.Limit
		hold  time.Duration
		order func(all []linetest.Served) int
		most  int // of 10,000
		rate  int // a second
		near  time.Duration
	}
	const near = 200 * time.Microsecond
	for _, c := range needs.Cases(2,
		simulated{drawgate.BucketLimit("bucket", 300, time.Second, 1), 0, linetest.Overtaken, 64, 300, near},
		simulated{drawgate.ConcurrencyLimit("slots", 8), 20 * time.Millisecond, linetest.Overtaken, 64, 400, near},
		simulated{drawgate.RollingLimit("window", 25, 500*time.Millisecond), 0, linetest.Passed, 64, 50, near},
		simulated{drawgate.RollingLimit("large", 100, 2*time.Second), 0, linetest.Passed, 300, 50, near},
		simulated{drawgate.BucketLimit("far", 300, time.Second, 1), 0, linetest.Passed, 4500, 6,
			100 * time.Millisecond},
	) {
		for _, waiters := range [][]int{{50, 50, 50, 50, 50, 50, 50, 50}, {365, 5, 5, 5, 5, 5, 5, 5}} {
			t.Run(fmt.Sprint(c.limit.Name, " ", waiters[0]), func(t *testing.T) {
				t.Parallel()
				lasts := lasts
				if c.near > near {
					if waiters[0] > 50 {
						return // nearly all wait in one process, which has its own order
					}
					lasts = max(lasts, 20*time.Second)
				}
				synctest.Test(t, func(t *testing.T) {
					w := &lineWorld{t: t, near: c.near}
					w.begin()
					throng := linetest.Throng{
						Policy: drawgate.Policy{Name: "p", Limits: []drawgate.Limit{c.limit}},
						Hold:   c.hold, Waiters: waiters, Polls: c.hold == 0,
					}
					for range waiters {
						throng.Stores = append(throng.Stores, store.Store(w.process()))
					}
					all := throng.Run(t, lasts)
					t.Logf("%d served, %d overtaken, %d of them by 100 ms", len(all), linetest.Overtaken(all), linetest.Passed(all))
					if n := c.rate * int(lasts/time.Second); len(all) < n*9/10 {
						t.Errorf("%d were served, want %d", len(all), n)
					}
					if 10_000*c.order(all) > c.most*len(all) {
						t.Errorf("%d were overtaken", c.order(all))
					}
					time.Sleep(10 * time.Second) // messages under way: what is left then blocks the bubble
				})
			})
		}
	}
}

// TestOrderWhenClocksAreSet: the store's clock is set, or another server with another clock takes
// over. Who comes then is not before those who have waited for long, nor behind those who come
// later. (A take of several buckets keeps its arrival, and may be behind those that came within the
// time by which the clock was set back.)
//
// req: C5
func TestOrderWhenClocksAreSet(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{time.Minute, -time.Minute} {
		for _, waits := range []bool{false, true} { // the newcomer's process has others who wait
			for _, keys := range [][]string{{"k"}, {"k", "other"}} { // of the newcomer
				if by < 0 && len(keys) > 1 {
					continue
				}
				t.Run(fmt.Sprint(by, waits, keys), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { clockIsSet(t, by, waits, keys) })
				})
			}
		}
	}
}

func clockIsSet(t *testing.T, by time.Duration, waits bool, keys []string) {
	t.Helper()
	w := &lineWorld{t: t, near: 2 * time.Millisecond}
	w.begin()
	ahead := time.Duration(0)
	w.records = model.NewRecords(func() int64 { return time.Now().Add(ahead).UnixMicro() }, false).InLine()
	p, q := serialOf(t, w), serialOf(t, w)
	for _, l := range []*drawgate.Limiter{p, q} { // both learn of the clock
		for range 2 {
			if _, err := l.Wait(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
	}
	var wg sync.WaitGroup
	served := make(chan string, 100)
	wait := func(l *drawgate.Limiter, who string, keys ...string) {
		r := drawgate.Request{Wait: true}
		for _, k := range keys {
			r.Buckets = append(r.Buckets, drawgate.Ask{Key: k, Costs: []drawgate.Cost{{N: 1}}})
		}
		wg.Go(func() {
			if _, _, err := l.Take(t.Context(), r); err != nil {
				t.Error(err)
			}
			served <- who
		})
		time.Sleep(20 * time.Millisecond)
	}
	for range 10 {
		wait(q, "early", "k")
		if waits {
			wait(p, "early", "k")
		}
	}
	ahead = by
	time.Sleep(3 * time.Second)
	wait(p, "newcomer", keys...)
	for range 10 {
		wait(q, "late", "k")
	}
	wg.Wait()
	close(served)
	var order []string
	for who := range served {
		if len(order) == 0 || order[len(order)-1] != who {
			order = append(order, who)
		}
	}
	if !slices.Equal(order, []string{"early", "newcomer", "late"}) {
		t.Errorf("served were %v", order)
	}
	time.Sleep(10 * time.Second) // messages under way
}

// serialOf returns a limiter of one unit a second in a world.
func serialOf(t *testing.T, w *lineWorld) *drawgate.Limiter {
	t.Helper()
	l, err := drawgate.New(w.process(), policy(drawgate.RollingLimit("l", 1, time.Second)), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
