package drawgate_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
)

const thousand = 1000

// TestThousandWaiters on one bucket finish within 2 % of what the limit allows, in order, with two or three questions each; not one per 10 ms and
// waiter, as those do who poll (peers 18). req: B1, B5, C5
func TestThousandWaiters(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy drawgate.Policy
		want   time.Duration
	}{
		"bucket":            {drawgate.Rate(600, time.Minute, 1), 999 * 100 * time.Millisecond},
		"bucket with burst": {drawgate.Rate(600, time.Minute, 100), 900 * 100 * time.Millisecond},
		"rolling":           {policy(rolling(100, time.Minute)), 9 * time.Minute},
		"rolling, joined":   {drawgate.PerMinute(100), 9 * time.Minute},
		"calendar":          {policy(drawgate.Limit{Name: "c", Kind: drawgate.Calendar, Every: drawgate.Minute, Amount: 100}), 9 * time.Minute},
		"day and minute":    {policy(rolling(50, time.Minute), drawgate.Limit{Name: "d", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: 500}), 24*time.Hour + 9*time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := remote(t)
				l := over(t, s, c.policy)
				start := time.Now()
				var wg sync.WaitGroup
				for i := range thousand {
					r := requests(l, 1)
					r.Wait, r.Labels = true, number(i)
					wg.Go(func() {
						if _, err := l.Take(t.Context(), r); err != nil {
							t.Error(err)
						}
					})
					synctest.Wait()
				}
				wg.Wait()
				wantTook(t, start, c.want, c.want/50)
				s.inOrder(t, thousand)
				if n := s.takes.Load(); n > 3*thousand {
					t.Errorf("the store was asked %d times", n)
				}
			})
		})
	}
}

// TestThousandWaitersForSlots: each works for a second, ten at a time. req: D12
func TestThousandWaitersForSlots(t *testing.T) {
	t.Parallel()
	for _, hints := range []bool{false, true} {
		t.Run(fmt.Sprintf("hints=%v", hints), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := remote(t)
				var store drawgate.Store = s
				if hints {
					m := memory(t)
					s.Store = m
					store = struct {
						*faulty
						drawgate.Watcher
					}{s, m}
				}
				l := over(t, store, policy(slots(10)))
				slot := drawgate.Cost{Unit: "slots", N: 1}
				start := time.Now()
				var wg sync.WaitGroup
				var most, busy atomic.Int64
				for i := range thousand {
					wg.Go(func() {
						res, err := l.ReserveRequest(t.Context(), drawgate.Request{
							Buckets: []drawgate.Ask{l.Ask("k", slot)}, Hold: time.Minute, Labels: number(i),
						})
						if err != nil {
							t.Error(err)
							return
						}
						most.Store(max(most.Load(), busy.Add(1)))
						time.Sleep(time.Second)
						busy.Add(-1)
						if err := res.Settle(t.Context()); err != nil {
							t.Error(err)
						}
					})
					synctest.Wait()
				}
				wg.Wait()
				wantTook(t, start, 100*time.Second, 2*time.Second)
				s.inOrder(t, thousand)
				if most.Load() != 10 {
					t.Errorf("%d at once", most.Load())
				}
				if n := s.takes.Load(); n > 4*thousand {
					t.Errorf("the store was asked %d times", n)
				}
			})
		})
	}
}

// TestHalfOfAThousandCancel: their places are free at once, and the others lose nothing. req: C5
func TestHalfOfAThousandCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := drawgate.Rate(600, time.Minute, 1)
		p.Wait.Queue = thousand
		l := local(t, p)
		take(t, l, "k", 1)
		ctx, cancel := context.WithCancel(t.Context())
		start, c := time.Now(), newCrowd(t, l)
		for i := range thousand {
			who := t.Context()
			if i%2 == 0 {
				who = ctx
			}
			c.join(who, fmt.Sprint(i), requests(l, 1))
		}
		_, err := l.Wait(t.Context(), "k")
		wantErr(t, err, drawgate.ErrQueueFull)
		cancel()
		synctest.Wait()
		for i := range thousand / 2 {
			c.join(t.Context(), fmt.Sprint("new", i), requests(l, 1))
		}
		wantTook(t, start, 0, 0)
		_, err = l.Wait(t.Context(), "k")
		wantErr(t, err, drawgate.ErrQueueFull)
		c.Wait()
		wantTook(t, start, 100*time.Second, 2*time.Second)
		for i, name := range c.order {
			want := fmt.Sprint(2*i + 1)
			if i >= thousand/2 {
				want = fmt.Sprint("new", i-thousand/2)
			}
			if name != want {
				t.Fatalf("number %d is %s, want %s", i, name, want)
			}
		}
	})
}

// TestThousandWaitersForReal, on a clock that nobody holds: the burst makes up for what timers are late.
func TestThousandWaitersForReal(t *testing.T) {
	t.Parallel()
	const rate, burst = 500, 50
	s := remote(t)
	l := over(t, s, drawgate.Rate(rate, time.Second, burst))
	if _, err := l.Status(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	var wg sync.WaitGroup
	for range thousand {
		wg.Go(func() {
			if _, err := l.Wait(t.Context(), "k"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	const want = time.Second * (thousand - burst) / rate
	if took := time.Since(start); took < want {
		t.Errorf("%v is too soon: %v", took, want)
	} else if n := s.takes.Load(); n > 4*thousand {
		t.Errorf("the store was asked %d times in %v", n, took)
	} else {
		t.Logf("%v for %v, the store was asked %d times", took, want, n)
	}
}
