package drawgate_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/linetest"
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
		simulated{
			drawgate.BucketLimit("far", 300, time.Second, 1), 0, linetest.Passed, 4500, 6,
			100 * time.Millisecond,
		},
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
