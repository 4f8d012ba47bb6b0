package drawgate_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// TestBackoff: attempts at fixed times instead of the limit's own. req: A2
func TestBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy(leaky(5, time.Minute, 5))
		p.Wait.Backoff = []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second}
		s := remote(t)
		l := over(t, s, p)
		p.Wait.Backoff[0] = time.Hour // the limiter has its own
		take(t, l, "k", 5)
		s.takes.Store(0)
		start := time.Now()
		if _, err := l.Wait(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		wantTook(t, start, 14*time.Second, 0) // 2 + 4 + 8: the unit was there after 12
		if n := s.takes.Load(); n != 4 {
			t.Errorf("%d attempts, want one at once and three later", n)
		}
		start = time.Now()
		if _, err := l.Wait(t.Context(), "k", drawgate.Cost{N: 3}); err != nil {
			t.Fatal(err)
		}
		wantTook(t, start, 38*time.Second, 0) // 2 + 4 + 8 + 8 + 8 + 8: 34 are needed
	})
}

// TestHeldUnitsArePolled from 250 ms, doubling to 5 s, where nothing tells when they come back.
// req: A2
func TestHeldUnitsArePolled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := remote(t)
		l := over(t, s, policy(slots(1)))
		slot := drawgate.Cost{Unit: "slots", N: 1}
		res, err := l.Reserve(t.Context(), "k", time.Hour, slot)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := l.Reserve(t.Context(), "k", time.Hour, slot); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // it was refused
		s.takes.Store(0)
		at := time.Duration(0)
		for i, step := range []int{250, 500, 1000, 2000, 4000, 5000, 5000} {
			at += time.Duration(step) * time.Millisecond
			time.Sleep(at - time.Since(start) - 1)
			synctest.Wait()
			if n := s.takes.Load(); n != int64(i) {
				t.Fatalf("%d attempts before %v, want %d", n, at, i)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if n := s.takes.Load(); n != int64(i+1) {
				t.Fatalf("%d attempts at %v, want %d", n, at, i+1)
			}
		}
		// Another process gives it back: it is found at the next attempt.
		other := over(t, s.Store, policy(slots(1)))
		same, err := other.Resume(res.ID(), res.Grant(), res.Deadline(), other.Ask("k", slot))
		if err != nil {
			t.Fatal(err)
		}
		if err := same.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
		wantTook(t, start, at+5*time.Second, 0)
	})
}

// TestSettlementsWakeAtOnce: those of this process, and those that the store tells of. req: A4
func TestSettlementsWakeAtOnce(t *testing.T) {
	t.Parallel()
	slot := drawgate.Cost{Unit: "slots", N: 1}
	for name, setup := range map[string]func(t *testing.T) (waiting, holding *drawgate.Limiter){
		"the same limiter, no hints": func(t *testing.T) (_, _ *drawgate.Limiter) {
			t.Helper()
			l := over(t, remote(t), policy(slots(1)))
			return l, l
		},
		"another process, hints": func(t *testing.T) (_, _ *drawgate.Limiter) {
			t.Helper()
			s := memory(t)
			return over(t, s, policy(slots(1))), over(t, s, policy(slots(1)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				waiting, holding := setup(t)
				for i, end := range []func(*drawgate.Reservation) error{
					func(r *drawgate.Reservation) error { return r.Cancel(t.Context()) },
					func(r *drawgate.Reservation) error { return r.Settle(t.Context(), slot) },
				} {
					key := fmt.Sprint(i)
					res, err := holding.Reserve(t.Context(), key, time.Hour, slot)
					if err != nil {
						t.Fatal(err)
					}
					var wg sync.WaitGroup
					start := time.Now()
					wg.Go(func() {
						if _, err := waiting.Reserve(t.Context(), key, time.Hour, slot); err != nil {
							t.Error(err)
						}
					})
					time.Sleep(100 * time.Millisecond)
					if err := end(res); err != nil {
						t.Error(err)
					}
					wg.Wait()
					wantTook(t, start, 100*time.Millisecond, 0)
				}
			})
		})
	}
}

// TestResetWakesAtOnce, with and without the store's hint.
func TestResetWakesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := memory(t)
		silent := struct {
			drawgate.Store
			store.Resetter
		}{m, m}
		for _, s := range []drawgate.Store{m, silent} {
			l := over(t, s, drawgate.PerDay("day", 1))
			take(t, l, "k", 1)
			start, c := time.Now(), newCrowd(t, l)
			c.join(t.Context(), "x", requests(l, 1))
			if err := l.Reset(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			c.passed()
			wantTook(t, start, 0, 0)
			if err := l.Reset(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestFreedWhileAsking: units that come back between the question and the place in line are not
// overlooked.
func TestFreedWhileAsking(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := remote(t)
		l := over(t, s, policy(slots(1)))
		slot := drawgate.Cost{Unit: "slots", N: 1}
		res, err := l.Reserve(t.Context(), "k", time.Hour, slot)
		if err != nil {
			t.Fatal(err)
		}
		s.script(100 * time.Millisecond) // refused at 0, told at 100 ms
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := l.Reserve(t.Context(), "k", time.Hour, slot); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		s.script(0)
		if err := res.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
		wantTook(t, start, 100*time.Millisecond, 0)
	})
}

// TestHintsAreNotCountedAsAttempts: many small settlements do not make the waiting one slow.
func TestHintsAreNotCountedAsAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := remote(t)
		l, other := over(t, s, policy(slots(10))), over(t, s, policy(slots(10)))
		slot := func(n int64) drawgate.Cost { return drawgate.Cost{Unit: "slots", N: n} }
		var small []*drawgate.Reservation
		for range 9 {
			res, err := l.Reserve(t.Context(), "k", time.Hour, slot(1))
			if err != nil {
				t.Fatal(err)
			}
			small = append(small, res)
		}
		last, err := other.Reserve(t.Context(), "k", time.Hour, slot(1))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := l.Reserve(t.Context(), "k", time.Hour, slot(10)); err != nil {
				t.Error(err)
			}
		})
		for _, res := range small {
			time.Sleep(time.Millisecond)
			if err := res.Cancel(t.Context()); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(100 * time.Millisecond)
		if err := last.Cancel(t.Context()); err != nil { // no hint
			t.Error(err)
		}
		wg.Wait()
		wantTook(t, start, 250*time.Millisecond, 10*time.Millisecond)
	})
}

// TestJitterIsBounded by a small part of what one unit takes to come back. req: C3
func TestJitterIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			p    drawgate.Policy
			wait time.Duration
			most time.Duration
		}{
			{drawgate.PerMinute("minute", 1), time.Minute, 30 * time.Millisecond},
			{drawgate.PerMinute("minute", 60), time.Minute, 10 * time.Millisecond},
			{drawgate.PerDay("day", 1), 24 * time.Hour, time.Second},
			{drawgate.Rate("rate", 1, time.Second, 1), time.Second, 500 * time.Microsecond},
			{
				policy(drawgate.Limit{Name: "d", Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 1}), 0,
				time.Second,
			},
		} {
			l := local(t, c.p)
			late := map[time.Duration]bool{}
			for i := range 10 {
				key := fmt.Sprint(i)
				take(t, l, key, c.p.Limits[0].Amount)
				d, _ := l.Allow(t.Context(), key)
				if c.wait != 0 && d.RetryAfter != c.wait {
					t.Errorf("%s: retry after %v", c.p.Name, d.RetryAfter)
				}
				start := time.Now()
				if _, err := l.Wait(t.Context(), key); err != nil {
					t.Error(err)
				}
				// the store counts whole ones
				wantTook(t, start, d.RetryAfter-time.Microsecond, c.most+time.Microsecond)
				late[time.Since(start)-d.RetryAfter] = true
			}
			if len(late) < 5 {
				t.Errorf("%s: no jitter: %v", c.p.Name, late)
			}
		}
	})
}
