package drawgate

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/drawgate/drawgate/internal/sleep"
	"github.com/drawgate/drawgate/store"
)

// An attempt is one call of the store. This file says how long it may take, when it is made again,
// and what its error means.

// Attempts to get an answer where asking again is safe, because the id makes it so.
const (
	maxAttempts = 3
	firstRetry  = 20 * time.Millisecond
)

// ask gets an answer of the store, in at most step per attempt and all in all; 0 bounds nothing. A
// take with an id is sent again if the store is unavailable: if it had arrived, it is answered
// again at no cost, unless its hold is over by then. A plain take may have been spent, and is not
// sent again.
func (l *Limiter) ask(ctx context.Context, t *take, step, all time.Duration) (Decision, error) {
	if t.ID == "" {
		return l.tryOnce(ctx, t, step)
	}
	start := time.Now()
	for i := 0; ; i++ {
		d, err := l.tryOnce(ctx, t, step)
		if !errors.Is(err, ErrStoreUnavailable) || i == maxAttempts-1 || ctx.Err() != nil {
			return d, err
		}
		pause := retryPause(i)
		if !t.lost.IsZero() && time.Since(start)+pause >= t.Hold { // its hold may be over: it would count again
			return d, err
		}
		if all > 0 {
			if step = all - time.Since(start) - pause; step <= 0 {
				return d, err
			}
		}
		if !sleep.For(ctx, pause) {
			return d, err
		}
	}
}

// retryPause returns the pause after failed attempt i, with jitter.
func retryPause(i int) time.Duration {
	d := firstRetry << (2 * i)
	return d/2 + rand.N(d) //nolint:gosec // jitter needs no secrecy
}

// tryOnce makes one store call within timeout. It notes in t if nobody knows what has come of it.
func (l *Limiter) tryOnce(ctx context.Context, t *take, timeout time.Duration) (Decision, error) {
	if ctx.Err() != nil {
		return Decision{}, t.ended(ctx, nil)
	}
	if l.queue.closed.Load() {
		return Decision{}, ErrClosed
	}
	var sent time.Time
	if t.Hold > 0 || t.place.number != 0 {
		sent = time.Now()
	}
	if l.local != nil && t.ID == "" && len(t.Buckets) == 1 && t.plans[0] == l.plan &&
		t.Buckets[0].Key.Tenant == l.tenant {
		b := &t.Buckets[0]
		d, err := takeLocal(l.local, l.plan, b.Key.Name, b.N, t.Priority)
		if err != nil || d.Allowed || d.RetryAfter > t.Ahead {
			return d, err
		}
	}
	if l.held != nil && t.ID == "" && t.Ahead == 0 && !t.Given && len(t.Buckets) == 1 {
		v, ok := l.held.TakeHeld(t.Buckets[0], t.Priority)
		if ok && (v.Allowed || t.Ticket == nil) { // who waits is refused by the store, which has the line
			t.place.lies.Store(false)
			return t.decision(&v), nil
		}
	}
	var out [1]store.Verdict
	err := l.within(ctx, "take", timeout, func(ctx context.Context) error {
		if err := l.store.Take(ctx, []store.Take{t.Take}, out[:]); err != nil {
			return err
		}
		return out[0].Fail
	})
	if err != nil {
		if l.local == nil && !nothingDone(err) && !errors.Is(err, store.ErrNothingDone) {
			t.lost = time.Now()
		}
		stored := l.storeError(ctx, "take", err)
		if timeIsUp(ctx) && !nothingDone(err) {
			stored = t.gaveUp(ctx, stored)
		}
		return Decision{}, stored
	}
	if out[0].Allowed {
		t.lost = time.Time{}
	}
	l.learnPlace(t, &out[0], sent)
	d := t.decision(&out[0])
	if t.Hold > 0 && d.more != nil {
		d.more.sent = sent
	}
	return d, nil
}

// settle makes one store call, and tells the observer.
func (l *Limiter) settle(ctx context.Context, s *store.Settlement) (store.Outcome, error) {
	return l.settleWithin(ctx, s, l.step)
}

func (l *Limiter) settleWithin(ctx context.Context, s *store.Settlement, step time.Duration) (store.Outcome, error) {
	if l.watch == nil || l.watch.Settled == nil {
		return l.settleOnce(ctx, s, step)
	}
	start := time.Now()
	out, err := l.settleOnce(ctx, s, step)
	l.watch.Settled(&Settled{Settlement: s, Outcome: out, Err: err, Took: time.Since(start)})
	return out, err
}

func (l *Limiter) settleOnce(ctx context.Context, s *store.Settlement, step time.Duration) (store.Outcome, error) {
	if ctx.Err() != nil {
		return store.Outcome{}, whyEnded(ctx, nil)
	}
	var out [1]store.Outcome
	err := l.within(ctx, s.Op.String(), step, func(ctx context.Context) error {
		if err := l.store.Settle(ctx, []store.Settlement{*s}, out[:]); err != nil {
			return err
		}
		return out[0].Err
	})
	if err != nil {
		return store.Outcome{}, l.storeError(ctx, s.Op.String(), err)
	}
	return out[0], nil
}

// within calls the store with a deadline; a store in memory needs none.
func (l *Limiter) within(ctx context.Context, op string, timeout time.Duration,
	f func(context.Context) error,
) (err error) {
	if l.watch != nil {
		start := time.Now()
		defer func() { l.watch.called(op, start, err) }()
	}
	if l.local == nil && timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return f(ctx)
}

// storeError makes sure that what a store reports is one of our errors.
func (l *Limiter) storeError(ctx context.Context, op string, err error) error {
	if nothingDone(err) || errors.Is(err, ErrStoreUnavailable) {
		return err
	}
	if ctx.Err() != nil {
		return whyEnded(ctx, nil)
	}
	return &StoreError{Store: "custom", Op: op, Err: err}
}

// nothingDone reports whether a store's error says that certainly nothing was done.
func nothingDone(err error) bool {
	for _, e := range [...]error{ErrClosed, ErrIDReused, ErrIDOpen, ErrInvalid, ErrTooManyOpen, ErrNeedsReserve} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// gaveUp is ended for a call that was running when the caller's time ran out, or when it
// left.
func (t *take) gaveUp(ctx context.Context, err error) error {
	why := t.ended(ctx, nil)
	if g, ok := errors.AsType[*GaveUpError](why); ok && errors.Is(ctx.Err(), context.DeadlineExceeded) &&
		errors.Is(err, ErrStoreUnavailable) {
		g.Store = err
	}
	return why
}

// timeIsUp reports whether ctx has ended, or is about to: a store may have seen its deadline first.
func timeIsUp(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(end)
}
