package drawgate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
)

// crowd starts waiters one after the other, each in its place before the next, and notes in which order they pass.
type crowd struct {
	t *testing.T
	l *drawgate.Limiter
	sync.WaitGroup
	mu    sync.Mutex
	order []string
	errs  map[string]error
}

func newCrowd(t *testing.T, l *drawgate.Limiter) *crowd {
	t.Helper()
	return &crowd{t: t, l: l, errs: map[string]error{}}
}

// join lets somebody wait, and returns when it does.
func (c *crowd) join(ctx context.Context, name string, r drawgate.Request) {
	r.Wait = true
	c.Go(func() {
		_, err := c.l.Take(ctx, r)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.errs[name] = err; err == nil {
			c.order = append(c.order, name)
		}
	})
	synctest.Wait()
}

// soFar returns who has passed.
func (c *crowd) soFar() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.order)
}

// passed waits until all have passed, and returns their order.
func (c *crowd) passed() string {
	c.t.Helper()
	c.Wait()
	for name, err := range c.errs {
		if err != nil {
			c.t.Errorf("%s: %v", name, err)
		}
	}
	return strings.Join(c.order, " ")
}

func requests(l *drawgate.Limiter, n int64) drawgate.Request {
	return drawgate.Request{Buckets: []drawgate.Ask{l.Ask("k", drawgate.Cost{N: n})}}
}

func urgent(l *drawgate.Limiter, priority int) drawgate.Request {
	r := requests(l, 1)
	r.Priority = priority
	return r
}

// TestFirstComeFirstServed within a priority. req: B1
func TestFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, drawgate.Rate(1, time.Second, 1))
		take(t, l, "k", 1)
		c := newCrowd(t, l)
		var want []string
		for i := range 50 {
			want = append(want, fmt.Sprint(i))
			c.join(t.Context(), want[i], requests(l, 1))
		}
		if got := c.passed(); got != strings.Join(want, " ") {
			t.Errorf("order %v", got)
		}
	})
}

// TestHigherPriorityFirst, and nobody is overtaken for ever. req: B6
func TestHigherPriorityFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, drawgate.Rate(1, time.Second, 1))
		take(t, l, "k", 1)
		c := newCrowd(t, l)
		for i, p := range []int{0, 3, 9, 3, 0, 9} {
			c.join(t.Context(), fmt.Sprint(p, ".", i), urgent(l, p))
		}
		if got, want := c.passed(), "9.2 9.5 3.1 3.3 0.0 0.4"; got != want {
			t.Errorf("order %q, want %q", got, want)
		}

		// Two of priority 9 arrive for each one that passes: without aging priority 0 would never pass.
		start, c := time.Now(), newCrowd(t, l)
		c.join(t.Context(), "old", urgent(l, 0))
		ctx, cancel := context.WithCancel(t.Context())
		for i := 0; !slices.Contains(c.soFar(), "old") && i < 1000; i++ {
			c.join(ctx, fmt.Sprint(i), urgent(l, 9))
			time.Sleep(500 * time.Millisecond)
		}
		cancel()
		c.Wait()
		// 90 s, in which 180 came who may pass in front.
		wantTook(t, start, 90*time.Second, 92*time.Second)
	})
}

// TestBigTakeIsNotStarved by small ones that would fit. req: C5
func TestBigTakeIsNotStarved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, drawgate.Rate(10, 10*time.Second, 10))
		take(t, l, "k", 10)
		start, c := time.Now(), newCrowd(t, l)
		c.join(t.Context(), "big", requests(l, 10))
		for i := range 20 {
			c.join(t.Context(), fmt.Sprint(i), requests(l, 1))
		}
		for range 9 { // those who do not wait do not pass either
			time.Sleep(time.Second)
			if d, err := l.Allow(t.Context(), "k"); err != nil || d.Allowed {
				t.Fatal("a small take passed", err)
			}
		}
		for len(c.soFar()) == 0 {
			time.Sleep(time.Millisecond)
		}
		wantTook(t, start, 10*time.Second, 20*time.Millisecond)
		if got := c.passed(); !strings.HasPrefix(got, "big 0 1 2") {
			t.Errorf("order %q", got)
		}
	})
}

// TestAllowBehindWaiters is refused, until the one in front tries again; unless it is more urgent, or its policy says barge. req: B7
func TestAllowBehindWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, drawgate.Rate(10, 10*time.Second, 10))
		p := l.Plan().Policy()
		p.Wait.Barge = true
		barge := with(t, l, p)
		other := with(t, l, drawgate.PerMinute(100))
		take(t, l, "k", 7)
		c := newCrowd(t, l)
		c.join(t.Context(), "big", requests(l, 10))
		time.Sleep(2 * time.Second)
		d, err := l.Allow(t.Context(), "k")
		if err != nil || d.Allowed || d.Reason != drawgate.Queued || d.RetryAfter < 5*time.Second || d.RetryAfter > 5010*time.Millisecond {
			t.Errorf("%v: allowed %v, %v, retry after %v", err, d.Allowed, d.Reason, d.RetryAfter)
		}
		e, ok := errors.AsType[*drawgate.LimitedError](d.Err())
		if !ok || !e.Queued || e.Policy != "rate" || e.Error() != fmt.Sprintf(`drawgate: rate limit exceeded: others are waiting for policy "rate"; retry after %v`, d.RetryAfter) {
			t.Errorf("%v", d.Err())
		}
		// A take of several buckets says which one it is.
		d, err = l.Take(t.Context(), drawgate.Request{Buckets: []drawgate.Ask{other.Ask("k"), l.Ask("k")}})
		if r, ok := d.Tightest(); err != nil || d.Reason != drawgate.Queued || !ok || r.Bucket != 1 || r.Policy != "rate" || r.Remaining != 0 {
			t.Errorf("%v, %v, %+v", err, d.Reason, r)
		}
		// Barging into one line does not open another.
		d, err = l.Take(t.Context(), drawgate.Request{Buckets: []drawgate.Ask{barge.Ask("other"), l.Ask("k")}})
		if err != nil || d.Allowed {
			t.Errorf("%v, allowed %v", err, d.Allowed)
		}
		if d, err := l.Take(t.Context(), urgent(l, 1)); err != nil || !d.Allowed {
			t.Errorf("more urgent: %v, %v", d.Err(), err)
		}
		take(t, barge, "k", 1)
		take(t, l, "k2", 1)
		if _, err := l.Reserve(t.Context(), "k2", time.Second); err != nil {
			t.Error(err)
		}
		_, err = l.ReserveRequest(t.Context(), drawgate.Request{Buckets: []drawgate.Ask{l.Ask("k")}, Hold: time.Second, NoWait: true})
		wantErr(t, err, drawgate.ErrLimited)
		c.passed()
		time.Sleep(time.Second)
		take(t, l, "k", 1)
	})
}

// TestSeveralBucketsWait: who waits for one bucket does not keep others from another that it does not need to wait for. req: B4
func TestSeveralBucketsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := local(t, drawgate.Policy{Name: "api", Limits: []drawgate.Limit{leaky(1, time.Second, 1)}})
		ip := with(t, api, drawgate.Policy{Name: "ip", Limits: []drawgate.Limit{rolling(1, time.Hour)}})
		from := func(who string) drawgate.Request {
			return drawgate.Request{Buckets: []drawgate.Ask{ip.Ask(who), api.Ask("all")}}
		}
		take(t, api, "all", 1)
		start, c := time.Now(), newCrowd(t, api)
		// The second of a may only go after an hour. It learns that when its turn has come for everybody's bucket.
		for _, who := range []string{"a", "a", "b", "c"} {
			c.join(t.Context(), who, from(who))
		}
		time.Sleep(3100 * time.Millisecond)
		if got := strings.Join(c.soFar(), " "); got != "a b c" {
			t.Fatalf("after three seconds %q have passed", got)
		}
		time.Sleep(time.Second)
		take(t, api, "all", 1) // nobody waits there
		if d, _ := ip.Allow(t.Context(), "a"); d.Reason != drawgate.Queued {
			t.Errorf("but it waits for its own bucket: %v", d.Reason)
		}
		c.passed()
		wantTook(t, start, time.Hour, time.Hour/1000)
	})
}

// TestNoWayRound: a line is not passed by way of another bucket's line. req: B6
func TestNoWayRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := local(t, drawgate.Policy{Name: "a", Limits: []drawgate.Limit{leaky(10, 10*time.Second, 10)}})
		b := with(t, a, drawgate.Policy{Name: "b", Limits: []drawgate.Limit{leaky(10, 10*time.Second, 10)}})
		both := drawgate.Request{Buckets: []drawgate.Ask{a.Ask("k"), b.Ask("k")}}
		take(t, a, "k", 10)
		take(t, b, "k", 10)
		c := newCrowd(t, a)
		c.join(t.Context(), "a", drawgate.Request{Buckets: []drawgate.Ask{a.Ask("k", drawgate.Cost{N: 5})}})
		for i := range 5 { // these wait behind a, for a
			c.join(t.Context(), fmt.Sprint(i), both)
		}
		c.join(t.Context(), "urgent", drawgate.Request{Buckets: []drawgate.Ask{b.Ask("k", drawgate.Cost{N: 10})}, Priority: 1})
		c.join(t.Context(), "last", drawgate.Request{Buckets: []drawgate.Ask{b.Ask("k", drawgate.Cost{N: 10})}})
		if got, want := c.passed(), "a urgent 0 1 2 3 4 last"; got != want {
			t.Errorf("order %q, want %q", got, want)
		}
	})
}

// TestManyLines: takes of random buckets that arrive at the same instant all pass, in bounded time, and leave nothing behind.
func TestManyLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := local(t, drawgate.Policy{Name: "0", Limits: []drawgate.Limit{leaky(1, time.Second, 3)}})
		all := []*drawgate.Limiter{first}
		for i := range 3 {
			all = append(all, with(t, first, drawgate.Policy{Name: fmt.Sprint(i + 1), Limits: []drawgate.Limit{leaky(1, time.Second, 3)}}))
		}
		start, c := time.Now(), newCrowd(t, first)
		const waiters = 100
		for i := range waiters {
			r := drawgate.Request{Wait: true, Priority: i % 3}
			for k := range all {
				if o := all[(k+i)%len(all)]; i%15 == 0 || (i>>k)&1 == 1 {
					r.Buckets = append(r.Buckets, o.Ask("k", drawgate.Cost{N: int64(1 + (i+k)%3)}))
				}
			}
			if len(r.Buckets) == 0 {
				r.Buckets = append(r.Buckets, first.Ask("k"))
			}
			c.Go(func() {
				if _, err := first.Take(t.Context(), r); err != nil {
					t.Error(err)
				}
			})
		}
		c.Wait()
		// About 55 of them want a bucket, two units each, one unit comes per second: more if one waits for two buckets in turn.
		wantTook(t, start, 100*time.Second, 200*time.Second)
		for _, l := range all {
			time.Sleep(3 * time.Second)
			take(t, l, "k", 3)
		}
	})
}

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
		if !strings.Contains(err.Error(), "others wait in front, for 1m0s at least") {
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
				_, err := held.Reserve(within(time.Duration(50+50*i)*time.Millisecond), "k", time.Hour, drawgate.Cost{Unit: "slots", N: 1})
				wantErr(t, err, context.DeadlineExceeded)
			})
			synctest.Wait()
		}
		wg.Wait()
		wantTook(t, start, 100*time.Millisecond, 0)
		// But not what was used beside it: even with the held ones back, 6 of 10 do not fit before the 5 are over.
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

// TestDeadlineIsMet if it lies after the instant at which the take fits, however little: no jitter carries it over. req: B1
func TestDeadlineIsMet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, drawgate.PerDay(1))
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

// TestDeadlineLaterOutOfReach: held units that are used after all end the waiting of those who hoped for them. req: B1
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

// TestNewFrontIsUnknown: while the next one asks, nobody is told what was true of the one before. req: B1
func TestNewFrontIsUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := remote(t)
		l := over(t, s, drawgate.PerHour(10))
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
		if d, err := l.Allow(t.Context(), "k"); err != nil || d.Reason != drawgate.Queued || d.RetryAfter > time.Second {
			t.Errorf("%v, %v, retry after %v", err, d.Reason, d.RetryAfter)
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
		p.Wait.UpTo = 5 * time.Second
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
		wantErr(t, err, drawgate.ErrStoreAway)
		wantTook(t, start, 5*time.Second, 0)

		p = drawgate.PerMinute(1)
		p.Wait.UpTo = 5 * time.Second
		short := local(t, p)
		long := with(t, short, drawgate.Policy{Name: "long", Limits: []drawgate.Limit{rolling(1, time.Minute)}})
		take(t, short, "k", 1)
		start = time.Now()
		_, err = long.Take(t.Context(), drawgate.Request{Buckets: []drawgate.Ask{long.Ask("k"), short.Ask("k")}, Wait: true})
		wantErr(t, err, drawgate.ErrDeadline) // the shortest bound of all policies counts
		wantTook(t, start, 0, 0)
	})
}

// TestQueueIsBounded. req: B6
func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := drawgate.Rate(1, time.Second, 1)
		p.Wait.Queue = 3
		l := local(t, p)
		take(t, l, secret, 1)
		ask := drawgate.Request{Buckets: []drawgate.Ask{l.Ask(secret)}}
		c := newCrowd(t, l)
		for i := range 3 {
			c.join(t.Context(), fmt.Sprint(i), ask)
		}
		start := time.Now()
		_, err := l.Wait(t.Context(), secret)
		wantErr(t, err, drawgate.ErrQueueFull)
		if want := `drawgate: the queue is full: 3 callers wait for this bucket of policy "rate"`; err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		wantTook(t, start, 0, 0)
		take(t, l, "other", 1)
		time.Sleep(1100 * time.Millisecond)
		c.join(t.Context(), "3", ask) // one has left
		if got := c.passed(); got != "0 1 2 3" {
			t.Errorf("order %q", got)
		}
	})
}

// TestCancelledWaiterLeavesNothing: its place is free at once, whoever it kept waiting goes on, and no goroutine is left. req: C5
func TestCancelledWaiterLeavesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := drawgate.Rate(10, 10*time.Second, 10)
		p.Wait.Queue = 2
		l := local(t, p)
		take(t, l, "k", 9)
		ctx, cancel := context.WithCancel(t.Context())
		c := newCrowd(t, l)
		c.join(ctx, "big", requests(l, 10))
		c.join(t.Context(), "small", requests(l, 1))
		start := time.Now()
		cancel()
		c.Wait()
		wantErr(t, c.errs["big"], context.Canceled)
		if c.errs["small"] != nil {
			t.Error(c.errs["small"])
		}
		wantTook(t, start, 0, 0) // one unit was there
		wantUsed(t, l, "k", 10)
		if d, _ := l.Allow(t.Context(), "k"); d.Reason != drawgate.Limited {
			t.Errorf("somebody still waits: %v", d.Reason)
		}
	})
}

// TestClose ends all waiting, of every limiter that shares the queue, and leaves the store open.
func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memory(t)
		l := over(t, s, drawgate.PerMinute(1))
		o := with(t, l, drawgate.Rate(1, time.Minute, 1))
		take(t, l, "k", 1)
		take(t, o, "k", 1)
		res, err := l.Reserve(t.Context(), "held", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		c := newCrowd(t, l)
		for i := range 5 {
			c.join(t.Context(), fmt.Sprint("l", i), requests(l, 1))
			c.join(t.Context(), fmt.Sprint("o", i), requests(o, 1))
		}
		start := time.Now()
		if err := errors.Join(l.Close(), o.Close()); err != nil {
			t.Error(err)
		}
		c.Wait()
		wantTook(t, start, 0, 0)
		for name, err := range c.errs {
			if !errors.Is(err, drawgate.ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, l := range []*drawgate.Limiter{l, o} {
			for _, key := range []string{"k", "new"} {
				d, err := l.Allow(t.Context(), key)
				wantErr(t, err, drawgate.ErrClosed)
				if d.Allowed {
					t.Error("allowed")
				}
				_, err = l.Wait(t.Context(), key)
				wantErr(t, err, drawgate.ErrClosed)
				_, err = l.Reserve(t.Context(), key, time.Second)
				wantErr(t, err, drawgate.ErrClosed)
			}
		}
		if err := res.Cancel(t.Context()); err != nil {
			t.Errorf("what was reserved can still be given back: %v", err)
		}
		fresh := over(t, s, drawgate.PerMinute(1))
		wantUsed(t, fresh, "k", 1)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		_, err = fresh.Allow(t.Context(), "k")
		wantErr(t, err, drawgate.ErrClosed)
		_, err = fresh.Status(t.Context(), "k")
		wantErr(t, err, drawgate.ErrClosed)
	})
}

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

// TestHeldUnitsArePolled from 250 ms, doubling to 5 s, where nothing tells when they come back. req: A2
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
		same, err := other.Resume(res.ID(), res.Deadline(), other.Ask("k", slot))
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
			drawgate.Resetter
		}{m, m}
		for _, s := range []drawgate.Store{m, silent} {
			l := over(t, s, drawgate.PerDay(1))
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

// TestFreedWhileAsking: units that come back between the question and the place in line are not overlooked.
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
			{drawgate.PerMinute(1), time.Minute, 30 * time.Millisecond},
			{drawgate.PerMinute(60), time.Minute, 10 * time.Millisecond},
			{drawgate.PerDay(1), 24 * time.Hour, time.Second},
			{drawgate.Rate(1, time.Second, 1), time.Second, 500 * time.Microsecond},
			{policy(drawgate.Limit{Name: "d", Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 1}), 0, time.Second},
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
				wantTook(t, start, d.RetryAfter, c.most)
				late[time.Since(start)-d.RetryAfter] = true
			}
			if len(late) < 5 {
				t.Errorf("%s: no jitter: %v", c.p.Name, late)
			}
		}
	})
}
