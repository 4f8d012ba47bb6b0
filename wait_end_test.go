package drawgate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
)

// TestQueueIsBounded. req: B6
func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := drawgate.Rate("rate", 1, time.Second, 1)
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
		if want := `drawgate: the queue is full: 3 callers are already waiting for this bucket of policy "rate"`; err == nil || err.Error() != want {
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

// TestCancelledWaiterLeavesNothing: its place is free at once, whoever it kept waiting goes on, and
// no goroutine is left. req: C5
func TestCancelledWaiterLeavesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := drawgate.Rate("rate", 10, 10*time.Second, 10)
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
		l := over(t, s, drawgate.PerMinute("minute", 1))
		o := with(t, l, drawgate.Rate("rate", 1, time.Minute, 1))
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
		fresh := over(t, s, drawgate.PerMinute("minute", 1))
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
