package lease

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/drawgate/drawgate/store"
)

const ms = int64(time.Millisecond)

// one is a take of one unit.
var one = store.Amounts{1}

// ruled returns a holder of a limit of 100,000 per minute that is asked for a thousand times a
// second, by a clock that says 10 s.
func ruled(t *testing.T, kind store.Kind) *holder {
	t.Helper()
	l := store.Limit{Name: "a", Kind: kind, Amount: 100_000}
	if kind == store.Calendar {
		l.Every = store.Minute
	} else {
		l.Window = time.Minute
	}
	plan, err := store.Policy{Name: "p", Limits: []store.Limit{l}, Leased: true}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return newHolder(plan, 0, moment{at: 10_000 * ms}, 1000, int64(time.Second), &one)
}

// asking makes h ask for a lease, 10 s after its start.
func asking(t *testing.T, h *holder) *ask {
	t.Helper()
	if what := h.miss(moment{at: 10_000 * ms}, &one); what != await || h.asked == nil {
		t.Fatalf("a take without a lease: step %d, asked %v, want one that waits for what is asked", what, h.asked)
	}
	return h.asked
}

// granting is an answer that grants what was asked for, in a window that ends in 30 s.
func granting(a *ask) *store.Verdict {
	v := &store.Verdict{Allowed: true, Now: 1e15, End: 1e15 + a.hold/1000}
	v.First.Granted = a.n
	v.First.Limits[0] = store.Result{Remaining: 50_000, ResetAt: v.Now + 30_000_000}
	return v
}

// spendable reports whether a unit is granted at an instant, as entry.take decides.
func spendable(h *holder, u *units, now moment) bool {
	ok, _ := u.spend(&one)
	return ok && h.usable(u, now)
}

// The deadline is reckoned from before the take was sent, and ends earlier by a margin: a clock
// that is slow by 1000 ppm, and an answer that took long, never let the holder spend what the store
// counts no more.
func TestDeadlineIsBeforeTheStores(t *testing.T) {
	t.Parallel()
	h := ruled(t, store.Rolling)
	a := asking(t, h)
	h.answered(moment{at: 10_150 * ms}, a, granting(a), nil)
	end := float64(10_000*ms + a.hold) // by the store, at the earliest
	if latest := float64(h.cur.deadline-10_000*ms)*1.001 + 10_000*float64(ms); latest >= end {
		t.Errorf("by a clock that is slow, it is spent until %v after the store's end", time.Duration(latest-end))
	}
	if !spendable(h, h.cur, moment{at: h.cur.deadline - 1}) {
		t.Error("it is not spent until its deadline")
	}
	if spendable(h, h.cur, moment{at: h.cur.deadline}) {
		t.Error("it is spent at its deadline")
	}
}

// A hold that the store made shorter ends when the store says.
func TestShorterHold(t *testing.T) {
	t.Parallel()
	h := ruled(t, store.Rolling)
	a := asking(t, h)
	v := granting(a)
	v.End = v.Now + 200_000
	h.answered(moment{at: 10_010 * ms}, a, v, nil)
	if h.cur.deadline >= 10_200*ms {
		t.Errorf("it is spent until %v after it was asked for", time.Duration(h.cur.deadline-10_000*ms))
	}
}

// Units do not survive the edge of a calendar window: the store counted them in the earlier one.
func TestUnitsStayInTheirWindow(t *testing.T) {
	t.Parallel()
	h := ruled(t, store.Calendar)
	a := asking(t, h)
	v := granting(a)
	v.First.Limits[0].ResetAt = v.Now + 300_000 // by the store the window ends in 300 ms
	h.answered(moment{at: 10_020 * ms}, a, v, nil)
	if h.cur == nil || h.cur.deadline > 10_300*ms-h.margin {
		t.Fatalf("it is spent beyond the edge: %+v", h.cur)
	}
	// The next one is held no longer than the window lasts, and near its end there is none.
	h.drop(moment{at: 10_030 * ms})
	h.ask(moment{at: 10_030 * ms}, &one)
	if h.asked == nil || h.asked.hold >= 270*ms {
		t.Errorf("held beyond the edge: %+v", h.asked)
	}
	h.asked = nil
	if what := h.miss(moment{at: 10_250 * ms}, &one); what != goThrough {
		t.Errorf("step %d shortly before the edge, want one that goes to the store", what)
	}
}

// The holder forgets units before it gives them back: what is said to be spent is all that ever
// was.
func TestClosedBeforeGivenBack(t *testing.T) {
	t.Parallel()
	h := ruled(t, store.Rolling)
	a := asking(t, h)
	h.answered(moment{at: 10_010 * ms}, a, granting(a), nil)
	u := h.cur
	for range 3 {
		u.spend(&one)
	}
	h.drop(moment{at: 10_020 * ms})
	if len(h.ended) != 1 || h.ended[0].cancel || h.ended[0].spent != (store.Amounts{3}) || h.ended[0].grant != a.grant {
		t.Errorf("given back: %+v, want 3 spent of its own grant", h.ended)
	}
	if spendable(h, u, moment{at: 10_020 * ms}) {
		t.Error("a unit is spent that was given back")
	}
	for range 3 { // what a take of several buckets puts back is forgotten
		u.undo(&one, 1)
	}
	if spendable(h, u, moment{at: 10_020 * ms}) {
		t.Error("a unit is spent that a take of several buckets put back after the end")
	}
}

// A unit is taken off first, and the clock is read afterwards: one that was taken off in time but
// is looked at too late is not granted, and counts as spent.
func TestClockIsReadLast(t *testing.T) {
	t.Parallel()
	h := ruled(t, store.Rolling)
	a := asking(t, h)
	h.answered(moment{at: 10_010 * ms}, a, granting(a), nil)
	u := h.cur
	if ok, _ := u.spend(&one); !ok { // and then the process stands still
		t.Fatal("nothing to spend")
	}
	h.tick(moment{at: 11_000 * ms})
	if h.usable(u, moment{at: 11_000 * ms}) {
		t.Error("it is granted long after the deadline")
	}
	if len(h.ended) != 1 || h.ended[0].spent != one {
		t.Errorf("given back: %+v, want the unit counted as spent", h.ended)
	}
}

// What is no lease, whatever it says: its grant is cancelled, and nothing of it is spent.
func TestNoLease(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(h *holder, a *ask){
		"the answer is late": func(h *holder, a *ask) {
			h.answered(moment{at: a.sent.at + a.hold - h.margin}, a, granting(a), nil)
		},
		"the guard gave it": func(h *holder, a *ask) {
			v := granting(a)
			v.Fallback = true
			h.answered(moment{at: 10_001 * ms}, a, v, nil)
		},
		"the answer is lost": func(h *holder, a *ask) {
			err := &store.Error{Store: "x", Err: errors.New("timeout")}
			h.answered(moment{at: 10_100 * ms}, a, &store.Verdict{}, err)
		},
		"paused meanwhile": func(h *holder, a *ask) {
			h.paused(moment{at: 10_001 * ms})
			h.answered(moment{at: 10_002 * ms}, a, granting(a), nil)
		},
		"the machine was suspended meanwhile": func(h *holder, a *ask) {
			h.answered(moment{at: 10_002 * ms, jump: 1000 * ms}, a, granting(a), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := ruled(t, store.Rolling)
			a := asking(t, h)
			answer(h, a)
			if h.cur != nil || h.next != nil {
				t.Error("it is a lease")
			}
			if len(h.ended) != 1 || !h.ended[0].cancel || h.ended[0].id != a.id || h.ended[0].grant != a.grant {
				t.Errorf("ended: %+v, want its grant cancelled", h.ended)
			}
		})
	}
}

// An error that says that nothing was done leaves nothing to cancel.
func TestNothingToCancel(t *testing.T) {
	t.Parallel()
	h := ruled(t, store.Rolling)
	a := asking(t, h)
	h.answered(moment{at: 10_001 * ms}, a, &store.Verdict{}, &store.Error{Store: "x", Err: store.ErrNothingDone})
	if len(h.ended) != 0 {
		t.Errorf("ended: %+v, want nothing", h.ended)
	}
	if what := h.miss(moment{at: 10_002 * ms}, &one); what != goThrough {
		t.Errorf("step %d after a failure, want one that goes to the store", what)
	}
}

// Each copy of an answer but the first is ignored.
func TestAnswersCountOnce(t *testing.T) {
	t.Parallel()
	h := ruled(t, store.Rolling)
	a := asking(t, h)
	h.answered(moment{at: 10_001 * ms}, a, granting(a), nil)
	h.answered(moment{at: 10_002 * ms}, a, granting(a), nil)
	if h.next != nil || len(h.ended) != 0 {
		t.Errorf("a copy of an answer made another lease %+v, or ended one %+v", h.next, h.ended)
	}
}

// A machine that was suspended drops its leases: its monotonic clock stood still meanwhile, and the
// store's did not.
func TestSuspended(t *testing.T) {
	t.Parallel()
	h := ruled(t, store.Rolling)
	a := asking(t, h)
	h.answered(moment{at: 10_001 * ms}, a, granting(a), nil)
	if spendable(h, h.cur, moment{at: 10_002 * ms, jump: 600 * ms}) {
		t.Error("it is spent after the machine was suspended")
	}
	if !spendable(h, h.cur, moment{at: 10_002 * ms, jump: h.margin / 4}) {
		t.Error("it is not spent because a clock was adjusted a little")
	}
	if h.expire(moment{at: 10_002 * ms, jump: 600 * ms}); h.cur != nil {
		t.Error("it is kept after the machine was suspended")
	}
}

// A pause that an answer shows ends what is held, and takes are refused as paused.
func TestPaused(t *testing.T) {
	t.Parallel()
	h := ruled(t, store.Rolling)
	a := asking(t, h)
	h.answered(moment{at: 10_001 * ms}, a, granting(a), nil)
	u := h.cur
	u.spend(&store.Amounts{u.rest(0) - 1})
	h.low(moment{at: 10_300 * ms})
	v := &store.Verdict{Now: 1e15, Reason: store.Paused, RetryAfter: time.Hour, EarliestRetry: time.Hour}
	h.answered(moment{at: 10_301 * ms}, h.asked, v, nil)
	if spendable(h, u, moment{at: 10_302 * ms}) {
		t.Error("a unit is spent of a bucket that is known to be paused")
	}
	if what := h.miss(moment{at: 10_302 * ms}, &one); what != refuse {
		t.Fatalf("step %d, want a refusal", what)
	}
	var got store.Verdict
	h.refusal.describe(10_302*ms, &got)
	if got.Allowed || got.Reason != store.Paused || got.RetryAfter != time.Hour-time.Millisecond {
		t.Errorf("refused %+v, want as paused for the rest of the hour", got)
	}
	if what := h.miss(moment{at: 10_301*ms + h.life}, &one); what == retry || h.asked == nil {
		t.Errorf("step %d, asked %v: the store is not asked again after a lease life", what, h.asked)
	}
}

// A refusal is given for one lease life at most, and says when the store is asked again, or when it
// said that units come back, whichever is later.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ said, says, lasts time.Duration }{
		"soon":      {time.Microsecond, 200 * time.Millisecond, 200 * time.Millisecond}, // 200 decisions
		"in a life": {400 * time.Millisecond, 400 * time.Millisecond, 400 * time.Millisecond},
		"tomorrow":  {24 * time.Hour, 24 * time.Hour, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := ruled(t, store.Rolling)
			a := asking(t, h)
			v := &store.Verdict{Now: 1e15, Reason: store.Limited, RetryAfter: c.said, EarliestRetry: c.said}
			v.First.Limits[0].RetryAfter = c.said
			now := 10_001 * ms
			h.answered(moment{at: now}, a, v, nil)
			var got store.Verdict
			h.refusal.describe(now, &got)
			if got.RetryAfter != c.says || got.First.Limits[0].RetryAfter != c.says || got.EarliestRetry != c.said {
				t.Errorf("it says %v (limit %v, earliest %v), want %v", got.RetryAfter, got.First.Limits[0].RetryAfter,
					got.EarliestRetry, c.says)
			}
			if what := h.miss(moment{at: now + int64(c.lasts) - 1}, &one); what != refuse || h.asked != nil {
				t.Errorf("step %d, asked %v: want a refusal that costs no call", what, h.asked)
			}
			h.miss(moment{at: now + int64(c.lasts)}, &one)
			if h.asked == nil {
				t.Error("the store is not asked again")
			}
		})
	}
}

// A lease is asked for before the current one is used up, and is as large as demand.
func TestSize(t *testing.T) {
	t.Parallel()
	h := ruled(t, store.Rolling)
	a := asking(t, h)
	if n := a.n[0]; n < 200 || n > 500 { // 1,000 a second, for most of half a second
		t.Errorf("asked for %d units", n)
	}
	h.answered(moment{at: 10_001 * ms}, a, granting(a), nil)
	for n := a.n[0]; n > 0; n-- {
		if _, low := h.cur.spend(&one); low != (h.asked != nil) {
			h.takes.Add(a.n[0] - n)
			h.low(moment{at: 10_001*ms + (a.n[0]-n)*ms})
			if h.asked == nil || n <= 1 {
				t.Fatalf("with %d units left, asked %v", n, h.asked)
			}
		}
	}
	if h.asked == nil {
		t.Error("the next one was not asked for")
	}
}

// What is left at the deadline goes back, and a bucket that nobody asks for is forgotten.
func TestIdle(t *testing.T) {
	t.Parallel()
	h := ruled(t, store.Rolling)
	a := asking(t, h)
	h.answered(moment{at: 10_001 * ms}, a, granting(a), nil)
	again, idle := h.tick(moment{at: 10_002 * ms})
	if again != h.cur.deadline || idle {
		t.Errorf("again at %d, idle %t; want at the deadline", again, idle)
	}
	h.tick(moment{at: again})
	if h.cur != nil || len(h.ended) != 1 || !h.ended[0].cancel {
		t.Errorf("at the deadline there is %+v, ended %+v", h.cur, h.ended)
	}
	for again, idle = h.tick(moment{at: again}); !idle; again, idle = h.tick(moment{at: again}) {
		if again > 60_000*ms || again == math.MaxInt64 {
			t.Fatal("it is never forgotten")
		}
	}
}

// Takes that wait for a lease are part of what the next one is asked for: otherwise most of very
// many find nothing left of each, and go to the store, in the way of the next one.
func TestWaitingTakesAreAskedFor(t *testing.T) {
	t.Parallel()
	h := ruled(t, store.Rolling)
	a := asking(t, h)
	usual := a.n[0]
	for range 1000 {
		if what := h.miss(moment{at: 10_001 * ms}, &one); what != await {
			t.Fatalf("step %d, want one that waits", what)
		}
	}
	h.answered(moment{at: 10_002 * ms}, a, granting(a), nil)
	h.cur.spend(&store.Amounts{usual})
	if what := h.miss(moment{at: 10_002 * ms}, &one); what != await || h.asked.n[0] < 1000 {
		t.Errorf("step %d, asked for %d units, and 1001 takes waited; usual are %d", what, h.asked.n[0], usual)
	}
	a = h.asked
	h.answered(moment{at: 10_003 * ms}, a, granting(a), nil)
	h.next.spend(&store.Amounts{a.n[0]})
	if what := h.miss(moment{at: 10_003 * ms}, &one); what != await || h.asked.n[0] >= 1000 {
		t.Errorf("step %d, asked for %+v, and one take waited", what, h.asked)
	}
}

// An answer that nobody waited for any longer is one that came late: takes go to the store only
// after some of them in a row, each time.
func TestLateAnswers(t *testing.T) {
	t.Parallel()
	h := ruled(t, store.Rolling)
	now := moment{at: 10_000 * ms}
	for range 3 {
		for i := range lateTries {
			if what := h.miss(now, &one); what != await {
				t.Fatalf("after %d late answers: step %d, want one that waits", i, what)
			}
			now.at += h.life
			h.takes.Add(500) // they go on
			h.refused[0].Add(500)
			h.answered(now, h.asked, &store.Verdict{}, context.DeadlineExceeded)
		}
		if what := h.miss(now, &one); what != goThrough {
			t.Fatalf("after %d late answers: step %d, want one that goes to the store", lateTries, what)
		}
		h.takes.Add((h.direct - now.at) / ms)
		h.refused[0].Add((h.direct - now.at) / ms)
		now.at = h.direct
	}
	if h.miss(now, &one); h.asked == nil {
		t.Fatal("nothing was asked")
	}
	h.answered(now, h.asked, &store.Verdict{}, errors.New("refused"))
	if what := h.miss(now, &one); what != goThrough {
		t.Errorf("after an error: step %d, want one that goes to the store", what)
	}
}
