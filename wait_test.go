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

// crowd starts waiters one after the other, each in its place before the next, and notes in which
// order they pass.
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
		_, _, err := c.l.Take(ctx, r)
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
		l := local(t, drawgate.Rate("rate", 1, time.Second, 1))
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
		l := local(t, drawgate.Rate("rate", 1, time.Second, 1))
		take(t, l, "k", 1)
		c := newCrowd(t, l)
		for i, p := range []int{0, 3, 9, 3, 0, 9} {
			c.join(t.Context(), fmt.Sprint(p, ".", i), urgent(l, p))
		}
		if got, want := c.passed(), "9.2 9.5 3.1 3.3 0.0 0.4"; got != want {
			t.Errorf("order %q, want %q", got, want)
		}

		// Two of priority 9 arrive for each one that passes: without aging priority 0 would never
		// pass.
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
		l := local(t, drawgate.Rate("rate", 10, 10*time.Second, 10))
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

// TestAllowBehindWaiters is refused, until the one in front tries again; unless it is more urgent,
// or its policy says barge. req: B7
func TestAllowBehindWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, drawgate.Rate("rate", 10, 10*time.Second, 10))
		p := l.Plan().Policy()
		p.Wait.Barge = true
		barge := with(t, l, p)
		other := with(t, l, drawgate.PerMinute("minute", 100))
		take(t, l, "k", 7)
		c := newCrowd(t, l)
		c.join(t.Context(), "big", requests(l, 10))
		time.Sleep(2 * time.Second)
		d, err := l.Allow(t.Context(), "k")
		if err != nil || d.Allowed || d.Reason != drawgate.Queued || d.RetryAfter < 5*time.Second ||
			d.RetryAfter > 5010*time.Millisecond {
			t.Errorf("%v: allowed %v, %v, retry after %v", err, d.Allowed, d.Reason, d.RetryAfter)
		}
		e, ok := errors.AsType[*drawgate.LimitedError](d.Err())
		if !ok || !e.Queued || e.Policy != "rate" ||
			!strings.HasPrefix(e.Error(), `drawgate: rate limit exceeded: others are waiting for policy "rate"; retry after 5`) {
			t.Errorf("%v", d.Err())
		}
		// A take of several buckets says which one it is.
		d, _, err = l.Take(t.Context(), drawgate.Request{Buckets: []drawgate.Ask{other.Ask("k"), l.Ask("k")}})
		if r, ok := d.Tightest(); err != nil || d.Reason != drawgate.Queued || !ok || r.Bucket != 1 ||
			r.Policy != "rate" || r.Remaining != 0 {
			t.Errorf("%v, %v, %+v", err, d.Reason, r)
		}
		// Barging into one line does not open another.
		d, _, err = l.Take(t.Context(), drawgate.Request{Buckets: []drawgate.Ask{barge.Ask("other"), l.Ask("k")}})
		if err != nil || d.Allowed {
			t.Errorf("%v, allowed %v", err, d.Allowed)
		}
		if d, _, err := l.Take(t.Context(), urgent(l, 1)); err != nil || !d.Allowed {
			t.Errorf("more urgent: %v, %v", d.Err(), err)
		}
		take(t, barge, "k", 1)
		take(t, l, "k2", 1)
		if _, err := l.Reserve(t.Context(), "k2", time.Second); err != nil {
			t.Error(err)
		}
		_, err = takeHeld(t.Context(), l, drawgate.Request{
			Buckets: []drawgate.Ask{l.Ask("k")},
			Hold:    drawgate.Hold{For: time.Second},
		})
		wantErr(t, err, drawgate.ErrLimited)
		c.passed()
		time.Sleep(time.Second)
		take(t, l, "k", 1)
	})
}

// TestSeveralBucketsWait: who waits for one bucket does not keep others from another that it does
// not need to wait for. req: B4
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
		// The second of a may only go after an hour. It learns that when its turn has come for
		// everybody's bucket.
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
		c.join(t.Context(), "urgent", drawgate.Request{
			Buckets:  []drawgate.Ask{b.Ask("k", drawgate.Cost{N: 10})},
			Priority: 1,
		})
		c.join(t.Context(), "last", drawgate.Request{Buckets: []drawgate.Ask{b.Ask("k", drawgate.Cost{N: 10})}})
		if got, want := c.passed(), "a urgent 0 1 2 3 4 last"; got != want {
			t.Errorf("order %q, want %q", got, want)
		}
	})
}

// TestManyLines: takes of random buckets that arrive at the same instant all pass, in bounded time,
// and leave nothing behind.
func TestManyLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := local(t, drawgate.Policy{Name: "0", Limits: []drawgate.Limit{leaky(1, time.Second, 3)}})
		all := []*drawgate.Limiter{first}
		for i := range 3 {
			all = append(all, with(t, first, drawgate.Policy{
				Name:   fmt.Sprint(i + 1),
				Limits: []drawgate.Limit{leaky(1, time.Second, 3)},
			}))
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
				if _, _, err := first.Take(t.Context(), r); err != nil {
					t.Error(err)
				}
			})
		}
		c.Wait()
		// About 55 of them want a bucket, two units each, one unit comes per second: more if one
		// waits for two buckets in turn.
		wantTook(t, start, 100*time.Second, 200*time.Second)
		for _, l := range all {
			time.Sleep(3 * time.Second)
			take(t, l, "k", 3)
		}
	})
}
