package drawgate_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

const thousand = 1000

// TestThousandWaiters on one bucket finish within 2 % of what the limit allows, in order, with two
// or three questions each; not one per 10 ms and waiter, as those do who poll (peers 18).
// req: B1, B5, C5
func TestThousandWaiters(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy drawgate.Policy
		want   time.Duration
	}{
		"bucket":            {drawgate.Rate("rate", 600, time.Minute, 1), 999 * 100 * time.Millisecond},
		"bucket with burst": {drawgate.Rate("rate", 600, time.Minute, 100), 900 * 100 * time.Millisecond},
		"rolling":           {policy(rolling(100, time.Minute)), 9 * time.Minute},
		"rolling, joined":   {drawgate.PerMinute("minute", 100), 9 * time.Minute},
		"calendar": {policy(drawgate.Limit{
			Name: "c", Kind: drawgate.Calendar, Every: drawgate.Minute,
			Amount: 100,
		}), 9 * time.Minute},
		"day and minute": {
			policy(rolling(50, time.Minute),
				drawgate.Limit{Name: "d", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: 500}),
			24*time.Hour + 9*time.Minute,
		},
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
						if _, _, err := l.Take(t.Context(), r); err != nil {
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
				var st drawgate.Store = s
				if hints {
					m := memory(t)
					s.Store = m
					st = struct {
						*faulty
						store.Watcher
					}{s, m}
				}
				l := over(t, st, policy(slots(10)))
				slot := drawgate.Cost{Unit: "slots", N: 1}
				start := time.Now()
				var wg sync.WaitGroup
				var most, busy atomic.Int64
				for i := range thousand {
					wg.Go(func() {
						res, err := takeHeld(t.Context(), l, drawgate.Request{
							Buckets: []drawgate.Ask{l.Ask("k", slot)}, Wait: true, Labels: number(i),
							Hold: drawgate.Hold{For: time.Minute},
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
		p := drawgate.Rate("rate", 600, time.Minute, 1)
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

// rush is many callers who wait for one bucket, on a clock that nobody holds.
type rush struct {
	t *testing.T
	l *drawgate.Limiter
	sync.WaitGroup
	joined int
	ended  atomic.Int64 // wait no more
	served atomic.Int64 // units
}

// join lets somebody wait for n units, and returns when it stands in the line, or is through: so
// that the order is known.
func (r *rush) join(ctx context.Context, wg *sync.WaitGroup, n int64) {
	ask := requests(r.l, n)
	ask.Wait, ask.Priority, ask.Labels = true, r.priority(r.joined), number(r.joined)
	wg.Go(func() {
		defer r.ended.Add(1)
		if _, _, err := r.l.Take(ctx, ask); err == nil {
			r.served.Add(n)
		} else if ctx.Err() == nil {
			r.t.Error(err)
		}
	})
	r.joined++
	for r.here() < r.joined {
		runtime.Gosched()
	}
}

// here is at most how many have joined: who is on the way out is not counted for a moment.
func (r *rush) here() int {
	n := int(r.ended.Load())
	waiting, _ := r.l.Waiting()
	return n + waiting
}

// priority of the i-th: one in ten is urgent.
func (*rush) priority(i int) int {
	if i%10 == 0 {
		return 1
	}
	return 0
}

// inOrder checks that within a priority nobody passed who came after others who passed later.
func (r *rush) inOrder(passed []string) {
	r.t.Helper()
	last := map[int]int{}
	for _, name := range passed {
		i, _ := strconv.Atoi(name)
		p := r.priority(i)
		if before, ok := last[p]; ok && i < before {
			r.t.Fatalf("%d passed after %d, both of priority %d", i, before, p)
		}
		last[p] = i
	}
}

// arrive lets a thousand come, so much apart. One in the middle wants a whole burst, and every
// second one goes when brief ends.
func (r *rush) arrive(ctx, brief context.Context, leavers *sync.WaitGroup, burst int64, apart time.Duration) {
	for i := range thousand {
		switch {
		case i%2 == 1:
			r.join(brief, leavers, 1)
		case i == thousand/2+2:
			r.join(ctx, &r.WaitGroup, burst)
		default:
			r.join(ctx, &r.WaitGroup, 1)
		}
		time.Sleep(apart)
	}
}

// TestThousandWaitersForReal, on a clock that nobody holds: a thousand come one after the other,
// one of them for a whole burst; every second one goes, and as many new ones find room; all who are
// left are served in order. The burst makes up for what timers are late.
//
// With DRAWGATE_LONG they come over several seconds, and it takes at most 2 % longer than the limit
// demands; otherwise the machine may be busy.
//
// req: B1, C5
func TestThousandWaitersForReal(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: the other tests of this file have a clock of their own")
	}
	t.Parallel()
	rate, burst, apart := int64(500), int64(50), time.Duration(0)
	if long {
		rate, burst, apart = 100, 10, 2*time.Millisecond
	}
	s := remote(t)
	p := drawgate.Rate("rate", rate, time.Second, burst)
	p.Wait.Queue = thousand
	r := &rush{t: t, l: untimedLimiter(t, s, p)}
	brief, cancel := context.WithCancel(t.Context())
	defer cancel()
	var leavers sync.WaitGroup

	start := time.Now()
	r.arrive(t.Context(), brief, &leavers, burst, apart)
	t.Logf("a thousand came within %v", time.Since(start))
	full, _ := r.l.Waiting()
	going := time.Now()
	cancel()
	leavers.Wait()
	gone := time.Since(going)
	rest, _ := r.l.Waiting()
	t.Logf("every second one went: %d waited, and %v later %d", full, gone, rest)
	for range thousand / 2 { // were the places not free, there would be no room for all of them
		r.join(t.Context(), &r.WaitGroup, 1)
	}
	r.Wait()
	took := time.Since(start)

	want := time.Duration(r.served.Load()-burst) * time.Second / time.Duration(rate)
	t.Logf("%d callers got %d units in %v, at best %v: %.2f %% more", len(s.passed), r.served.Load(), took, want,
		100*float64(took-want)/float64(want))
	t.Logf("the store was asked %d times", s.takes.Load())
	r.inOrder(s.passed)
	if took < want {
		t.Errorf("%v is too soon: %v", took, want)
	}
	if n := s.takes.Load(); n > 4*int64(len(s.passed)) {
		t.Errorf("the store was asked %d times", n)
	}
	if long && took > want+want/50 {
		t.Errorf("took %v, want at most 2 %% more than %v", took, want)
	}
	if long && (gone > time.Second/10 || full <= thousand/2) {
		t.Errorf("%d waited, want more than %d, and those who went took %v, want at most 100 ms", full, thousand/2,
			gone)
	}
}
