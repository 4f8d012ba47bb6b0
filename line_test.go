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
	"github.com/drawgate/drawgate/internal/linetest"
	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
)

// far is a store that is some time away.
type far struct {
	*model.Records
	mu    sync.Mutex
	chans map[chan<- store.Key]bool
	asked atomic.Int64 // takes
	named atomic.Int64 // waiters behind others that it was told of
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
	if k := batch[0].Ticket; k != nil {
		f.named.Add(int64(len(k.Next)))
	}
	return f.Records.Take(ctx, batch, out)
}

func (f *far) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	f.pause()
	defer f.pause()
	err := f.Records.Settle(ctx, batch, out)
	time.AfterFunc(time.Duration(20+rand.IntN(180))*time.Microsecond, func() { f.announce(batch[0].Buckets[0].Key) })
	return err
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
		// In one run of a hundred no taker is in front early enough to be granted ahead: then each
		// grant is late by its journey, 2 % of the time between two units.
		{"a bucket of one", drawgate.BucketLimit("b", 300, time.Second, 1), 0, 300, 0.0064, 0.97},
		{"a rolling window", drawgate.RollingLimit("r", 100, 2*time.Second), 0, 50, 0.25, 0.9},
		{"slots", drawgate.ConcurrencyLimit("s", 8), 20 * time.Millisecond, 400, 0.0064, 0.95},
	} {
		for _, waiters := range [][]int{{50, 50, 50, 50, 50, 50, 50, 50}, {365, 5, 5, 5, 5, 5, 5, 5}} {
			t.Run(fmt.Sprint(of.name, " ", waiters[0]), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					lasts := time.Duration(needs.Rounds(3, 6, 60)) * time.Second
					far := farAway()
					c := linetest.Throng{
						Stores: slices.Repeat([]store.Store{far}, len(waiters)), Policy: policy(of.limit),
						Hold: of.hold, Waiters: waiters, Polls: of.hold == 0,
					}
					all := c.Run(t, lasts)
					late := make([]int64, len(all))
					for i, s := range all {
						late[i] = s.Started - s.Granted
					}
					slices.Sort(late)
					passed, most, p99 := linetest.Overtaken(all), of.rate*lasts.Seconds(), late[len(late)*99/100]
					t.Logf("%d served, %.1f %% of what the limit admits, with %d calls; %d overtaken; started %d µs after the grant (p99)",
						len(all), 100*float64(len(all))/most, far.asked.Load(), passed, p99)
					n := float64(len(all))
					for i := 1; i < len(all) && of.rate == 300; i++ { // a ticket left behind would block a second
						if gap := all[i].Granted - all[i-1].Granted; gap > 100_000 {
							t.Errorf("nobody was granted for %d µs", gap)
						}
					}
					if float64(passed) > of.overtaken*n || n < of.used*most || p99 > 50_000 {
						t.Errorf("%d of %.0f were overtaken, %.0f could be served, and start %d µs late", passed, n, most, p99)
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
		c := linetest.Throng{
			Stores: slices.Repeat([]store.Store{s}, 8), Policy: policy(drawgate.BucketLimit("b", 300, time.Second, 1)),
			Waiters: []int{365, 5, 5, 5, 5, 5, 5, 5},
		}
		all := c.Run(t, 5*time.Second)
		if n := linetest.Overtaken(all); n < len(all)/10 {
			t.Errorf("%d of %d were overtaken", n, len(all))
		}
		if n := s.named.Load(); n > 0 {
			t.Errorf("it was told of %d waiters for nothing", n)
		}
	})
}

// TestWaitingForOthersCostsFewCalls: somebody who is first in line, and does not ask, does not make
// the next one ask all the time.
func TestWaitingForOthersCostsFewCalls(t *testing.T) {
	t.Parallel()
	for _, limit := range []drawgate.Limit{slots(10), of("slots", rolling(10, time.Minute))} {
		synctest.Test(t, func(t *testing.T) {
			s := farAway()
			lim := over(t, s, policy(limit))
			plan := lim.Plan()
			dead := func(n int64, id string, ticket *store.Ticket) {
				b := store.BucketCost{Key: store.Key{Policy: "p", Name: "k"}, Plan: plan.Plan, N: store.Amounts{n}}
				tk := store.Take{ID: id, Grant: 1, Hold: time.Hour, Buckets: []store.BucketCost{b}, Ticket: ticket}
				var out [1]store.Verdict
				if err := s.Take(t.Context(), []store.Take{tk}, out[:]); err != nil || out[0].Fail != nil {
					t.Fatal(err, out[0].Fail)
				}
			}
			dead(3, "a", nil)
			dead(10, "b", &store.Ticket{Number: 1, Waited: time.Second})
			before := s.asked.Load()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			_, _ = lim.Reserve(ctx, "k", time.Hour, drawgate.Cost{Unit: "slots", N: 5})
			if n := s.asked.Load() - before; n < 2 || n > 40 {
				t.Errorf("%s: %d calls in 3 s", limit.Name, n)
			}
		})
	}
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
			Buckets: []drawgate.Ask{{Key: "k", Costs: []drawgate.Cost{{Unit: "slots", N: 1}}}},
			Hold:    drawgate.Hold{For: time.Hour},
		})
		if err != nil || !d.Allowed {
			t.Errorf("allowed %v, %v", d.Allowed, err)
		}
	})
}

// TestLineIsShown: a status, a report of progress and the lines of a process say who waits in all
// processes.
//
// req: C5, U13
func TestLineIsShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := farAway()
		one, two := over(t, s, policy(slots(1))), over(t, s, policy(slots(1)))
		slot := drawgate.Cost{Unit: "slots", N: 1}
		held, err := one.Reserve(t.Context(), "k", time.Hour, slot)
		if err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var said atomic.Pointer[drawgate.Progress]
		wait := func(l *drawgate.Limiter) {
			wg.Go(func() {
				_, _ = l.Reserve(drawgate.WithProgress(ctx, func(p drawgate.Progress) { said.Store(&p) }), "k",
					time.Hour, slot)
			})
			time.Sleep(time.Second)
		}
		wait(one)
		wait(one)
		wait(two)
		if p := said.Load(); p.Place != 1 || p.Others != 2 || !p.Held {
			t.Errorf("%+v, want it to be the first of its process, behind two of another one", p)
		}
		for i, want := range []drawgate.Line{{Waiting: 2}, {Waiting: 1, Others: 2}} {
			time.Sleep(3 * time.Second) // each asks again
			got := []*drawgate.Limiter{one, two}[i].Lines()
			if len(got) != 1 || got[0].Waiting != want.Waiting || got[0].Others != want.Others || got[0].Tickets != 3 ||
				!got[0].Held || got[0].Reason != drawgate.Limited || got[0].Oldest < 3*time.Second ||
				got[0].Oldest > time.Minute {
				t.Errorf("process %d: %+v", i, got)
			}
		}
		st, err := two.Status(t.Context(), "k", slot)
		if err != nil || len(st.Line) != 3 || st.Line[0].N != (store.Amounts{1}) {
			t.Fatalf("%+v, %v", st.Line, err)
		}
		if ago := st.At().Sub(st.Line[0].Since); ago < 8*time.Second || ago > 10*time.Second {
			t.Errorf("the first one has waited for %v", ago)
		}
		three := over(t, s, policy(slots(1)))
		if err := held.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		if st, err = three.Status(t.Context(), "k", slot); err != nil || st.Allowed || st.Waiting != 0 {
			t.Errorf("one of a third process: %+v, %v", st.Decision, err)
		}
		leave()
		wg.Wait()
	})
}

// TestBackoffKeepsThePlace: with a backoff that is longer than a ticket lives, nobody of another
// process passes.
//
// req: A2, C5
func TestBackoffKeepsThePlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := farAway()
		p := policy(drawgate.BucketLimit("rate", 10, time.Second, 1))
		p.Wait.Backoff = []time.Duration{8 * time.Second}
		one, two := over(t, s, p), over(t, s, policy(drawgate.BucketLimit("rate", 10, time.Second, 1)))
		if d, err := two.Allow(t.Context(), "k"); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		var wg sync.WaitGroup
		var order []string
		var mu sync.Mutex
		wait := func(name string, l *drawgate.Limiter) {
			wg.Go(func() {
				if _, err := l.Wait(t.Context(), "k"); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name)
			})
			time.Sleep(5 * time.Millisecond)
		}
		wait("one", one)
		for range 20 {
			wait("two", two)
		}
		wg.Wait()
		if order[0] != "one" {
			t.Errorf("the first one was passed: %v", order)
		}
	})
}

// TestOwnLine: a policy may keep its waiters out of the line of all processes, and a take of a
// policy that lets callers pass is described as it is decided.
//
// req: C5
func TestOwnLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := farAway()
		own, barge := policy(slots(1)), policy(slots(1))
		own.Wait.OwnLine, barge.Wait.Barge = true, true
		slot := drawgate.Cost{Unit: "slots", N: 1}
		plan, err := own.Compile()
		if err != nil {
			t.Fatal(err)
		}
		key := store.Key{Policy: "p", Name: "k"}
		bucket := []store.BucketCost{{Key: key, Plan: plan.Plan, N: store.Amounts{1}}}
		hold := []store.Take{{ID: "id", Grant: 1, Hold: time.Hour, Buckets: bucket}}
		if out := make([]store.Verdict, 1); s.Records.Take(t.Context(), hold, out) != nil || !out[0].Allowed {
			t.Fatal(out)
		}
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wait := func(p drawgate.Policy) {
			l := over(t, s, p)
			wg.Go(func() { _, _ = l.Reserve(ctx, "k", time.Hour, slot) })
			time.Sleep(time.Second)
		}
		wait(own)
		if n := len(s.Line(key).Tickets); n != 0 {
			t.Errorf("%d tickets", n)
		}
		wait(policy(slots(1)))
		if n := len(s.Line(key).Tickets); n != 1 {
			t.Errorf("%d tickets of others", n)
		}
		full, err := over(t, s, barge).Status(t.Context(), "k", slot)
		if err != nil || full.Allowed {
			t.Errorf("the slot is held: %+v, %v", full.Decision, err)
		}
		// Both waiters stand still until the end: nobody announces this.
		free := []store.Settlement{{Op: store.OpCancel, ID: "id", Grant: 1, Buckets: bucket}}
		if out := make([]store.Outcome, 1); s.Records.Settle(t.Context(), free, out) != nil || out[0].Gone {
			t.Fatal(out)
		}
		for what, p := range map[string]drawgate.Policy{"barge": barge, "not": policy(slots(1))} {
			st, err := over(t, s, p).Status(t.Context(), "k", slot)
			if err != nil || st.Allowed != (what == "barge") || st.Allowed != (st.RetryAfter == 0) {
				t.Errorf("%s: %+v, %v", what, st.Decision, err)
			}
		}
		leave()
		wg.Wait()
	})
}

// TestStatusOfWhoPasses: what a policy that lets callers pass is told does not name a wait behind
// tickets, where its own limit refuses the take too.
//
// req: C5, U13
func TestStatusOfWhoPasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := farAway()
		plain := policy(drawgate.BucketLimit("rate", 1, time.Second, 1))
		barge := plain
		barge.Wait.Barge = true
		one := over(t, s, plain)
		take(t, one, "k", 1)
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { _, _ = over(t, s, plain).Wait(ctx, "k") })
			time.Sleep(10 * time.Millisecond)
		}
		behind, err := one.Status(t.Context(), "k")
		if err != nil || behind.Allowed || behind.RetryAfter < 3*time.Second {
			t.Errorf("one that does not pass: %+v, %v", behind.Decision, err)
		}
		st, err := over(t, s, barge).Status(t.Context(), "k")
		if err != nil || st.Allowed || st.Reason != drawgate.Limited || st.RetryAfter > time.Second ||
			len(st.Line) != 3 {
			t.Errorf("one that passes: %+v, %v", st.Decision, err)
		}
		if r, ok := st.Refusing(); !ok || r.RetryAfter != st.RetryAfter {
			t.Errorf("its limit passes it after %v, and all of them after %v", r.RetryAfter, st.RetryAfter)
		}
		leave()
		wg.Wait()
	})
}

// TestNothingIsHeld: of a limit whose units come back by themselves nothing is held up by open
// reservations, if there are none, also where those of other processes are in front.
//
// req: U13
func TestNothingIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := farAway()
		hourly := drawgate.Limit{Name: "l", Kind: drawgate.Rolling, Amount: 1, Window: time.Hour}
		one, two := over(t, s, policy(hourly)), over(t, s, policy(hourly))
		if d, err := one.Allow(t.Context(), "k"); err != nil || !d.Allowed {
			t.Fatal(d.Allowed, err)
		}
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for others, l := range []*drawgate.Limiter{one, two} {
			var said atomic.Pointer[drawgate.Progress]
			wg.Go(func() {
				_, _ = l.Wait(drawgate.WithProgress(ctx, func(p drawgate.Progress) { said.Store(&p) }), "k")
			})
			time.Sleep(time.Second)
			got := l.Lines()
			if len(got) != 1 || got[0].Others != others || got[0].Reason != drawgate.Limited || got[0].Held ||
				said.Load().Held {
				t.Errorf("behind %d: %+v, %+v", others, got, said.Load())
			}
		}
		leave()
		wg.Wait()
	})
}

// TestOthersAreOfOtherProcesses: who waits in the same process with another share of what is kept
// is not counted as one of another process, nor who stands in the line of another bucket.
//
// req: C5, U13
func TestOthersAreOfOtherProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := farAway()
		limit := slots(10)
		limit.ReservedByPriority = map[int]drawgate.Share{7: {Units: 2}}
		one, two := over(t, s, policy(limit)), over(t, s, policy(limit))
		if _, err := one.Reserve(t.Context(), "k", time.Hour, drawgate.Cost{Unit: "slots", N: 8}); err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var said atomic.Pointer[drawgate.Progress]
		wait := func(ctx context.Context, l *drawgate.Limiter, priority int) {
			wg.Go(func() {
				_, _, _ = l.Take(ctx, drawgate.Request{
					Buckets: []drawgate.Ask{l.Ask("k", drawgate.Cost{Unit: "slots", N: 4})},
					Hold:    drawgate.Hold{For: time.Hour}, Wait: true, Priority: priority,
				})
			})
			time.Sleep(time.Second)
		}
		wait(drawgate.WithProgress(ctx, func(p drawgate.Progress) { said.Store(&p) }), one, 0)
		wait(ctx, one, 9)
		for others := range 2 {
			time.Sleep(6 * time.Second) // the first one asks again
			got := one.Lines()
			if len(got) != 1 || got[0].Waiting != 2 || got[0].Tickets != 2+others || got[0].Others != others {
				t.Errorf("%d of another process: %+v", others, got)
			}
			if p := said.Load(); p.Others != others {
				t.Errorf("%d of another process: %+v", others, p)
			}
			wait(ctx, two, 8)
		}
		leave()
		wg.Wait()
	})
}

// TestPoliciesChangeWhileOthersLook: one in front looks at its policies while another one comes in
// front of it, and looks who cannot pass in time. The race detector finds what both use.
//
// req: C5
func TestPoliciesChangeWhileOthersLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := farAway()
		lim := over(t, s, policy(slots(2)))
		changed, err := lim.With(policy(slots(2)))
		if err != nil {
			t.Fatal(err)
		}
		slot := drawgate.Cost{Unit: "slots", N: 1}
		if _, err := lim.Reserve(t.Context(), "k", time.Hour, drawgate.Cost{Unit: "slots", N: 2}); err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithTimeout(t.Context(), time.Minute)
		defer leave()
		var wg sync.WaitGroup
		wait := func(priority int, refresh func(int) *drawgate.Limiter) {
			wg.Go(func() {
				_, _, _ = lim.Take(ctx, drawgate.Request{
					Buckets: []drawgate.Ask{lim.Ask("k", slot), lim.Ask("other", slot)},
					Hold:    drawgate.Hold{For: time.Hour}, Wait: true, Priority: priority, RefreshLimiter: refresh,
				})
			})
		}
		wait(0, func(i int) *drawgate.Limiter {
			time.Sleep(time.Second)
			return []*drawgate.Limiter{changed, lim}[i]
		})
		time.Sleep(900 * time.Millisecond)
		wait(5, nil)
		time.Sleep(10 * time.Second)
		leave()
		wg.Wait()
	})
}

// TestKeptUnitsInAProcess: units that are kept for a priority are not blocked by those of the same
// process who may not use them, however long these have waited; and a stream of the higher priority
// does not keep them from theirs.
//
// req: C5, D12
func TestKeptUnitsInAProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := slots(10)
		limit.ReservedByPriority = map[int]drawgate.Share{7: {Units: 2}}
		l := over(t, farAway(), policy(limit))
		take := func(priority int, n int64, wait bool) (*drawgate.Reservation, drawgate.Decision, error) {
			d, r, err := l.Take(t.Context(), drawgate.Request{
				Buckets: []drawgate.Ask{l.Ask("k", drawgate.Cost{Unit: "slots", N: n})},
				Hold:    drawgate.Hold{For: time.Hour}, Priority: priority, Wait: wait,
			})
			return r, d, err
		}
		held, d, err := take(0, 8, false)
		if err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		var wg sync.WaitGroup
		var served atomic.Bool
		wg.Go(func() {
			if r, _, err := take(0, 8, true); err != nil || r.Cancel(t.Context()) != nil {
				t.Error(err)
			}
			served.Store(true)
		})
		time.Sleep(10 * time.Minute)
		for _, wait := range []bool{true, false} {
			start := time.Now()
			r, d, err := take(7, 1, wait)
			if err != nil || !d.Allowed || time.Since(start) > time.Second {
				panic(fmt.Sprintf("of high priority, waits %v: %v after %v, %v", wait, d.Reason, time.Since(start), err)) // others still wait
			}
			if err := r.Cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		// Three at a time of high priority would leave too few for the one that waits, again and
		// again.
		ended := make(chan struct{})
		for range 3 {
			wg.Go(func() {
				for !served.Load() {
					r, _, err := take(7, 3, true)
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(100 * time.Millisecond)
					if err := r.Cancel(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		time.Sleep(time.Second)
		if st, err := l.Status(t.Context(), "k"); err != nil || st.Waiting < 1 || len(l.Lines()) != 1 {
			t.Errorf("%d wait, in the lines %+v, %v", st.Waiting, l.Lines(), err)
		}
		if err := held.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		go func() { wg.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("the one that waits is passed by others for ever")
			served.Store(true)
			wg.Wait()
		}
	})
}

// TestManyComeAtOnce: callers who ask before any of them waits leave tickets in the order in which
// the store hears of them, and only one of them is in front. Nobody waits for the others' tickets.
//
// req: C5
func TestManyComeAtOnce(t *testing.T) {
	t.Parallel()
	for seed := range 20 {
		synctest.Test(t, func(t *testing.T) {
			s := farAway()
			l, slot := over(t, s, policy(slots(1))), drawgate.Cost{Unit: "slots", N: 1}
			held, err := over(t, s, policy(slots(1))).Reserve(t.Context(), "k", time.Hour, slot)
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					r, err := l.Reserve(t.Context(), "k", time.Hour, slot)
					if err == nil {
						err = r.Cancel(t.Context())
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			time.Sleep(10 * time.Millisecond)
			start := time.Now()
			if err := held.Cancel(t.Context()); err != nil {
				t.Error(err)
			}
			wg.Wait()
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("round %d: to serve all took %v", seed, took)
			}
		})
	}
}

// TestHintsOfAnyBucket: a take of several buckets that waits is told when units of any of them come
// free, although it stands in the line of one.
//
// req: C5
func TestHintsOfAnyBucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := farAway()
		one, other := over(t, s, policy(slots(1))), drawgate.Policy{Name: "q", Limits: []drawgate.Limit{slots(1)}}
		two, err := one.With(other)
		if err != nil {
			t.Fatal(err)
		}
		slot := drawgate.Cost{Unit: "slots", N: 1}
		for l, hold := range map[*drawgate.Limiter]time.Duration{one: time.Hour, two: 2 * time.Hour} {
			if _, err := l.Reserve(t.Context(), "k", hold, slot); err != nil {
				t.Fatal(err)
			}
		}
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _, _ = one.Take(ctx, drawgate.Request{
				Buckets: []drawgate.Ask{one.Ask("k", slot), two.Ask("k", slot)}, Hold: drawgate.Hold{For: time.Minute},
				Wait: true,
			})
		})
		time.Sleep(time.Minute + 100*time.Millisecond)
		for _, p := range []string{"p", "q"} {
			before := s.asked.Load()
			s.announce(store.Key{Policy: p, Name: "k"})
			time.Sleep(5 * time.Millisecond)
			if n := s.asked.Load() - before; n != 1 {
				t.Errorf("told of %s it asked %d times", p, n)
			}
		}
		leave()
		wg.Wait()
	})
}

// turns is a store that begins to keep a line while it is used, or ends to, as a guard does whose
// store is replaced.
type turns struct {
	*far
	lines atomic.Bool
}

func (s *turns) KeepsLine() bool { return s.lines.Load() }

// TestWhoWaitsWhileTheStoreChanges: units are kept for priorities, so those who wait stand in other
// lines where the store keeps one. If it begins to while they wait, or ends to, they move there,
// are described, and are served.
//
// req: C5
func TestWhoWaitsWhileTheStoreChanges(t *testing.T) {
	t.Parallel()
	for _, lines := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := &turns{far: farAway()}
			s.lines.Store(!lines)
			limit := rolling(10, time.Minute)
			limit.ReservedByPriority = map[int]drawgate.Share{5: {Units: 2}}
			lim := over(t, s, policy(limit))
			if d, err := lim.Allow(t.Context(), "k", drawgate.Cost{N: 8}); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			waits := func(ctx context.Context) error {
				_, _, err := lim.Take(ctx, drawgate.Request{
					Buckets: []drawgate.Ask{lim.Ask("k", drawgate.Cost{N: 4})}, Wait: true, Priority: 9,
				})
				return err
			}
			var wg sync.WaitGroup
			defer wg.Wait()
			wg.Go(func() {
				if err := waits(t.Context()); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Second)
			ctx, leave := context.WithCancel(t.Context())
			wg.Go(func() {
				if err := waits(ctx); err == nil {
					t.Error("granted before the first one")
				}
			})
			time.Sleep(time.Second)
			s.lines.Store(lines)
			leave()
			time.Sleep(time.Second)
			wg.Go(func() {
				if err := waits(t.Context()); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Second)
			if l := lim.Lines(); len(l) != 1 || l[0].Waiting != 2 {
				t.Errorf("%+v, want one of 2", l)
			}
		})
	}
}

// slowly is a store to which takes that name others are some time on their way.
type slowly struct{ *far }

func (s slowly) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if k := batch[0].Ticket; k != nil && len(k.Next) > 0 {
		time.Sleep(20 * time.Millisecond)
	}
	return s.far.Take(ctx, batch, out)
}

// TestWhoLeftIsNamedNoMore: somebody leaves the line while the one in front of it is about to tell
// the store of it. Its ticket does not stay behind.
//
// req: C5
func TestWhoLeftIsNamedNoMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := slowly{farAway()}
		lim := over(t, s, policy(slots(100)))
		slot := drawgate.Cost{Unit: "slots", N: 1}
		if _, err := lim.Reserve(t.Context(), "k", time.Hour, drawgate.Cost{Unit: "slots", N: 100}); err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = lim.Reserve(ctx, "k", time.Hour, slot) })
		time.Sleep(10 * time.Millisecond)
		for i := range 200 {
			wg.Go(func() {
				ctx, leave := context.WithTimeoutCause(ctx, time.Duration(i)*5*time.Millisecond, drawgate.ErrDeadline)
				defer leave()
				_, _ = lim.Reserve(ctx, "k", time.Hour, slot)
			})
		}
		time.Sleep(1200 * time.Millisecond)
		st, err := lim.Status(t.Context(), "k")
		if err != nil || st.Waiting != 1 || len(st.Line) != 1 {
			t.Errorf("%d wait, and the line is %+v: %v", st.Waiting, st.Line, err)
		}
		end()
		wg.Wait()
	})
}
