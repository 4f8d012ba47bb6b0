package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
)

// TestPeers16RaisedLimitsCountAtOnce: nothing remembers that a key was over its limit.
func TestPeers16RaisedLimitsCountAtOnce(t *testing.T) {
	t.Parallel()
	c := engine.Config{Policies: policies(perDay("p", 2)), Rules: []rules.Rule{by("r", "p", "user")}}
	e := newEngine(t, c, nil)
	for _, amount := range []int64{2, 5, 3, 9} {
		c.Policies = policies(perDay("p", amount))
		if err := e.Replace(c); err != nil {
			t.Fatal(err)
		}
		before := max(0, amount-used(t, e))
		if got := admitted(t, e, from("u"), 12); int64(got) != before {
			t.Errorf("raised to %d: %d more admitted, want %d", amount, got, before)
		}
	}
	p := perDay("p", 9)
	p.Overrides = []engine.Override{{Key: "u", Amounts: map[string]int64{"day": 11}}}
	c.Policies = policies(p)
	if err := e.Replace(c); err != nil {
		t.Fatal(err)
	}
	if got := admitted(t, e, from("u"), 12); got != 2 {
		t.Errorf("by an override: %d more admitted, want 2", got)
	}
	r := from("u")
	r.Hold = time.Minute
	if res := take(t, e, r); res.Decision.Allowed {
		t.Error("over the limit")
	}
}

func used(t *testing.T, e *engine.Engine) int64 {
	t.Helper()
	a, err := e.Ask("p", "", "u")
	if err != nil {
		t.Fatal(err)
	}
	s, err := a.Status(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return s.States[0].Used
}

// TestBurstsAdapt: a bucket's burst is set at run time, by a Replace or by the hour, and what is
// used stays used.
// req: E11.
func TestBurstsAdapt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // begins on 2000-01-01T00:00:00Z
		night := by("night", "p", "user")
		night.Schedule = &rules.Schedule{From: 22 * time.Hour, To: 6 * time.Hour}
		night.Apply[0].Amounts = map[string]int64{"minute.burst": 8}
		c := engine.Config{
			Policies: policies(tokenBucket("p", 1, 4)),
			Rules:    []rules.Rule{night, by("day", "p", "user")},
		}
		e := newEngine(t, c, nil)
		if got := admitted(t, e, from("u"), 20); got != 8 {
			t.Errorf("at night %d at once, want 8", got)
		}
		time.Sleep(6*time.Hour - time.Minute)
		if got := admitted(t, e, from("u"), 20); got != 8 {
			t.Errorf("rested, at night %d at once, want 8", got)
		}
		time.Sleep(time.Minute)
		if got := admitted(t, e, from("u"), 20); got != 0 {
			t.Errorf("in the morning %d at once, want none: 7 are used", got)
		}
		c.Policies[0].Limits[0].Burst = 9
		if err := e.Replace(c); err != nil {
			t.Fatal(err)
		}
		if got := admitted(t, e, from("u"), 20); got != 2 {
			t.Errorf("with a burst of 9, %d more, want 2", got)
		}
	})
}

// TestBrokenConfigurationsChangeNothing: the old one stays in force, all of it.
func TestBrokenConfigurationsChangeNothing(t *testing.T) {
	t.Parallel()
	c := engine.Config{Policies: policies(perDay("p", 2)), Rules: []rules.Rule{by("r", "p", "user")}}
	e := newEngine(t, c, nil)
	take(t, e, from("u"))
	broken := engine.Config{
		Policies: policies(perDay("p", 9), perDay("q", 9)),
		Rules:    []rules.Rule{by("r", "q", "user", "nope", "user")},
	}
	if err := e.Replace(broken); err == nil {
		t.Fatal("no error")
	}
	if got := admitted(t, e, from("u"), 5); got != 1 || e.Limiter("q") != nil || e.Limiter("p") == nil ||
		len(e.Config().Policies) != 1 {
		t.Errorf("%d more admitted, want 1", got)
	}
}

// TestWaitersKeepTheirPlace: a Replace while callers wait lets them in, in their order.
func TestWaitersKeepTheirPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := engine.Config{Policies: policies(tokenBucket("p", 60, 1)), Rules: []rules.Rule{by("r", "p", "user")}}
		e := newEngine(t, c, nil)
		take(t, e, from("u"))
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				r := from("u")
				r.Wait = true
				res, err := e.Take(t.Context(), r)
				if err != nil || !res.Decision.Allowed {
					t.Errorf("waiter %d: %v", i, err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			})
			synctest.Wait()
			if i == 2 {
				if err := e.Replace(c); err != nil {
					t.Error(err)
				}
			}
		}
		if n, _ := e.Waiting(); n != 6 {
			t.Errorf("%d wait, want 6", n)
		}
		wg.Wait()
		if fmt.Sprint(order) != "[0 1 2 3 4 5]" {
			t.Errorf("served in the order %v", order)
		}
	})
}

// TestReplacingUnderLoadLosesNoCount: exactly as many are admitted as the limit says, while the
// configuration is replaced again and again.
func TestReplacingUnderLoadLosesNoCount(t *testing.T) {
	t.Parallel()
	const amount = 500
	calendar := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{{
		Name: "month", Kind: drawgate.Rolling,
		Window: 30 * 24 * time.Hour, Amount: amount, Precision: drawgate.Exact,
	}}}
	config := func(i int) engine.Config {
		p := engine.Policy{Policy: calendar}
		p.Limits = append([]drawgate.Limit(nil), p.Limits...)
		if i%3 == 1 {
			p.Overrides = []engine.Override{{Key: "glob*", Amounts: map[string]int64{"month": amount}}}
		}
		r := by("r", "p", `"global"`)
		if i%2 == 1 {
			r.Apply[0].Amounts, p.Limits[0].Amount = map[string]int64{"month": amount}, amount+int64(i%7)
		}
		other := perDay(fmt.Sprint("other", i%5), 1_000_000)
		return engine.Config{Policies: policies(other, p), Rules: []rules.Rule{by("o", other.Name, "user"), r}}
	}
	e := newEngine(t, config(0), nil)
	ctx, stop := context.WithCancel(t.Context())
	var replacing, taking sync.WaitGroup
	replaced := 0
	replacing.Go(func() {
		for ctx.Err() == nil {
			replaced++
			if err := e.Replace(config(replaced)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var allowed atomic.Int64
	for g := range 6 {
		taking.Go(func() {
			var res engine.Result
			r := from(fmt.Sprint("u", g))
			if g == 0 {
				r.Hold = time.Hour
			}
			for range 400 {
				if err := e.TakeInto(t.Context(), r, &res); err != nil {
					t.Error(err)
					return
				}
				if res.Decision.Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	taking.Wait()
	stop()
	replacing.Wait()
	if got := allowed.Load(); got != amount {
		t.Errorf("%d admitted, want exactly %d, over %d replacements", got, amount, replaced)
	}
}

// TestPeers16RaisedLimitsLetWaitersIn, in their order, and nobody is kept behind them by what was
// in force before.
func TestPeers16RaisedLimitsLetWaitersIn(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]time.Duration{"plain": 0, "held": time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				strict := by("r", "p", "user")
				strict.Apply[0].Amounts = map[string]int64{"day": 1}
				c := engine.Config{Policies: policies(perDay("p", 9)), Rules: []rules.Rule{strict}}
				e := newEngine(t, c, nil)
				take(t, e, from("u"))
				start, done := time.Now(), make(chan int, 3)
				for i := range 3 {
					go func() {
						r := from("u")
						r.Wait, r.Hold = true, hold
						if res, err := e.Take(t.Context(), r); err != nil || !res.Decision.Allowed ||
							(res.Reservation != nil) != (hold > 0) {
							t.Errorf("waiter %d: %v", i, err)
						}
						done <- i
					}()
					synctest.Wait()
				}
				if take(t, e, from("u")).Decision.Reason != drawgate.Queued {
					t.Error("nobody waits")
				}
				for _, step := range []struct {
					amount int64
					served []int // who are served at the same instant may say so in any order
				}{{2, []int{0}}, {4, []int{1, 2}}} {
					c.Rules[0].Apply[0].Amounts = map[string]int64{"day": step.amount}
					if err := e.Replace(c); err != nil {
						t.Fatal(err)
					}
					var got []int
					for range step.served {
						got = append(got, <-done)
					}
					if slices.Sort(got); !slices.Equal(got, step.served) {
						t.Errorf("raised to %d: waiters %v were served, want %v", step.amount, got, step.served)
					}
				}
				if took := time.Since(start); took > time.Second {
					t.Errorf("served after %v", took)
				}
				if res := take(t, e, from("u")); res.Decision.Allowed || res.Decision.Reason != drawgate.Limited {
					t.Errorf("all 4 are used: %+v", res.Decision.Reason)
				}
			})
		})
	}
}
