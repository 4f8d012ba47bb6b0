package drawgate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
)

// TestDeadlineThatCannotBeMet is an error at once. req: B1, C7
func TestDeadlineThatCannotBeMet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		l := local(t, policy(rolling(10, time.Minute)))
		held := with(t, l, drawgate.Policy{Name: "held", Limits: []drawgate.Limit{slots(1)}})
		within := func(d time.Duration) context.Context {
			c, cancel := context.WithTimeout(ctx, d)
			t.Cleanup(cancel)
			return c
		}
		start := time.Now()
		take(t, l, secret, 10)
		d, err := l.Wait(within(30*time.Second), secret)
		if _, ok := errors.AsType[*drawgate.LimitedError](err); !ok || d.RetryAfter != time.Minute {
			t.Errorf("%v does not say what refused, or when it fits: %v", err, d.RetryAfter)
		}
		wantErr(t, err, drawgate.ErrDeadline)
		_, err = l.Wait(within(time.Minute), secret) // at the very end is too late
		wantErr(t, err, drawgate.ErrDeadline)
		_, err = l.Reserve(within(30*time.Second), secret, time.Second)
		wantErr(t, err, drawgate.ErrDeadline)
		if strings.Contains(err.Error(), secret) {
			t.Error(err)
		}
		// Behind one who must wait that long as well.
		c := newCrowd(t, l)
		c.join(ctx, "first", requests(l, 1))
		c.join(ctx, "front", drawgate.Request{Buckets: []drawgate.Ask{l.Ask(secret)}})
		_, err = l.Wait(within(30*time.Second), secret)
		wantErr(t, err, drawgate.ErrDeadline)
		if !strings.Contains(err.Error(), "other callers are ahead in the queue for at least 1m0s") {
			t.Error(err)
		}
		wantTook(t, start, 0, 0)
		c.passed()

		// What is held may come back at any time.
		res, err := held.Reserve(ctx, "k", time.Hour, drawgate.Cost{Unit: "slots", N: 1})
		if err != nil {
			t.Fatal(err)
		}
		start = time.Now()
		var wg sync.WaitGroup
		for i := range 2 { // the second behind the first
			wg.Go(func() {
				_, err := held.Reserve(within(time.Duration(50+50*i)*time.Millisecond), "k", time.Hour,
					drawgate.Cost{Unit: "slots", N: 1})
				wantErr(t, err, context.DeadlineExceeded)
			})
			synctest.Wait()
		}
		wg.Wait()
		wantTook(t, start, 100*time.Millisecond, 0)
		// But not what was used beside it: even with the held ones back, 6 of 10 do not fit before
		// the 5 are over.
		take(t, l, "mixed", 5)
		if _, err := l.Reserve(ctx, "mixed", time.Hour, drawgate.Cost{N: 5}); err != nil {
			t.Fatal(err)
		}
		_, err = l.Wait(within(59*time.Second), "mixed", drawgate.Cost{N: 6})
		wantErr(t, err, drawgate.ErrDeadline)
		if err := res.Cancel(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestDeadlineIsMet if it lies after the instant at which the take fits, however little: no jitter
// carries it over. req: B1
func TestDeadlineIsMet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, drawgate.PerDay("day", 1))
		for i := range 20 {
			key := fmt.Sprint(i)
			take(t, l, key, 1)
			ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour+time.Millisecond)
			if _, err := l.Wait(ctx, key); err != nil {
				t.Errorf("%v", err)
			}
			cancel()
		}
	})
}

// TestDeadlineLaterOutOfReach: held units that are used after all end the waiting of those who
// hoped for them. req: B1
func TestDeadlineLaterOutOfReach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := rolling(10, time.Minute)
		limit.Charge = drawgate.ChargeEnd
		l := local(t, policy(limit))
		res, err := l.Reserve(t.Context(), "k", time.Hour, drawgate.Cost{N: 10})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		start, c := time.Now(), newCrowd(t, l)
		c.join(ctx, "x", requests(l, 1))
		time.Sleep(time.Second)
		if err := res.Settle(t.Context()); err != nil {
			t.Error(err)
		}
		c.Wait()
		wantErr(t, c.errs["x"], drawgate.ErrDeadline)
		wantTook(t, start, time.Second, 0)
	})
}

// TestDeadlineIsNamedOnce: the message does not say the same twice if the context's cause is
// ErrDeadline itself. req: B1, C7
func TestDeadlineIsNamedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, policy(rolling(10, time.Minute)))
		if _, err := l.Reserve(t.Context(), "k", time.Hour, drawgate.Cost{N: 10}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, drawgate.ErrDeadline)
		defer cancel()
		<-ctx.Done()
		_, err := l.Wait(ctx, "k")
		wantErr(t, err, drawgate.ErrDeadline)
		if want := "drawgate: the deadline cannot be met: it has passed"; err == nil ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}

// TestNewFrontIsUnknown: while the next one asks, nobody is told what was true of the one before.
// req: B1
func TestNewFrontIsUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := remote(t)
		l := over(t, s, drawgate.PerHour("hour", 10))
		take(t, l, "k", 7)
		ctx, cancel := context.WithCancel(t.Context())
		c := newCrowd(t, l)
		c.join(ctx, "big", requests(l, 10))
		c.join(t.Context(), "small", requests(l, 1))
		s.script(100 * time.Millisecond)
		cancel()
		synctest.Wait() // small asks
		short, end := context.WithTimeout(t.Context(), 5*time.Second)
		defer end()
		c.join(short, "late", requests(l, 1))
		if d, err := l.Allow(t.Context(), "k"); err != nil || d.Reason != drawgate.Queued ||
			d.RetryAfter > time.Second {
			t.Errorf("%v, %v, retry after %v", err, d.Reason, d.RetryAfter)
		}
		if d, err := l.Allow(ctx, "k"); !errors.Is(err, context.Canceled) || d.Buckets() != 0 {
			t.Errorf("the caller has left: %v, %v", err, d.Reason)
		}
		c.Wait()
		if c.errs["small"] != nil || c.errs["late"] != nil {
			t.Error(c.errs)
		}
	})
}

// TestUpTo bounds waiting where the caller does not. req: B5
func TestUpTo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy(slots(1))
		p.Wait.MaxWait = 5 * time.Second
		s := remote(t)
		l := over(t, s, p)
		slot := drawgate.Cost{Unit: "slots", N: 1}
		if _, err := l.Reserve(t.Context(), "k", time.Minute, slot); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err := l.Reserve(t.Context(), "k", time.Minute, slot)
		wantErr(t, err, drawgate.ErrDeadline)
		wantErr(t, err, drawgate.ErrLimited)
		if !strings.Contains(err.Error(), "waited 5s, the most that the policy allows") {
			t.Error(err)
		}
		wantTook(t, start, 5*time.Second, 0)
		start = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = l.Reserve(ctx, "k", time.Minute, slot)
		wantErr(t, err, context.DeadlineExceeded) // the caller's own deadline was earlier
		wantTook(t, start, time.Second, 0)
		// A store that does not answer makes it no later.
		start = time.Now()
		s.script(0, stalls, stalls, stalls, stalls, stalls)
		_, err = l.Reserve(t.Context(), "k", time.Minute, slot)
		wantErr(t, err, drawgate.ErrStoreUnavailable)
		wantTook(t, start, 5*time.Second, 0)

		p = drawgate.PerMinute("minute", 1)
		p.Wait.MaxWait = 5 * time.Second
		short := local(t, p)
		long := with(t, short, drawgate.Policy{Name: "long", Limits: []drawgate.Limit{rolling(1, time.Minute)}})
		take(t, short, "k", 1)
		start = time.Now()
		_, _, err = long.Take(t.Context(), drawgate.Request{
			Buckets: []drawgate.Ask{long.Ask("k"), short.Ask("k")},
			Wait:    true,
		})
		wantErr(t, err, drawgate.ErrDeadline) // the shortest bound of all policies counts
		wantTook(t, start, 0, 0)
	})
}

// TestDeadlineBehindOthers: who stands behind others is refused when it is known that those before
// it take too long: at once, or once the first of the line has been refused. req: B1, C7
func TestDeadlineBehindOthers(t *testing.T) {
	t.Parallel()
	for _, slow := range []bool{false, true} { // all of them ask the store before anybody waits
		synctest.Test(t, func(t *testing.T) {
			s := remote(t)
			l := over(t, s, policy(leaky(10, time.Minute, 1)))
			take(t, l, "k", 1)
			if slow {
				s.script(time.Second)
			}
			c := newCrowd(t, l)
			start := time.Now()
			ended := make(chan time.Duration, 3)
			for range 3 {
				c.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					_, err := l.Wait(ctx, "k")
					if err != nil && !strings.Contains(err.Error(),
						"other callers are ahead in the queue for at least 1") {
						t.Error(err)
					}
					ended <- time.Since(start)
				})
			}
			for range 2 {
				if d := <-ended; d > time.Second {
					t.Errorf("slow %v: refused after %v, which was known at once", slow, d)
				}
			}
			if d := <-ended; d < 5*time.Second {
				t.Errorf("slow %v: the first was answered after %v", slow, d)
			}
			c.Wait()
		})
	}
}

// TestDeadlineBehindOthersIsNoGuess: nobody is refused because of those before it who would have
// passed in time if these had all stayed. req: B1
func TestDeadlineBehindOthersIsNoGuess(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		limit := leaky(10, time.Minute, r.Int64N(10)+5)
		if seed%2 == 0 {
			limit = rolling(10, time.Minute)
		}
		if seed%4 > 1 {
			limit.ReservedByPriority = map[int]drawgate.Share{3: {Units: 2}}
		}
		type caller struct {
			at   time.Duration
			r    drawgate.Request
			last time.Duration
		}
		callers := make([]caller, 12)
		for i := range callers {
			c := &callers[i]
			c.at, c.last = time.Duration(r.IntN(60))*time.Second,
				time.Duration(r.IntN(180)+1)*time.Second+time.Millisecond
			c.r = drawgate.Request{Priority: r.IntN(5), Wait: true}
			c.r.Buckets = []drawgate.Ask{{Key: "k", Costs: []drawgate.Cost{{N: 1 + r.Int64N(3)}}}}
			if r.IntN(4) == 0 {
				c.r.Hold = drawgate.Hold{For: time.Hour}
			}
		}
		run := func(forever bool) []time.Duration { // how long each waited; -1: it was refused
			out := make([]time.Duration, len(callers))
			synctest.Test(t, func(t *testing.T) {
				l := local(t, policy(limit))
				var all sync.WaitGroup
				for i, c := range callers {
					all.Go(func() {
						time.Sleep(c.at + time.Duration(i)*time.Microsecond)
						ctx, cancel := context.WithCancel(t.Context())
						if !forever {
							ctx, cancel = context.WithTimeout(t.Context(), c.last)
						}
						defer cancel()
						start := time.Now()
						if _, _, err := l.Take(ctx, c.r); err != nil {
							wantErr(t, err, drawgate.ErrDeadline)
							out[i] = -1
							return
						}
						out[i] = time.Since(start)
					})
				}
				all.Wait()
			})
			return out
		}
		want, got := run(true), run(false)
		for i := range want {
			if got[i] < 0 && want[i]+time.Second < callers[i].last {
				t.Errorf("seed %d: caller %d was refused, and would have waited %v of %v", seed, i, want[i],
					callers[i].last)
			}
		}
	}
}

// TestDeadlineBehindANewFront: who was woken because it is too late, and comes to look only when
// the one in front has left, is refused as soon as the next one in front knows. req: B1
func TestDeadlineBehindANewFront(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := remote(t)
		l := over(t, s, policy(leaky(10, time.Minute, 1)))
		take(t, l, "k", 1) // others fit at 6, 12 and 18 s
		c := newCrowd(t, l)
		first, leave := context.WithCancel(t.Context())
		second, leaveToo := context.WithCancel(t.Context())
		c.join(first, "first", requests(l, 1))
		c.join(second, "second", requests(l, 1))
		c.join(t.Context(), "third", requests(l, 1))
		s.script(time.Second)
		leave()
		synctest.Wait() // the second asks, so that nothing is known
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		start, refused := time.Now(), time.Duration(0)
		slow := drawgate.WithProgress(ctx, func(drawgate.Progress) { time.Sleep(1500 * time.Millisecond) })
		c.Go(func() {
			_, err := l.Wait(slow, "k")
			refused = time.Since(start)
			wantErr(t, err, drawgate.ErrDeadline)
		})
		time.Sleep(1200 * time.Millisecond) // the second knows since 1 s
		leaveToo()
		c.Wait()
		if want := 2200 * time.Millisecond; refused != want {
			t.Errorf("refused after %v, want %v, when the third was told", refused, want)
		}
	})
}

// TestDeadlineBehindThoseWhoLeave: whoever is behind one that cannot pass in time, and so leaves,
// is not refused because of its units. req: B1
func TestDeadlineBehindThoseWhoLeave(t *testing.T) {
	t.Parallel()
	for range 20 { // they leave in any order
		synctest.Test(t, func(t *testing.T) {
			s := remote(t)
			l := over(t, s, policy(leaky(10, time.Minute, 10)))
			take(t, l, "k", 10)
			ctx, cancel := context.WithCancel(t.Context())
			within := func(d time.Duration) context.Context {
				c, cancel := context.WithTimeout(t.Context(), d)
				t.Cleanup(cancel)
				return c
			}
			c := newCrowd(t, l)
			c.join(ctx, "was in front", requests(l, 1))
			c.join(t.Context(), "first", requests(l, 1))
			s.script(100 * time.Millisecond)
			cancel()
			synctest.Wait() // the first asks
			c.join(within(10*time.Second), "too much", requests(l, 10))
			for i := range 3 { // at 12, 18 and 24 s
				c.join(within(30*time.Second), fmt.Sprint("behind ", i), requests(l, 1))
			}
			c.Wait()
			wantErr(t, c.errs["too much"], drawgate.ErrDeadline)
			for i := range 3 {
				if err := c.errs[fmt.Sprint("behind ", i)]; err != nil {
					t.Errorf("%d: %v", i, err)
				}
			}
		})
	}
}

// TestDeadlineBehindOthersWithLess: whoever needs less of the limit than it asks for, or may use
// more or less of it than others, is not refused although it passes in time. req: B1
func TestDeadlineBehindOthersWithLess(t *testing.T) {
	t.Parallel()
	minute := func(amount int64) drawgate.Policy { return policy(rolling(amount, time.Minute)) }
	kept := leaky(10, time.Minute, 10)
	kept.Name, kept.Unit, kept.ReservedByPriority = "tokens", "tokens", map[int]drawgate.Share{5: {Units: 5}}
	many := leaky(1000, time.Minute, 1000)
	many.Name = "requests"
	both := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{many, kept}}
	for _, c := range []struct {
		name   string
		policy drawgate.Policy
		used   int64
		unit   string
		others func(l, large *drawgate.Limiter) []drawgate.Request
		last   func(l *drawgate.Limiter) drawgate.Request
		within time.Duration
	}{
		{"a lease may be granted in part", minute(10), 10, "", func(l, _ *drawgate.Limiter) []drawgate.Request {
			return []drawgate.Request{requests(l, 5)}
		}, func(l *drawgate.Limiter) drawgate.Request {
			r := requests(l, 10)
			r.Hold = drawgate.Hold{For: time.Hour, Lease: true}
			return r
		}, 70 * time.Second},
		{"others have a larger amount", minute(10), 100, "", func(l, large *drawgate.Limiter) []drawgate.Request {
			return []drawgate.Request{requests(l, 10), requests(large, 30)}
		}, func(l *drawgate.Limiter) drawgate.Request { return requests(l, 1) }, 130 * time.Second},
		{"it needs none of it", both, 10, "tokens", func(l, _ *drawgate.Limiter) []drawgate.Request {
			return []drawgate.Request{{Priority: 9, Buckets: []drawgate.Ask{l.Ask("k",
				drawgate.Cost{Unit: "tokens", N: 5})}}}
		}, func(l *drawgate.Limiter) drawgate.Request { return requests(l, 1) }, 35 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := local(t, c.policy)
			large := l
			if c.used > 10 {
				large = with(t, l, minute(c.used))
			}
			use := drawgate.Request{Priority: 9, Buckets: []drawgate.Ask{large.Ask("k",
				drawgate.Cost{Unit: c.unit, N: c.used})}}
			if d, _, err := l.Take(t.Context(), use); err != nil || !d.Allowed {
				t.Fatal(d.Allowed, err)
			}
			crowd := newCrowd(t, l)
			for i, r := range c.others(l, large) {
				crowd.join(t.Context(), fmt.Sprint("other ", i), r)
			}
			ctx, cancel := context.WithTimeout(t.Context(), c.within)
			defer cancel()
			crowd.join(ctx, "last", c.last(l))
			crowd.Wait()
			if err := crowd.errs["last"]; err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		})
	}
}
