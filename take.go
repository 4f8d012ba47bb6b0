package drawgate

import (
	"context"
	"slices"
	"time"

	"github.com/drawgate/drawgate/store"
)

// Allow decides now: may this take of key pass? Without costs it asks for one request; a policy
// without a limit of requests needs costs; without them the error is ErrUnknownUnit. A cost of 0
// counts as a cost.
//
// A refusal is a Decision, not an error; it costs nothing. The error is ErrNeverFits,
// ErrUnknownUnit, ErrInvalid or ErrNeedsReserve if the request itself is wrong, ErrClosed, ctx's
// error (a *[GaveUpError] if the store was being asked), or a *[StoreError] if the store could not
// decide (the Decision is then not Allowed). Where others wait for the bucket the answer is a
// refusal with the reason [Queued].
func (l *Limiter) Allow(ctx context.Context, key string, costs ...Cost) (d Decision, err error) {
	if !l.plain && !l.near || len(costs) != 0 || len(key) > longKey || !l.queue.idle() || ctx.Err() != nil {
		return l.allow(ctx, key, costs)
	}
	if l.near {
		if d.near(l, l.held, store.BucketCost{Key: l.keyOf(&Ask{Key: key}), Plan: l.plan.Plan, N: l.one}) {
			return d, nil
		}
		return l.allow(ctx, key, costs)
	}
	if l.lean && d.lean(l.local, l.plan, key, l.one[0], 0) {
		return d, nil
	}
	err = d.local(l.local, l.plan, key, &l.one, 0)
	return d, err
}

// allow is the long way: apart, so that the short one stays short.
func (l *Limiter) allow(ctx context.Context, key string, costs []Cost) (Decision, error) {
	d, _, err := l.Take(ctx, Request{Buckets: []Ask{{Key: key, Costs: costs}}})
	return d, err
}

// Wait is like [Limiter.Allow], but waits in the queue until the take fits: by priority and
// arrival, among the callers of all processes where the store keeps a line of them (Redis,
// PostgreSQL, SQLite), and otherwise among those of this one.
//
// It ends with ErrDeadline at once if ctx's deadline (or the policy's MaxWait) could not be met
// even if everything that is held were given back now, with ErrQueueFull if too many are already
// waiting, and with ctx's error if ctx ends first. Nothing is spent then, unless the error is a
// *[GaveUpError]: the store was being asked when ctx ended.
func (l *Limiter) Wait(ctx context.Context, key string, costs ...Cost) (Decision, error) {
	d, _, err := l.Take(ctx, Request{Buckets: []Ask{{Key: key, Costs: costs}}, Wait: true})
	return d, err
}

// Reserve takes units and holds them for at most hold. It waits like [Limiter.Wait]; a ctx without
// deadline waits as long as the policy allows. [Limiter.Take] can do it without waiting.
//
// Every Reserve should be followed by a Settle or Cancel before its deadline; work that takes
// longer must renew it. The errors are those of Wait.
func (l *Limiter) Reserve(ctx context.Context, key string, hold time.Duration, costs ...Cost) (*Reservation, error) {
	if hold == 0 {
		return nil, errHold(hold)
	}
	d, res, err := l.Take(ctx, Request{Buckets: []Ask{{Key: key, Costs: costs}}, Wait: true, Hold: Hold{For: hold}})
	if err == nil {
		err = d.Err()
	}
	return res, err
}

// Take decides a take with all its options. A refusal is a Decision, not an error; the errors are
// those of Allow, and with r.Wait those of Wait. The Reservation is nil unless the take was allowed
// and r.Hold says how long to hold it.
func (l *Limiter) Take(ctx context.Context, r Request) (Decision, *Reservation, error) {
	if err := r.Hold.check(); err != nil {
		return Decision{}, nil, err
	}
	t, err := l.take(&r)
	if err == nil {
		err = t.fits()
	}
	if err != nil {
		return Decision{}, nil, err
	}
	d, err := l.decide(ctx, t, r.Wait)
	if err != nil || !d.Allowed || t.Hold == 0 {
		return d, nil, err
	}
	return d, l.reservation(t, d), nil
}

// decide decides now, or waits, and tells the observer.
func (l *Limiter) decide(ctx context.Context, t *take, wait bool) (d Decision, err error) {
	if t.ID != "" && !t.mine {
		defer func() { //nolint:contextcheck // the cancellation goes on when the caller has left
			if !t.lost.IsZero() && (err != nil || !d.Allowed) {
				l.given.cancel(t, l.settle, l.queue.wake)
			}
		}()
	}
	if l.watch == nil || l.watch.Taken == nil {
		if wait {
			d, _, _, err = l.wait(ctx, t)
			return d, err
		}
		return l.try(ctx, t)
	}
	e := Taken{Take: &t.Take, Wait: wait}
	start := time.Now()
	if wait {
		d, e.QueuedAt, e.Queued, err = l.wait(ctx, t)
	} else {
		d, err = l.try(ctx, t)
	}
	e.Decision, e.Err, e.Took = &d, err, time.Since(start)
	l.watch.Taken(&e)
	return d, err
}

// try decides now, behind those who wait.
func (l *Limiter) try(ctx context.Context, t *take) (Decision, error) {
	if d, refused := l.queue.queued(t); refused {
		if err := ctx.Err(); err != nil {
			return Decision{}, err
		}
		return d, nil
	}
	t.Barge = !slices.ContainsFunc(t.plans, func(p *Plan) bool { return !p.policy.Wait.Barge })
	return l.ask(ctx, t, l.timeout, l.timeout)
}

// Handle is one key of a [Limiter], for code that limits only one thing.
type Handle struct {
	l   *Limiter
	key string
}

// Key returns a handle on one key.
func (l *Limiter) Key(key string) Handle { return Handle{l, key} }

// Allow reports whether one request may pass now. It is false if the store cannot decide.
func (h Handle) Allow() bool {
	d, err := h.l.Allow(context.Background(), h.key)
	return err == nil && d.Allowed
}

// Wait waits until one request may pass: see [Limiter.Wait].
func (h Handle) Wait(ctx context.Context) error {
	_, err := h.l.Wait(ctx, h.key)
	return err
}
