package drawgate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/drawgate/drawgate/internal/queue"
	"github.com/drawgate/drawgate/internal/sleep"
	"github.com/drawgate/drawgate/store"
)

// WakeAll makes the first waiter of each queue, of all limiters made from each other, try again.
// Call it when the amounts have changed that come from [Request.RefreshLimiter].
func (l *Limiter) WakeAll() { l.queue.wakeAll() }

// refreshed lets t be counted by the policies that are in force by now. It is ErrNeverFits if it
// cannot fit any more. Others in its line look at its policies, too.
func (q *waitQueue) refreshed(t *take) error {
	if t.refresh == nil {
		return nil
	}
	for i := range t.Buckets {
		p := t.refresh(i) // the caller's: not under the lock
		if p == nil || p == t.plans[i] || !p.sameLimits(t.plans[i]) {
			continue
		}
		q.mu.Lock()
		t.Buckets[i].Plan, t.plans[i] = p.Plan, p
		q.mu.Unlock()
	}
	return t.fits()
}

// wait asks for t until it passes, and says in the line of which bucket it waited last, or found no
// place, and how long it waited there.
func (l *Limiter) wait(ctx context.Context, t *take) (d Decision, at int, waited time.Duration, err error) {
	if most := l.maxWait(t); most > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, most, fmt.Errorf("%w: waited %v, the most that the policy allows",
			ErrDeadline, most))
		defer cancel()
	}
	if _, ok := l.store.(store.Liner); ok && !t.ownLine() {
		t.enterLine()
		defer l.withdraw(t) //nolint:contextcheck // it goes on when the caller has left
	}
	w, d, at, err := l.enter(ctx, t)
	if w == nil || err != nil {
		return d, at, 0, err
	}
	w.progress = l.reporter(ctx, w)
	d, err = l.waitTurn(ctx, w, d)
	if err == nil && d.Delay() > 0 {
		err = l.queue.untilStart(ctx, t, &d)
	}
	return d, w.at, time.Since(w.since), err
}

// The one in front of a line asks so much earlier than its take should fit, and may be granted so
// far ahead: a wake-up, or a question, that is late by less loses nothing of what came free
// meanwhile. It is what answers take, within these bounds.
const (
	leastAhead = 10 * time.Millisecond
	mostAhead  = 250 * time.Millisecond
)

// untilStart waits until a take may start that was granted ahead. The store decided before it
// answered, so this is late rather than early.
func (q *waitQueue) untilStart(ctx context.Context, t *take, d *Decision) error {
	if sleep.For(ctx, d.Delay()+q.late) {
		return nil
	}
	t.lost = time.Now() // it was granted, and nobody will use it
	d.Allowed = false
	return t.ended(ctx, nil)
}

// maxWait returns the shortest bound that the policies of t set on waiting; 0 if none does.
func (l *Limiter) maxWait(t *take) (most time.Duration) {
	for i := range t.plans {
		if d := t.plans[i].policy.Wait.MaxWait; d > 0 && (most == 0 || d < most) {
			most = d
		}
	}
	return most
}

// enter asks once if nobody is in front, and otherwise, or if refused, takes a place in the line of
// bucket at. It is nil if there is nothing to wait for.
func (l *Limiter) enter(ctx context.Context, t *take) (w *waiter, d Decision, at int, err error) {
	if ctx.Err() != nil {
		return nil, d, 0, whyEnded(ctx, nil)
	}
	q := l.queue
	q.mu.Lock()
	q.look()
	place := q.places.Next(t.Priority, q.now())
	at, ln := q.ahead(t, place)
	if at >= 0 {
		defer q.mu.Unlock()
		front := ln.inFront(t, at, place)
		if err = reachable(ctx, front.EarliestRetry, &front); err == nil {
			w, err = q.join(ctx, t, at, place)
		}
		return w, d, at, err
	}
	q.mu.Unlock()
	news := q.wakeups.Load()
	t.showTicket(ctx, t.place.arrival.Load(), nil)
	if d, err = l.ask(ctx, t, l.step, 0); err != nil || d.Allowed {
		return nil, d, 0, err
	}
	at = d.refusingBucket()
	if err = reachable(ctx, d.EarliestRetry, &d); err != nil {
		return nil, d, at, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if behind, ok := q.afterOthers(t, &d, place); ok {
		if err = reachable(ctx, behind.EarliestRetry, &behind); err != nil {
			return nil, behind, at, err
		}
	}
	if w, err = q.join(ctx, t, at, place); err == nil && q.wakeups.Load() != news {
		w.Wake() // what has come free since the question was put may not have found anybody in the line
	}
	return w, d, at, err
}

// reporter returns what reports w's progress, or nil if nobody wants to know.
func (l *Limiter) reporter(ctx context.Context, w *waiter) *reporter {
	f, _ := ctx.Value(progressKey{}).(func(Progress))
	if f == nil {
		return nil
	}
	return &reporter{q: l.queue, w: w, f: f, peek: l.pauseOf}
}

// pauseOf returns the reason of the pause of the bucket for which w waits, and whether the store
// has said it. It has no longer than that, whatever the store needs: w does not try meanwhile.
func (l *Limiter) pauseOf(ctx context.Context, w *waiter) (reason string, ok bool) {
	var out [1]store.State
	err := l.within(ctx, "peek", stepTimeout, func(ctx context.Context) error {
		return l.store.Peek(ctx, []store.BucketCost{*w.bucket()}, w.take.Priority, out[:])
	})
	if err != nil || out[0].Fail != nil {
		return "", false
	}
	return out[0].Pause.Reason, true
}

// reachable returns ErrDeadline if ctx ends before earliest has passed. d is the refusal.
func reachable(ctx context.Context, earliest time.Duration, d *Decision) error {
	end, ok := ctx.Deadline()
	if !ok || time.Until(end) > earliest {
		return nil
	}
	e := &deadlineError{refusal: d.Err()}
	if d.Reason == Queued {
		e.text = fmt.Sprintf("other callers are ahead in the queue for at least %v", earliest)
	}
	return e
}

// waitTurn waits in line until w's take passes, and leaves the line, even if a report of its
// progress panics. last is the refusal that brought it here; empty if it has not asked yet.
func (l *Limiter) waitTurn(ctx context.Context, w *waiter, last Decision) (Decision, error) {
	defer l.queue.leave(w)
	t := w.take
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	attempt := 1
	for ask := last.Buckets() == 0; ; ask = true {
		if ctx.Err() != nil {
			refusal := last
			if last.Buckets() == 0 { // it never was in front
				refusal = l.queue.stillBehind(w)
			}
			return last, t.ended(ctx, &refusal)
		}
		if front := l.queue.front(w); front || w.invited.Load() {
			if ask = ask || w.invited.Load(); ask {
				w.invited.Store(false)
				if front { // others look at the policies of those behind
					if err := l.queue.refreshed(t); err != nil {
						return last, err
					}
				}
				t.Ahead = l.queue.lookAhead(ctx)
				at := w.at
				arrival, next := l.queue.tell(w)
				t.showTicket(ctx, arrival, next)
				asked := time.Now()
				d, err := l.ask(ctx, t, l.step, 0)
				l.queue.answered(time.Since(asked), err)
				w.asks.Store(false)
				if !front { // it was named, and so its ticket is in its place
					t.place.own.Store(false)
				}
				l.withdrawGone(t, at, next) //nolint:contextcheck // as in wait
				if err == nil && d.Allowed && front {
					l.queue.invite(w, &d)
				}
				if err != nil || d.Allowed {
					return d, err
				}
				if err := reachable(ctx, d.EarliestRetry, &d); err != nil {
					return d, err
				}
				last = d
			}
			delay := inTime(ctx, last.pause(attempt), last.RetryAfter)
			if t.place.arrival.Load() != 0 {
				delay = keepsTicket(delay, last.RetryAfter)
			}
			mine := l.queue.plan(w, &last, delay)
			if !mine {
				l.takeBack(ctx, w) // it may stand in another line now, and not in front
			}
			if last.early(t) { // a little earlier: it may be granted ahead then
				if delay -= l.queue.lookAhead(ctx); delay <= 0 && mine {
					continue
				}
			}
			if mine {
				timer.Reset(delay + l.queue.late)
			}
		} else {
			l.takeBack(ctx, w)
			d := l.queue.stillBehind(w)
			if err := reachable(ctx, d.EarliestRetry, &d); err != nil {
				return d, err
			}
		}
		timedOut, err := l.turn(ctx, w, timer)
		if err != nil {
			return Decision{}, err
		}
		if timedOut {
			attempt++
		}
	}
}

// turn waits until w should try, or ctx ends. It reports whether the timer ended the wait.
func (l *Limiter) turn(ctx context.Context, w *waiter, timer *time.Timer) (timedOut bool, err error) {
	w.progress.begin(ctx)
	for {
		select {
		case <-w.Turn:
			return false, nil
		case <-timer.C:
			return true, nil
		case <-l.queue.ended:
			return false, ErrClosed
		case <-ctx.Done():
			return false, nil
		case <-w.progress.due():
			w.progress.report(ctx)
		}
	}
}

// pausePoll is how often the one in front looks whether a pause was ended.
const pausePoll = 5 * time.Second

// early reports whether t may be granted a little before it fits: not if it was refused although it
// could have been, not where what is held may come back at any time, and not where the policy says
// when to ask.
func (d *Decision) early(t *take) bool {
	r, ok := d.Refusing()
	return ok && d.RetryAfter > t.Ahead && (d.EarliestRetry == d.RetryAfter || t.place.arrival.Load() != 0) &&
		len(d.bucket(r.Bucket-int(d.first)).policy.Wait.Backoff) == 0
}

// pause returns how long to wait after a refusal.
func (d *Decision) pause(attempt int) time.Duration {
	r, ok := d.Refusing()
	if !ok { // it is paused, perhaps for a day: another process may end that, which nothing tells
		return min(max(time.Millisecond, d.RetryAfter), pausePoll)
	}
	window := r.Limit.Window
	if r.Limit.Kind == Calendar {
		window = r.ResetAfter()
	}
	plan := d.bucket(r.Bucket)
	return queue.Refusal{
		Attempt: attempt, RetryAfter: d.RetryAfter, EarliestRetry: d.EarliestRetry,
		Spread: queue.Spread(window, r.Limit.Amount),
	}.Delay(plan.policy.Wait.Backoff, rand.Float64()) //nolint:gosec // jitter needs no secrecy
}

// inTime shortens a pause so that its jitter does not carry it over ctx's deadline.
func inTime(ctx context.Context, pause, retryAfter time.Duration) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return pause
	}
	left := time.Until(end)
	if retryAfter < left && left <= pause && pause-retryAfter <= queue.MaxJitter {
		return retryAfter + (left-retryAfter)/2
	}
	return pause
}

// ended says why waiting for t ended with ctx, and if nobody knows what has come of it. last may be
// nil.
func (t *take) ended(ctx context.Context, last *Decision) error {
	err := whyEnded(ctx, last)
	if t.lost.IsZero() {
		return err
	}
	return &GaveUpError{MaySpend: t.ID == "" || t.mine, Err: err, mine: t.mine}
}

// whyEnded says why waiting ended with ctx: with ErrDeadline if that was the policy's bound, or
// of a caller who says so. last may be nil.
func whyEnded(ctx context.Context, last *Decision) error {
	if errors.Is(ctx.Err(), context.Canceled) && !errors.Is(context.Cause(ctx), ErrDeadline) {
		return ctx.Err()
	}
	e := &deadlineError{text: "it has passed"}
	// A cause that is ErrDeadline itself has nothing to add.
	if cause := context.Cause(ctx); errors.Is(cause, ErrDeadline) && cause.Error() != ErrDeadline.Error() {
		e.text = strings.TrimPrefix(cause.Error(), ErrDeadline.Error()+": ")
	}
	if last != nil && last.Buckets() > 0 && !last.Allowed {
		e.refusal = last.Err()
	}
	return e
}
