package drawgate_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// reports notes what one take is told, with the time since the test began.
type reports struct {
	start time.Time
	all   []string
}

// context returns a context whose takes tell r. A take calls it from one goroutine, so it needs no
// lock: the race detector finds calls at the same time.
func (r *reports) context(ctx context.Context) context.Context {
	r.start = time.Now()
	return drawgate.WithProgress(ctx, func(p drawgate.Progress) {
		line := fmt.Sprintf("%v: place %d, %v", time.Since(r.start).Round(500*time.Millisecond), p.Place, p.Reason)
		if p.Held {
			line += ", held"
		}
		line += fmt.Sprintf(", %s/%s, bucket %d", p.Policy, p.Limit, p.Bucket)
		if p.Pause != "" {
			line += ", pause " + p.Pause
		}
		line += fmt.Sprintf(", in %v, waited %v", p.Estimate.Round(500*time.Millisecond),
			p.Waited.Round(500*time.Millisecond))
		r.all = append(r.all, line)
	})
}

func (r *reports) want(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(r.all, want) {
		t.Errorf("got\n%s", lines(r.all))
		t.Errorf("want\n%s", lines(want))
	}
}

func lines(list []string) (text string) {
	for _, l := range list {
		text += "  " + l + "\n"
	}
	return text
}

// TestProgressTellsPlaceAndEstimate: a caller hears how many are in front, and the estimate is when
// it passes.
//
// req: U13
func TestProgressTellsPlaceAndEstimate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, drawgate.Rate("rate", 1, 2*time.Second, 1))
		take(t, l, "k", 1)
		var first, last reports
		c := newCrowd(t, l)
		c.join(first.context(t.Context()), "first", requests(l, 1))
		c.join(t.Context(), "silent", requests(l, 1))
		c.join(last.context(t.Context()), "last", requests(l, 1))
		if got := c.passed(); got != "first silent last" {
			t.Errorf("order %q", got)
		}
		wantTook(t, last.start, 6*time.Second, 100*time.Millisecond)
		first.want(t, "0s: place 1, limited, rate/rate, bucket 0, in 2s, waited 0s")
		last.want(t,
			"0s: place 3, limited, rate/rate, bucket 0, in 6s, waited 0s",
			"2s: place 2, limited, rate/rate, bucket 0, in 4s, waited 2s",
			"4s: place 1, limited, rate/rate, bucket 0, in 2s, waited 4s")
	})
}

// TestProgressTellsWhatHoldsItUp: a limit, what others hold, a pause with its reason, and which of
// several buckets.
func TestProgressTellsWhatHoldsItUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, policy(rolling(1, 10*time.Second)))
		room := with(t, l, drawgate.Policy{Name: "room", Limits: []drawgate.Limit{slots(1)}})
		res := reserve(t, room, drawgate.Request{Buckets: []drawgate.Ask{room.Ask("r",
			drawgate.Cost{Unit: "slots", N: 1})}, Hold: drawgate.Hold{For: time.Minute}})
		take(t, l, "k", 1)
		if err := l.Pause(t.Context(), "k", 3500*time.Millisecond, "maintenance"); err != nil {
			t.Fatal(err)
		}
		var r reports
		c := newCrowd(t, l)
		c.join(r.context(t.Context()), "both", drawgate.Request{
			Buckets: []drawgate.Ask{room.Ask("r", drawgate.Cost{Unit: "slots", N: 1}), l.Ask("k")},
			Hold:    drawgate.Hold{For: time.Second},
		})
		time.Sleep(20500 * time.Millisecond)
		if err := res.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.passed()
		r.want(t,
			"0s: place 1, paused, p/, bucket 1, pause maintenance, in 10s, waited 0s",
			"10s: place 1, limited, held, room/slots, bucket 0, in 0s, waited 10s")
	})
}

// TestProgressIsToldWhereTheLineIsRolling: whole windows pass before those far behind can.
func TestProgressIsToldWhereTheLineIsRolling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, policy(rolling(2, time.Minute)))
		take(t, l, "k", 2)
		ctx, cancel := context.WithCancel(t.Context())
		c := newCrowd(t, l)
		var list [5]reports
		for i := range list {
			c.join(list[i].context(ctx), fmt.Sprint(i), requests(l, 1))
		}
		cancel()
		c.Wait()
		for i, in := range []string{"1m0s", "1m0s", "2m0s", "2m0s", "3m0s"} {
			list[i].want(t, fmt.Sprintf("0s: place %d, limited, p/rolling, bucket 0, in %s, waited 0s", i+1, in))
		}
	})
}

// TestProgressDoesNotAsk the store: only the first of a line does, as often as without it.
func TestProgressDoesNotAsk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := func(r *reports) (n int) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s := &faulty{Store: memory(t)}
			l := over(t, s, policy(slots(1)))
			one := drawgate.Request{
				Buckets: []drawgate.Ask{l.Ask("k", drawgate.Cost{Unit: "slots", N: 1})},
				Hold:    drawgate.Hold{For: time.Hour},
			}
			reserve(t, l, one)
			if r != nil {
				ctx = r.context(ctx)
			}
			c := newCrowd(t, l)
			c.join(ctx, "first", one)
			c.join(ctx, "second", one)
			c.Wait()
			return int(s.takes.Load())
		}
		var r reports
		if quiet, loud := asked(nil), asked(&r); quiet != loud || len(r.all) == 0 {
			t.Errorf("%d questions, %d where progress was told: %v", quiet, loud, r.all)
		}
	})
}

// TestStatusSaysWhoWaits, and that a take which does not wait would be refused because of that.
//
// req: U13
func TestStatusSaysWhoWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, drawgate.Rate("rate", 10, 10*time.Second, 10))
		take(t, l, "k", 5)
		if st, err := l.Status(t.Context(), "k"); err != nil || st.Waiting != 0 || !st.Allowed {
			t.Errorf("%d wait, %v: %v", st.Waiting, st.Err(), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		c := newCrowd(t, l)
		c.join(ctx, "big", requests(l, 10))
		time.Sleep(time.Second)
		c.join(ctx, "small", requests(l, 1))
		st, err := l.Status(t.Context(), "k")
		if err != nil || st.Waiting != 2 || st.NextTry.Round(50*time.Millisecond) != 4*time.Second {
			t.Errorf("%d wait, the next try is in %v: %v", st.Waiting, st.NextTry, err)
		}
		if st.Allowed || st.Reason != drawgate.Queued || st.RetryAfter != st.NextTry {
			t.Errorf("%v, retry after %v", st.Reason, st.RetryAfter)
		}
		if st, err := l.Ask("k").Status(t.Context(), 9); err != nil || !st.Allowed || st.Waiting != 2 {
			t.Errorf("a take of priority 9 passes in front of them: %v, %v", st.Err(), err)
		}
		got := l.Lines()
		if len(got) != 1 {
			t.Fatalf("%+v", got)
		}
		got[0].Next = got[0].Next.Round(50 * time.Millisecond)
		want := drawgate.Line{
			Key: drawgate.Key{Policy: "rate", Name: "k"}, Waiting: 2, Longest: time.Second, Next: 4 * time.Second,
			Reason: drawgate.Limited, Limit: "rate",
		}
		if got[0] != want {
			t.Errorf("got %+v, want %+v", got[0], want)
		}
		cancel()
		c.Wait()
		if got := l.Lines(); len(got) != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// TestLinesAreSorted by how many wait.
func TestLinesAreSorted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, drawgate.PerDay("rate", 1))
		ctx, cancel := context.WithCancel(t.Context())
		c := newCrowd(t, l)
		for i, key := range []string{"a", "b", "b", "c", "c", "c", "d", "d"} {
			if i == 0 || key != "a" {
				_, _ = l.Allow(ctx, key)
			}
			c.join(ctx, fmt.Sprint(i), drawgate.Request{Buckets: []drawgate.Ask{l.Ask(key)}})
			time.Sleep(time.Second)
		}
		var got string
		for _, x := range l.Lines() {
			got += fmt.Sprint(x.Key.Name, x.Waiting, " ")
		}
		if got != "c3 b2 d2 a1 " {
			t.Errorf("got %s", got)
		}
		cancel()
		c.Wait()
	})
}

// TestProgressMayPanic: a take whose report panics leaves the line, so that the next one passes.
func TestProgressMayPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, drawgate.Rate("rate", 1, time.Second, 1))
		take(t, l, "k", 1)
		func() {
			defer func() { _ = recover() }() // as net/http does
			_, _ = l.Wait(drawgate.WithProgress(t.Context(), func(drawgate.Progress) { panic("report") }), "k")
			t.Error("it did not panic")
		}()
		if n := len(l.Lines()); n != 0 {
			t.Fatalf("%d lines are left", n)
		}
		if _, err := l.Wait(t.Context(), "k"); err != nil {
			t.Error(err)
		}
	})
}

// TestProgressTellsTheNextPause: the pause of another bucket has a reason of its own.
func TestProgressTellsTheNextPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, policy(rolling(1, time.Second)))
		pause := func(key string, d time.Duration, reason string) {
			if err := l.Pause(t.Context(), key, d, reason); err != nil {
				t.Fatal(err)
			}
		}
		pause("a", 10*time.Second, "first")
		var r reports
		c := newCrowd(t, l)
		c.join(r.context(t.Context()), "both", drawgate.Request{Buckets: []drawgate.Ask{l.Ask("a"), l.Ask("b")}})
		pause("b", 30*time.Second, "second")
		c.passed()
		r.want(t,
			"0s: place 1, paused, p/, bucket 0, pause first, in 10s, waited 0s",
			"5s: place 1, paused, p/, bucket 1, pause second, in 25s, waited 5s") // when it tried again
	})
}

// peeks counts the looks.
type peeks struct {
	drawgate.Store
	n, fail int
}

func (s *peeks) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	if s.n++; s.n <= s.fail {
		return &drawgate.StoreError{Store: "test", Op: "peek", Err: context.DeadlineExceeded}
	}
	return s.Store.Peek(ctx, buckets, priority, out)
}

// TestProgressLooksOncePerPause: the reason of a pause is asked for once, for all who wait; again
// only if the store did not say it.
func TestProgressLooksOncePerPause(t *testing.T) {
	t.Parallel()
	for _, fail := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			s := &peeks{Store: memory(t), fail: fail}
			l := over(t, s, policy(rolling(100, time.Hour)))
			if err := l.Pause(t.Context(), "k", 20*time.Second, "maintenance"); err != nil {
				t.Fatal(err)
			}
			c := newCrowd(t, l)
			var list [50]reports
			for i := range list {
				c.join(list[i].context(t.Context()), fmt.Sprint(i), requests(l, 1))
			}
			c.passed()
			if s.n != 1+fail {
				t.Errorf("%d looks, %d of which failed", s.n, fail)
			}
			for i := range list {
				if all := list[i].all; !strings.Contains(all[len(all)-1], "paused, p/, bucket 0, pause maintenance") {
					t.Errorf("the %d. heard %q", i, all)
				}
			}
		})
	}
}
