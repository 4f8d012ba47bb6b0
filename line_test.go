package drawgate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/store"
)

// far is a store that is some time away.
type far struct {
	*model.Records
	mu    sync.Mutex
	chans map[chan<- store.Key]bool
	asked atomic.Int64
}

func (f *far) Watch(keys chan<- store.Key) (stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.chans[keys] = true
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.chans, keys)
	}
}

func (f *far) announce(k store.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.chans {
		select {
		case c <- k:
		default:
		}
	}
}

func farAway() *far {
	return &far{
		Records: model.NewRecords(func() int64 { return time.Now().UnixMicro() }, true).InLine(),
		chans:   map[chan<- store.Key]bool{},
	}
}

func (f *far) pause() { time.Sleep(time.Duration(20+rand.IntN(180)) * time.Microsecond) }

func (f *far) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	f.pause()
	defer f.pause()
	f.asked.Add(1)
	return f.Records.Take(ctx, batch, out)
}

func (f *far) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	f.pause()
	defer f.pause()
	err := f.Records.Settle(ctx, batch, out)
	time.AfterFunc(time.Duration(20+rand.IntN(180))*time.Microsecond, func() { f.announce(batch[0].Buckets[0].Key) })
	return err
}

// served is a waiter that was granted, in µs.
type served struct{ began, granted, started int64 }

// throng are waiters in several processes, each of which waits again once it was served.
type throng struct {
	store   *far
	policy  drawgate.Policy
	hold    time.Duration // 0: a plain take
	waiters []int         // per process
	polls   bool          // the first process also asks without waiting, all the time
}

// run lets the throng wait for some time, and returns who was served in the order of the grants.
func (c *throng) run(t *testing.T, lasts time.Duration) (all []served) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for p, n := range c.waiters {
		lim, err := drawgate.New(c.store, c.policy, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lim.Close() }()
		if p == 0 && c.polls {
			wg.Go(func() {
				for ctx.Err() == nil {
					_, _ = lim.Allow(ctx, "k")
					time.Sleep(time.Millisecond)
				}
			})
		}
		for range n {
			wg.Go(func() {
				time.Sleep(rand.N(time.Second))
				for {
					s, err := c.wait(ctx, lim)
					if err != nil {
						return // its deadline is too near
					}
					mu.Lock()
					all = append(all, s)
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	slices.SortFunc(all, func(a, b served) int { return int(a.granted - b.granted) })
	return all
}

// wait waits once.
func (c *throng) wait(ctx context.Context, lim *drawgate.Limiter) (s served, err error) {
	var d drawgate.Decision
	s.began = time.Now().UnixMicro()
	if c.hold == 0 {
		d, err = lim.Wait(ctx, "k")
		s.started = time.Now().UnixMicro()
	} else {
		var r *drawgate.Reservation
		if r, err = lim.Reserve(ctx, "k", time.Minute); err != nil {
			return s, err
		}
		s.started = time.Now().UnixMicro()
		d = r.Decision
		time.Sleep(c.hold)
		err = r.Settle(context.WithoutCancel(ctx))
	}
	s.granted = d.At().Add(d.Delay()).UnixMicro()
	return s, err
}

// overtaken returns how many were granted after somebody who began to wait over 10 ms later.
func overtaken(all []served) (n int) {
	latest := int64(0)
	for _, s := range all {
		if latest > s.began+10_000 {
			n++
		}
		latest = max(latest, s.began)
	}
	return n
}

// TestOneLineOverProcesses: those who wait in several processes are served in the order in which
// they came, whichever process they are in, and the limit is used. Where units come free in bursts,
// as in a window that was used up at once, those of a process are served as fast as it can ask:
// meanwhile some of others may pass.
//
// req: C5
func TestOneLineOverProcesses(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		name      string
		limit     drawgate.Limit
		hold      time.Duration
		rate      float64 // a second
		overtaken float64 // at most, of those who were served
		used      float64 // at least
	}{
		{"a bucket of one", drawgate.BucketLimit("b", 300, time.Second, 1), 0, 300, 0.0064, 0.99},
		{"a rolling window", drawgate.RollingLimit("r", 100, 2*time.Second), 0, 50, 0.25, 0.9},
		{"slots", drawgate.ConcurrencyLimit("s", 8), 20 * time.Millisecond, 400, 0.0064, 0.95},
	} {
		for _, waiters := range [][]int{{50, 50, 50, 50, 50, 50, 50, 50}, {365, 5, 5, 5, 5, 5, 5, 5}} {
			t.Run(fmt.Sprint(of.name, " ", waiters[0]), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					lasts := 6 * time.Second
					if long {
						lasts = time.Minute
					}
					c := throng{farAway(), drawgate.Policy{Name: "p", Limits: []drawgate.Limit{of.limit}}, of.hold, waiters, of.hold == 0}
					all := c.run(t, lasts)
					late := make([]int64, len(all))
					for i, s := range all {
						late[i] = s.started - s.granted
					}
					slices.Sort(late)
					passed, most, p99 := overtaken(all), of.rate*lasts.Seconds(), late[len(late)*99/100]
					t.Logf("%d served, %.1f %% of what the limit admits, with %d calls; %d overtaken; started %d µs after the grant (p99)",
						len(all), 100*float64(len(all))/most, c.store.asked.Load(), passed, p99)
					if float64(passed) > of.overtaken*float64(len(all)) || float64(len(all)) < of.used*most || p99 > 50_000 {
						t.Errorf("%d of %d were overtaken, %.0f could be served, and they start %d µs after the grant", passed, len(all), most, p99)
					}
				})
			})
		}
	}
}

// TestWithoutALine the same throng is served out of order: what is tested above is no accident.
func TestWithoutALine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := farAway()
		s.Records = model.NewRecords(func() int64 { return time.Now().UnixMicro() }, true)
		c := throng{s, policy(drawgate.BucketLimit("b", 300, time.Second, 1)), 0, []int{365, 5, 5, 5, 5, 5, 5, 5}, false}
		all := c.run(t, 5*time.Second)
		if n := overtaken(all); n < len(all)/10 {
			t.Errorf("%d of %d were overtaken", n, len(all))
		}
	})
}

// TestWhoLeavesTheLineHoldsNobodyUp: a waiter that gives up withdraws its ticket.
func TestWhoLeavesTheLineHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := farAway()
		one, two := over(t, s, policy(slots(1))), over(t, s, policy(slots(1)))
		held, err := one.Reserve(t.Context(), "k", time.Hour, drawgate.Cost{Unit: "slots", N: 1})
		if err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = one.Reserve(ctx, "k", time.Hour, drawgate.Cost{Unit: "slots", N: 1}) })
		time.Sleep(time.Second)
		if n := len(s.Line(store.Key{Policy: "p", Name: "k"}).Tickets); n != 1 {
			t.Fatalf("%d tickets", n)
		}
		leave()
		wg.Wait()
		time.Sleep(time.Second)
		if n := len(s.Line(store.Key{Policy: "p", Name: "k"}).Tickets); n != 0 {
			t.Errorf("%d tickets of one who has left", n)
		}
		if err := held.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		d, _, err := two.Take(t.Context(), drawgate.Request{
			Buckets: []drawgate.Ask{{Key: "k", Costs: []drawgate.Cost{{Unit: "slots", N: 1}}}}, Hold: drawgate.Hold{For: time.Hour},
		})
		if err != nil || !d.Allowed {
			t.Errorf("allowed %v, %v", d.Allowed, err)
		}
	})
}
