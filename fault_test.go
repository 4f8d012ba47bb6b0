package drawgate_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

// TestAllowWhileTheStoreIsAway: 50 ms in all, one attempt, an error that says so, and nothing
// allowed. req: A15, B11, E7
func TestAllowWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		fault   fault
		timeout time.Duration // of the options
		took    time.Duration
		used    int64
		text    string
	}{
		{"fails", fails, 0, 0, 0, "drawgate: faulty store: take: broken pipe"},
		{"stalls", stalls, 0, 50 * time.Millisecond, 0, "drawgate: faulty store: take: context deadline exceeded"},
		{
			"stalls, other time-out", stalls, 300 * time.Millisecond, 300 * time.Millisecond, 0,
			"context deadline exceeded",
		},
		{"stalls, only the caller's deadline", stalls, -1, time.Minute, 0, "context deadline exceeded"},
		{"loses the reply", loses, 0, 50 * time.Millisecond, 1, "context deadline exceeded"}, // counts as spent
		{"drops the connection", drops, 0, 0, 1, "broken pipe"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := remote(t)
				l, err := drawgate.New(s, drawgate.PerHour("hour", 10), &drawgate.Options{StoreTimeout: c.timeout})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				s.script(0, c.fault)
				start := time.Now()
				d, err := l.Allow(ctx, secret)
				wantErr(t, err, drawgate.ErrStoreUnavailable)
				if e, ok := errors.AsType[*drawgate.StoreError](err); !ok || e.Store != "faulty" || e.Op != "take" ||
					d.Allowed || d.Buckets() != 0 {
					t.Errorf("%+v, allowed %v", e, d.Allowed)
				}
				if !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), secret) {
					t.Errorf("%q does not say %q", err, c.text)
				}
				wantTook(t, start, c.took, 0)
				if n := s.takes.Load(); n != 1 {
					t.Errorf("sent %d times: it may have been spent", n)
				}
				wantUsed(t, l, secret, c.used)
				take(t, l, secret, 1) // it comes back by itself
			})
		})
	}
}

// TestWaitWhileTheStoreIsAway: 2 s per step, and the caller's deadline; a plain take is never sent
// again. req: B11, C12
func TestWaitWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := remote(t)
		l := over(t, s, drawgate.PerHour("hour", 10))
		for _, c := range []struct {
			fault fault
			took  time.Duration
		}{{fails, 0}, {stalls, 2 * time.Second}, {loses, 2 * time.Second}, {drops, 0}} {
			s.script(0, c.fault)
			s.takes.Store(0)
			start := time.Now()
			_, err := l.Wait(t.Context(), "k")
			wantErr(t, err, drawgate.ErrStoreUnavailable)
			wantTook(t, start, c.took, 0)
			if n := s.takes.Load(); n != 1 {
				t.Errorf("sent %d times", n)
			}
		}
		wantUsed(t, l, "k", 2)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s.script(0, stalls)
		start := time.Now()
		_, err := l.Wait(ctx, "k")
		wantErr(t, err, drawgate.ErrStoreUnavailable) // and not only the deadline: it may have been spent
		wantErr(t, err, context.DeadlineExceeded)
		wantTook(t, start, time.Second, 0)

		// In the middle of waiting; whoever stands behind goes on.
		take(t, l, "k", 8)
		c := newCrowd(t, l)
		c.join(t.Context(), "first", requests(l, 1))
		c.join(t.Context(), "second", requests(l, 1))
		s.script(0, fails)
		c.Wait()
		wantErr(t, c.errs["first"], drawgate.ErrStoreUnavailable)
		if c.errs["second"] != nil {
			t.Error(c.errs["second"])
		}
	})
}

// TestReserveIsSentAgain with the same id and the same content: nothing is lost or spent twice,
// even if the first attempt had landed. req: A12
func TestReserveIsSentAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		faults   []fault
		sent     int64
		replayed bool
		most     time.Duration
	}{
		{"works", nil, 1, false, 0},
		{"failed", []fault{fails}, 2, false, 30 * time.Millisecond},
		{"failed twice", []fault{fails, fails}, 3, false, 150 * time.Millisecond},
		{"connection dropped", []fault{drops}, 2, true, 30 * time.Millisecond},
		{"replies lost", []fault{loses, loses}, 3, true, 4150 * time.Millisecond},
		{"stalled", []fault{stalls}, 2, false, 2030 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := remote(t)
				l := over(t, s, drawgate.PerHour("hour", 10))
				s.script(0, c.faults...)
				start := time.Now()
				res, err := l.Reserve(t.Context(), "k", time.Minute, drawgate.Cost{N: 7})
				if err != nil {
					t.Fatal(err)
				}
				if n := s.takes.Load(); n != c.sent || res.Decision.Replayed != c.replayed ||
					time.Since(start) > c.most {
					t.Errorf("sent %d times, replayed %v, after %v; want %d, %v, at most %v", n, res.Decision.Replayed,
						time.Since(start), c.sent, c.replayed, c.most)
				}
				wantUsed(t, l, "k", 7)
				if end := res.Decision.HoldEnd(); !res.Deadline().Before(end) ||
					end.Sub(res.Deadline()) > 90*time.Millisecond {
					t.Errorf("the deadline is %v before the end", end.Sub(res.Deadline()))
				}
				if err := res.Cancel(t.Context()); err != nil {
					t.Error(err)
				}
				wantUsed(t, l, "k", 0)
			})
		})
	}
}

// TestSendingAgainHasJitter: those who failed together do not come again together. Each pause is as
// long as it may be, and no two are the same.
// req: A12
func TestSendingAgainHasJitter(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(t *testing.T, s *faulty, l *drawgate.Limiter) error{
		"reserve": func(t *testing.T, s *faulty, l *drawgate.Limiter) error {
			t.Helper()
			s.script(0, fails, fails)
			_, err := l.Reserve(t.Context(), "k", time.Minute)
			return err
		},
		"settle": func(t *testing.T, s *faulty, l *drawgate.Limiter) error {
			t.Helper()
			res, err := l.Reserve(t.Context(), "k", time.Minute)
			if err != nil {
				return err
			}
			s.script(0, fails, fails)
			return res.Settle(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := remote(t)
				var at []time.Time
				l, err := drawgate.New(s, drawgate.PerMinute("minute", 1000),
					&drawgate.Options{Observer: &drawgate.Observer{
						Called: func(*drawgate.StoreCall) { at = append(at, time.Now()) },
					}})
				if err != nil {
					t.Fatal(err)
				}
				var pauses [2][]time.Duration
				for range 200 {
					at = nil
					if err := again(t, s, l); err != nil {
						t.Fatal(err)
					}
					last := at[len(at)-3:]
					for i := range pauses {
						pauses[i] = append(pauses[i], last[i+1].Sub(last[i]))
					}
				}
				wantSpread(t, pauses[0], 10*time.Millisecond, 30*time.Millisecond)
				wantSpread(t, pauses[1], 40*time.Millisecond, 120*time.Millisecond)
			})
		})
	}
}

// wantSpread checks that 200 pauses lie from least to below most, all over the place.
func wantSpread(t *testing.T, pauses []time.Duration, least, most time.Duration) {
	t.Helper()
	slices.Sort(pauses)
	first, last, quarter := pauses[0], pauses[len(pauses)-1], (most-least)/4
	if first < least || last >= most || first > least+quarter || last < most-quarter {
		t.Errorf("pauses from %v to %v, want all over %v to %v", first, last, least, most)
	}
	if n := len(slices.Compact(pauses)); n < 190 {
		t.Errorf("%d of 200 pauses differ", n)
	}
}

// TestReserveGivesUp after three attempts, at the caller's deadline, or, if it does not wait, after
// the time of an Allow. req: A10
func TestReserveGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := remote(t)
		l := over(t, s, drawgate.PerHour("hour", 10))
		s.script(0, fails, fails, fails, fails)
		_, err := l.Reserve(t.Context(), "k", time.Minute)
		wantErr(t, err, drawgate.ErrStoreUnavailable)
		if n := s.takes.Load(); n != 3 {
			t.Errorf("sent %d times", n)
		}

		for _, f := range []fault{fails, stalls} {
			s.script(0, f, f, f)
			start := time.Now()
			_, err = takeHeld(t.Context(), l, drawgate.Request{
				Buckets: []drawgate.Ask{l.Ask("k")},
				Hold:    drawgate.Hold{For: time.Minute},
			})
			wantErr(t, err, drawgate.ErrStoreUnavailable)
			wantTook(t, start, 0, 50*time.Millisecond)
			time.Sleep(time.Minute) // what may have landed is cancelled in the background, and meets the next faults
		}

		ctx, cancel := context.WithTimeout(t.Context(), 2005*time.Millisecond)
		defer cancel()
		s.script(0, loses, works)
		start := time.Now()
		_, err = l.Reserve(ctx, "k", time.Minute)
		wantErr(t, err, drawgate.ErrStoreUnavailable) // the first attempt may have landed
		wantTook(t, start, 2005*time.Millisecond, 0)
		synctest.Wait()
		wantUsed(t, l, "k", 0) // it did, and is cancelled in the background

		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s.script(0, drops, quits)
		_, err = l.Reserve(ctx, "k", time.Minute)
		wantErr(t, err, context.DeadlineExceeded) // the second attempt did nothing, but the first one may have landed
		if e, ok := errors.AsType[*drawgate.GaveUpError](err); !ok || e.MaySpend {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		wantUsed(t, l, "k", 0)

		s.script(0)
		take(t, l, "k", 1)
		s.takes.Store(0)
		_, err = takeHeld(t.Context(), l, drawgate.Request{
			Buckets: []drawgate.Ask{l.Ask("k", drawgate.Cost{N: 10})},
			Hold:    drawgate.Hold{For: time.Minute},
		})
		if wantErr(t, err, drawgate.ErrLimited); s.takes.Load() != 1 {
			t.Error("a refusal is an answer")
		}
	})
}

// TestSettleIsSentAgain with the same id, and counts once (promise 3). req: A12
func TestSettleIsSentAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		faults []fault
		sent   int64
		err    error
		used   int64
	}{
		{"works", nil, 1, nil, 3},
		{"failed twice", []fault{fails, fails}, 3, nil, 3},
		{"reply lost", []fault{loses}, 2, nil, 3},
		{"connection dropped twice", []fault{drops, drops}, 3, nil, 3},
		{"away", []fault{fails, stalls, fails}, 3, drawgate.ErrStoreUnavailable, 5},
		{"away, but it landed", []fault{drops, fails, fails}, 3, drawgate.ErrStoreUnavailable, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := remote(t)
				l := over(t, s, drawgate.PerHour("hour", 20))
				if _, err := l.Reserve(t.Context(), "k", time.Hour); err != nil { // somebody else's
					t.Fatal(err)
				}
				res, err := l.Reserve(t.Context(), "k", time.Minute, drawgate.Cost{N: 5})
				if err != nil {
					t.Fatal(err)
				}
				s.script(0, c.faults...)
				if err := res.Settle(t.Context(), drawgate.Cost{N: 3}); !errors.Is(err, c.err) {
					t.Errorf("%v, want %v", err, c.err)
				}
				if n := s.settles.Load(); n != c.sent {
					t.Errorf("sent %d times, want %d", n, c.sent)
				}
				wantUsed(t, l, "k", 1+c.used)
				if c.err != nil { // it may be tried again by hand
					if err := res.Settle(t.Context(), drawgate.Cost{N: 3}); err != nil &&
						!errors.Is(err, drawgate.ErrGone) {
						t.Error(err)
					}
				}
				wantErr(t, res.Cancel(t.Context()), drawgate.ErrGone)
				wantUsed(t, l, "k", 1+3)
			})
		})
	}
}

// TestExcessIsNotChargedTwice: a settlement in time, the reply of which was lost, entered the
// excess as debt; asking again does not. req: A12
func TestExcessIsNotChargedTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := remote(t)
		l := over(t, s, policy(of("tokens", rolling(1000, time.Hour))))
		hold := func() *drawgate.Reservation {
			return reserve(t, l, drawgate.Request{
				Buckets: []drawgate.Ask{l.Ask("k", tokens(100))},
				Hold:    drawgate.Hold{For: 10 * time.Second},
			})
		}
		res := hold()
		time.Sleep(5 * time.Second)
		s.script(0, loses)
		if err := res.Settle(t.Context(), tokens(130)); err != nil {
			t.Error(err)
		}
		wantUsed(t, l, "k", 130)
		time.Sleep(time.Minute)
		wantErr(t, res.Settle(t.Context(), tokens(130)), drawgate.ErrGone)
		wantUsed(t, l, "k", 130)

		// The settlement was sent before the end, and arrived after it.
		res = hold()
		time.Sleep(9 * time.Second)
		s.script(0, stalls)
		wantErr(t, res.Settle(t.Context(), tokens(130)), drawgate.ErrGone)
		wantUsed(t, l, "k", 260)

		// The charge of the excess has no id: it is sent once.
		res = hold()
		time.Sleep(time.Minute)
		s.script(0, works, drops)
		s.settles.Store(0)
		wantErr(t, res.Settle(t.Context(), tokens(130)), drawgate.ErrStoreUnavailable)
		wantErr(t, res.Settle(t.Context(), tokens(130)), drawgate.ErrGone)
		if n := s.settles.Load(); n != 2 {
			t.Errorf("%d calls, want 2", n)
		}
		wantUsed(t, l, "k", 390)

		// Two who settle at once are one settlement.
		res = hold()
		time.Sleep(time.Minute)
		s.script(time.Millisecond)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { wantErr(t, res.Settle(t.Context(), tokens(130)), drawgate.ErrGone) })
		}
		wg.Wait()
		wantUsed(t, l, "k", 520)

		// It is charged although the caller has given up: the units are used.
		res = hold()
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		s.script(100*time.Millisecond - 1)
		wantErr(t, res.Settle(ctx, tokens(130)), drawgate.ErrGone)
		wantUsed(t, l, "k", 650)
	})
}

// TestRenewIsSentAgain. req: A12
func TestRenewIsSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := remote(t)
		l := over(t, s, drawgate.PerHour("hour", 20))
		res, err := l.Reserve(t.Context(), "k", 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		s.script(0, loses)
		start := time.Now()
		if err := res.Renew(t.Context(), time.Minute); err != nil {
			t.Error(err)
		}
		if want := start.Add(time.Minute - 60*time.Millisecond); !res.Deadline().Equal(want) {
			t.Errorf("the deadline is %v after it was asked for", res.Deadline().Sub(start))
		}
		s.script(0, fails, fails, fails)
		before := res.Deadline()
		wantErr(t, res.Renew(t.Context(), time.Hour), drawgate.ErrStoreUnavailable)
		if !res.Deadline().Equal(before) {
			t.Error("a renewal that nobody confirmed moved the deadline")
		}
	})
}

// TestStatusWhileTheStoreIsAway.
func TestStatusWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := remote(t)
		l := over(t, s, drawgate.PerHour("hour", 20))
		s.script(0, stalls)
		start := time.Now()
		_, err := l.Status(t.Context(), secret)
		wantErr(t, err, drawgate.ErrStoreUnavailable)
		wantTook(t, start, 2*time.Second, 0)
		if strings.Contains(err.Error(), secret) {
			t.Error(err)
		}
	})
}

// failing answers in its own words, and each take of a batch by itself.
type failing struct {
	drawgate.Store
	err   error
	whole bool // the whole batch fails
}

func (s *failing) Take(_ context.Context, _ []store.Take, out []store.Verdict) error {
	if s.whole {
		return s.err
	}
	out[0] = store.Verdict{Fail: s.err}
	return nil
}

func (s *failing) Settle(_ context.Context, _ []store.Settlement, out []store.Outcome) error {
	if s.whole {
		return s.err
	}
	out[0] = store.Outcome{Err: s.err}
	return nil
}

func (s *failing) Peek(_ context.Context, _ []store.BucketCost, _ int8, out []store.State) error {
	if s.whole {
		return s.err
	}
	out[0] = store.State{Verdict: store.Verdict{Fail: s.err}}
	return nil
}

func (s *failing) Reset(context.Context, []drawgate.Key) error { return s.err }

// TestForeignStoreErrors become one of ours, and keep their cause.
func TestForeignStoreErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, whole := range []bool{false, true} {
			for _, c := range []struct{ err, want error }{
				{errBroken, drawgate.ErrStoreUnavailable},
				{context.DeadlineExceeded, drawgate.ErrStoreUnavailable},
				{drawgate.ErrClosed, drawgate.ErrClosed},
				{drawgate.ErrInvalid, drawgate.ErrInvalid},
				{&drawgate.StoreError{Store: "x", Op: "y", Err: errBroken}, errBroken},
			} {
				l := over(t, &failing{err: c.err, whole: whole}, drawgate.PerHour("hour", 1))
				_, err := l.Allow(t.Context(), secret)
				wantErr(t, err, c.want)
				wantErr(t, err, c.err)
				_, err = l.Wait(t.Context(), secret)
				wantErr(t, err, c.want)
				_, err = l.Reserve(t.Context(), secret, time.Second)
				wantErr(t, err, c.want)
				_, err = l.Status(t.Context(), secret)
				wantErr(t, err, c.want)
				wantErr(t, l.Reset(t.Context(), secret), c.want)
				res, err := l.Resume("id", 1, time.Now().Add(time.Hour), l.Ask(secret))
				if err != nil {
					t.Fatal(err)
				}
				wantErr(t, res.Settle(t.Context()), c.want)
				wantErr(t, res.Cancel(t.Context()), c.want)
				wantErr(t, res.Renew(t.Context(), time.Second), c.want)
			}
		}
	})
}

// TestNoCreditTwice: many callers settle one reservation at once, over a store that loses replies,
// and it is credited once. req: A3, A8
func TestNoCreditTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := remote(t)
		l := over(t, s, drawgate.PerHour("hour", 100))
		for round := range 20 {
			res, err := l.Reserve(t.Context(), "k", time.Minute, drawgate.Cost{N: 5})
			if err != nil {
				t.Fatal(err)
			}
			s.script(0, []fault{drops, fails, works, loses, drops}[round%5:]...)
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					if err := res.Settle(t.Context(), drawgate.Cost{N: 2}); err != nil &&
						!errors.Is(err, drawgate.ErrGone) && !errors.Is(err, drawgate.ErrStoreUnavailable) {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			s.script(0)
			wantUsed(t, l, "k", int64(2*(round+1)))
		}
	})
}

// forgetful is a store whose verdicts say of the first bucket only whether it allows the take.
type forgetful struct{ drawgate.Store }

func (s forgetful) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	err := s.Store.Take(ctx, batch, out)
	for i := range out {
		out[i].End, out[i].Rest = 0, nil
	}
	return err
}

// TestAVerdictThatLacksThings: a store that forgets to say when a hold ends, or what it says of
// other buckets, gives a reservation that is over.
func TestAVerdictThatLacksThings(t *testing.T) {
	t.Parallel()
	lim, err := drawgate.New(forgetful{memstore.New(nil)}, policy(rolling(10, time.Minute)), nil)
	if err != nil {
		t.Fatal(err)
	}
	asks := []drawgate.Ask{lim.Ask("a"), lim.Ask("b")}
	d, res, err := lim.Take(t.Context(), drawgate.Request{Buckets: asks, Hold: drawgate.Hold{For: time.Minute}})
	if err != nil || !d.Allowed || d.Buckets() != 1 || d.Granted(1) != (store.Amounts{}) ||
		res.Deadline().After(time.Now()) {
		t.Errorf("%+v, %v, until %v", d, err, res.Deadline())
	}
	if d, _, err = lim.Take(t.Context(), drawgate.Request{
		Buckets: asks[:1],
		Hold:    drawgate.Hold{For: time.Minute},
	}); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
}

// lost is a store that says once that a bucket is paused which was not asked for, and describes no
// limits.
type lost struct {
	drawgate.Store
	asked atomic.Int64
}

func (s *lost) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if s.asked.Add(1) > 1 {
		return s.Store.Take(ctx, batch, out)
	}
	out[0] = store.Verdict{Reason: store.Paused, PausedAt: 300, RetryAfter: time.Millisecond}
	return nil
}

func (s *lost) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	err := s.Store.Peek(ctx, buckets, priority, out)
	for i := range out {
		out[i].States = nil
	}
	return err
}

// TestAVerdictOfAnotherBucket: whatever a store says, a decision is about buckets that were asked
// for, and a status describes each limit.
func TestAVerdictOfAnotherBucket(t *testing.T) {
	t.Parallel()
	s := &lost{Store: memstore.New(nil)}
	lim, err := drawgate.New(s, policy(rolling(10, time.Minute)), nil)
	if err != nil {
		t.Fatal(err)
	}
	asks := []drawgate.Ask{lim.Ask("a"), lim.Ask("b")}
	d, err := lim.Allow(t.Context(), "k")
	e, ok := errors.AsType[*drawgate.LimitedError](d.Err())
	if err != nil || !ok || e.Policy != lim.Plan().Name() || d.Reason != drawgate.Paused {
		t.Errorf("%+v, %v", d, err)
	}
	s.asked.Store(0)
	if d, _, err := lim.Take(t.Context(), drawgate.Request{Buckets: asks, Wait: true}); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
	if st, err := lim.Status(t.Context(), "k"); err != nil || len(st.States) != 1 {
		t.Errorf("%+v, %v", st, err)
	}
}
