package drawgate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// TestAdjust sets what one limit has used, up and down, and leaves the others alone.
func TestAdjust(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		day := drawgate.CalendarLimit("day", 100, drawgate.Day, "UTC")
		p := policy(rolling(10, time.Minute), of("tokens", leaky(60, time.Minute, 60)), day)
		l, limits := local(t, p), p.Limits
		for step, c := range []struct {
			limit     int
			used, was int64
			debt      int64
			want      []int64
		}{
			{0, 7, 0, 0, []int64{7, 0, 0}},
			{1, 90, 0, 30, []int64{7, 90, 0}}, // more than the limit: takes wait
			{1, 90, 90, 30, []int64{7, 90, 0}},
			{1, 80, 90, 20, []int64{7, 80, 0}},
			{2, 42, 0, 0, []int64{7, 80, 42}},
			{2, 40, 42, 0, []int64{7, 80, 40}},
			{0, 7, 7, 0, []int64{7, 80, 40}}, // nothing to do
			{1, 0, 80, 0, []int64{7, 0, 40}},
			{0, 2, 7, 0, []int64{2, 0, 40}},
		} {
			name := limits[c.limit].Name
			out, err := l.Ask("k").Adjust(t.Context(), name, c.used, "the console says so")
			if want := (drawgate.Adjusted{Limit: name, Was: c.was, Used: c.used, Debt: c.debt}); err != nil ||
				out != want {
				t.Errorf("step %d: %+v, %v; want %+v", step, out, err, want)
			}
			wantUsed(t, l, "k", c.want...)
		}
		time.Sleep(time.Minute)
		wantUsed(t, l, "k", 0, 0, 40)
		wantUsed(t, l, "another", 0, 0, 0)
	})
}

// TestAdjustAndHolders: what open reservations hold is not taken from them, and the answer says
// what is used after all.
func TestAdjustAndHolders(t *testing.T) {
	t.Parallel()
	p := policy(rolling(10, time.Hour), slots(3))
	l := local(t, p)
	r, err := l.Reserve(t.Context(), "k", time.Minute, drawgate.Cost{N: 4}, drawgate.Cost{Unit: "slots", N: 1})
	if err != nil {
		t.Fatal(err)
	}
	adjust := func(n int64) {
		if _, err := l.Ask("k").Adjust(t.Context(), "", n, "seen"); err != nil { // the only one that can be
			t.Fatal(err)
		}
	}
	adjust(9)
	wantUsed(t, l, "k", 9, 1)
	out, err := l.Ask("k").Adjust(t.Context(), p.Limits[0].Name, 1, "seen")
	if err != nil || out.Was != 9 || out.Used != 4 {
		t.Errorf("%+v, %v; want 4 used, which are held", out, err)
	}
	wantUsed(t, l, "k", 4, 1)
	if err := r.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	adjust(1)
	wantUsed(t, l, "k", 1, 0)
}

// TestAdjustMistakes are errors that say what to do, and change nothing.
func TestAdjustMistakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy(rolling(10, time.Hour), of("tokens", rolling(10, time.Hour)), slots(2))
		s, names := remote(t), p.Limits
		l := over(t, s, p)
		for i, c := range []struct {
			a      drawgate.Ask
			limit  string
			used   int64
			reason string
			want   string
		}{
			{l.Ask("k"), "", 1, "r", "name one of"},
			{l.Ask("k"), "week", 1, "r", "no limit \"week\""},
			{l.Ask("k"), names[2].Name, 1, "r", "who holds its slots"},
			{l.Ask("k"), names[0].Name, -1, "r", "not between 0 and"},
			{l.Ask("k"), names[0].Name, drawgate.MaxAmount + 1, "r", "not between 0 and"},
			{l.Ask("k"), names[0].Name, 1, "", "needs a reason"},
			{l.Ask("k"), names[0].Name, 1, strings.Repeat("r", store.MaxReason+1), "257 bytes"},
			{drawgate.Ask{Key: "k"}, names[0].Name, 1, "r", "names no Limiter"},
			{
				over(t, s, drawgate.Policy{Name: "jobs", Limits: []drawgate.Limit{slots(2)}}).Ask("k"), "", 1, "r",
				"only slots",
			},
		} {
			_, err := c.a.Adjust(t.Context(), c.limit, c.used, c.reason)
			if !errors.Is(err, drawgate.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("mistake %d: %v, want one that says %q", i, err, c.want)
			}
		}
		if n := s.settles.Load(); n != 0 {
			t.Errorf("the store was asked %d times", n)
		}
	})
}

// TestAdjustAgain: after a lost answer the same call sees what it has changed, and counts nothing
// twice.
func TestAdjustAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, used := range []int64{8, 2} {
			for _, f := range []fault{fails, drops} {
				s := remote(t)
				l := over(t, s, policy(rolling(10, time.Hour)))
				take(t, l, "k", 5)
				s.script(0, works, f)
				if out, err := l.Ask("k").Adjust(t.Context(), "", used, "seen"); !errors.Is(err,
					drawgate.ErrStoreUnavailable) || s.settles.Load() != 1 {
					t.Errorf("%+v, error %v after %d calls; want one that is ErrStoreUnavailable, once", out, err,
						s.settles.Load())
				}
				if out, err := l.Ask("k").Adjust(t.Context(), "", used, "seen"); err != nil || out.Used != used {
					t.Errorf("again: %+v, %v", out, err)
				}
				wantUsed(t, l, "k", used)
			}
		}
	})
}

// heldUp is a store whose next settlement is held up: its caller gets an error at once, and the
// store gets the message later.
type heldUp struct {
	drawgate.Store
	late time.Duration // 0: it is not held up
}

func (s *heldUp) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	if s.late == 0 {
		return s.Store.Settle(ctx, batch, out)
	}
	sent := slices.Clone(batch)
	time.AfterFunc(s.late, func() {
		// nobody waits for the answer
		_ = s.Store.Settle(context.WithoutCancel(ctx), sent, make([]store.Outcome, len(sent)))
	})
	s.late = 0
	return &drawgate.StoreError{Store: "held up", Op: "settle", Err: errors.New("connection lost")}
}

// TestAdjustHeldUp: a message that arrives after the same adjustment was made again changes
// nothing: neither up nor down does the difference count twice, because the error comes when the
// message is too late.
func TestAdjustHeldUp(t *testing.T) {
	t.Parallel()
	limits := []drawgate.Limit{
		rolling(10, time.Hour), leaky(10, 24*time.Hour, 10),
		drawgate.CalendarLimit("c", 10, drawgate.Day, "UTC"),
	}
	for i := range limits {
		for _, used := range []int64{8, 2} {
			synctest.Test(t, func(t *testing.T) {
				s := &heldUp{Store: memory(t)}
				l := over(t, s, policy(limits[i]))
				take(t, l, "k", 5)
				s.late = store.SendLife + time.Second
				if out, err := l.Ask("k").Adjust(t.Context(), "", used, "seen"); !errors.Is(err,
					drawgate.ErrStoreUnavailable) {
					t.Errorf("%+v, %v; want one that is ErrStoreUnavailable", out, err)
				}
				if out, err := l.Ask("k").Adjust(t.Context(), "", used, "seen"); err != nil || out.Used != used {
					t.Errorf("again: %+v, %v", out, err)
				}
				time.Sleep(time.Minute)
				wantUsed(t, l, "k", used)
			})
		}
	}
}

// TestAdjustTooLate: what is to be counted long after the look is not, and that is an error which
// says so.
func TestAdjustTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &between{Store: memory(t)}
		l := over(t, s, policy(rolling(10, time.Hour)))
		take(t, l, "k", 3)
		s.do = func() { time.Sleep(store.SendLife + time.Millisecond) }
		if out, err := l.Ask("k").Adjust(t.Context(), "", 6, "seen"); !errors.Is(err, store.ErrTooLate) ||
			!errors.Is(err, drawgate.ErrStoreUnavailable) {
			t.Errorf("%+v, %v; want one that is ErrTooLate, and ErrStoreUnavailable", out, err)
		}
		wantUsed(t, l, "k", 3)
	})
}

// TestAdjustWakes: who waits in this process tries at once when units are given back.
func TestAdjustWakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := over(t, remote(t), policy(rolling(3, time.Hour)))
		take(t, l, "k", 3)
		start, done := time.Now(), make(chan error)
		go func() {
			_, err := l.Wait(t.Context(), "k")
			done <- err
		}()
		time.Sleep(time.Minute)
		if _, err := l.Ask("k").Adjust(t.Context(), "", 1, "they were not used"); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		wantTook(t, start, time.Minute, time.Second)
		wantUsed(t, l, "k", 2)
	})
}

// TestAdjustCountsWhatComesBetween: the difference is counted, so a take between the look and the
// change counts as well.
func TestAdjustCountsWhatComesBetween(t *testing.T) {
	t.Parallel()
	for _, used := range []int64{6, 1} {
		s := &between{Store: memory(t)}
		p := policy(rolling(10, time.Hour))
		l := over(t, s, p)
		take(t, l, "k", 3)
		s.do = func() { take(t, l, "k", 1) }
		if out, err := l.Ask("k").Adjust(t.Context(), "", used, "seen"); err != nil ||
			out != (drawgate.Adjusted{Limit: p.Limits[0].Name, Was: 3, Used: used}) {
			t.Errorf("%+v, %v", out, err)
		}
		wantUsed(t, l, "k", used+1)
	}
}

// TestAdjustSeesAnEarlierWindow: what was used in the hour that was looked at is not given back in
// the next one, nor is anything long after the look.
func TestAdjustSeesAnEarlierWindow(t *testing.T) {
	t.Parallel()
	for i, limit := range []drawgate.Limit{
		drawgate.CalendarLimit("c", 10, drawgate.Hour, "UTC"),
		rolling(10, time.Minute), leaky(10, time.Hour, 10),
	} {
		synctest.Test(t, func(t *testing.T) { // it begins at the beginning of an hour
			s := &between{Store: memory(t)}
			l := over(t, s, policy(limit))
			time.Sleep(time.Hour - time.Second)
			take(t, l, "k", 10)
			late := []time.Duration{time.Second, time.Minute, time.Hour}[i]
			s.do = func() {
				time.Sleep(late)
				take(t, l, "k", 9)
			}
			if out, err := l.Ask("k").Adjust(t.Context(), "", 1, "seen"); err != nil || out.Was != 10 ||
				out.Used != 10 {
				t.Errorf("%v: %+v, %v; want nothing given back", limit.Kind, out, err)
			}
			wantUsed(t, l, "k", 9)
		})
	}
}

// TestAdjustBeyondABucket: a bucket with a burst cannot hold the largest amount, and the answer
// says what it holds.
func TestAdjustBeyondABucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := local(t, policy(leaky(7, time.Hour, 5)))
		take(t, l, "k", 5)
		out, err := l.Ask("k").Adjust(t.Context(), "", drawgate.MaxAmount, "seen")
		if err != nil || out.Was != 5 || out.Used <= 5 || out.Used >= drawgate.MaxAmount || out.Debt != out.Used-5 {
			t.Errorf("%+v, %v", out, err)
		}
		wantUsed(t, l, "k", out.Used)
		again, err := l.Ask("k").Adjust(t.Context(), "", drawgate.MaxAmount, "seen")
		if want := (drawgate.Adjusted{Limit: out.Limit, Was: out.Used, Used: out.Used, Debt: out.Debt}); err != nil ||
			again != want {
			t.Errorf("again: %+v, %v", again, err)
		}
	})
}

// between does something after the first peek.
type between struct {
	drawgate.Store
	do func()
}

func (s *between) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	err := s.Store.Peek(ctx, buckets, priority, out)
	if do := s.do; do != nil {
		s.do = nil
		do()
	}
	return err
}

// TestAdjustAgainstModel: whatever happened before, a limit has used what it was set to.
func TestAdjustAgainstModel(t *testing.T) {
	t.Parallel()
	for i, l := range []drawgate.Limit{
		rolling(20, time.Minute), leaky(20, time.Minute, 5),
		drawgate.CalendarLimit("c", 20, drawgate.Hour, "UTC"),
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := rand.New(rand.NewPCG(7, uint64(i)))
				lim := local(t, policy(l))
				for range 500 {
					if m.IntN(2) == 0 {
						if _, err := lim.Allow(t.Context(), "k", drawgate.Cost{N: m.Int64N(4)}); err != nil &&
							!errors.Is(err, drawgate.ErrNeverFits) {
							t.Fatal(err)
						}
					}
					time.Sleep(time.Duration(m.Int64N(int64(10 * time.Second))))
					want := m.Int64N(40)
					if _, err := lim.Ask("k").Adjust(t.Context(), "", want, "model"); err != nil {
						t.Fatal(err)
					}
					wantUsed(t, lim, "k", want)
				}
			})
		})
	}
}
