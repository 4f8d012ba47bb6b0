// Package admit decides one request to a server, immediately or after a wait: what httplimit and
// grpclimit have in common.
package admit

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/internal/failure"
	"github.com/drawgate/drawgate/internal/hold"
	"github.com/drawgate/drawgate/store"
)

// Options are those that both packages have, with the same meaning.
type Options struct {
	Package  string // the prefix of errors
	Wait     time.Duration
	Queue    int
	Hold     time.Duration
	FailOpen bool
	Lost     error // the cause with which a handler's context ends if its hold is lost
}

// Defaults of Options.
const (
	defaultHold  = 30 * time.Second
	defaultQueue = 1000
)

// Limiter decides the requests of one middleware, and lets them wait. It is safe for concurrent
// use.
type Limiter struct {
	opts    Options
	waiting atomic.Int64
}

// New returns a Limiter, or an error about the options.
func New(o Options) (*Limiter, error) {
	if o.Hold == 0 {
		o.Hold = defaultHold
	}
	if o.Queue == 0 {
		o.Queue = defaultQueue
	}
	if o.Hold < hold.Min || o.Hold > drawgate.MaxHold {
		return nil, fmt.Errorf("%s: hold %v is not between %v and %v", o.Package, o.Hold, hold.Min, drawgate.MaxHold)
	}
	if o.Wait < 0 || o.Queue < 0 {
		return nil, fmt.Errorf("%s: wait %v and queue %d must not be negative", o.Package, o.Wait, o.Queue)
	}
	return &Limiter{opts: o}, nil
}

// Bucket is a bucket that every request may be counted in.
type Bucket struct {
	Limiter *drawgate.Limiter
	Costs   bool // requests say what they cost
}

// Check returns an error if the buckets cannot be taken together.
func (l *Limiter) Check(buckets []Bucket) error {
	if n := len(buckets); n == 0 || n > store.MaxBuckets {
		return fmt.Errorf("%s: %d buckets, but 1 to %d are allowed", l.opts.Package, n, store.MaxBuckets)
	}
	names := map[string]bool{}
	var asks []drawgate.Ask
	for i, b := range buckets {
		if b.Limiter == nil {
			return fmt.Errorf("%s: bucket %d has no limiter", l.opts.Package, i+1)
		}
		plan := b.Limiter.Plan()
		if names[plan.Name()] {
			return fmt.Errorf("%s: two buckets are of policy %q: give one of them another name", l.opts.Package,
				plan.Name())
		}
		names[plan.Name()] = true
		ask := drawgate.Ask{Limiter: b.Limiter, Key: l.opts.Package}
		if b.Costs {
			ask.Costs = []drawgate.Cost{{Unit: plan.Policy().Limits[0].Unit, N: 1}}
		}
		asks = append(asks, ask)
	}
	// This takes nothing. It lets the library check which limiters can be mixed, and whether
	// requests that name no unit would take any.
	if _, err := asks[0].Limiter.Resume(l.opts.Package, 1, time.Now(), asks...); err != nil {
		return fmt.Errorf("%s: the buckets cannot be taken together: %w", l.opts.Package, err)
	}
	return nil
}

// CheckEngine returns an error if the engine would count no request.
func (l *Limiter) CheckEngine(e *engine.Engine) error {
	switch {
	case e == nil:
		return fmt.Errorf("%s: there is no engine", l.opts.Package)
	case len(e.Config().Rules) == 0 && !e.Config().Off:
		return fmt.Errorf("%s: the engine has no rules, which say what counts a request", l.opts.Package)
	}
	return nil
}

// Take is what to take for one request: Asks, or what the rules of Engine choose for Attributes.
type Take struct {
	Asks       []drawgate.Ask
	Holds      bool // one of Asks needs a hold
	Engine     *engine.Engine
	Attributes *rules.Attributes
	Priority   int

	attempts engine.Attempts
}

// Add asks for units from another bucket; nil costs are one request.
func (t *Take) Add(l *drawgate.Limiter, key string, costs []drawgate.Cost) {
	t.Asks = append(t.Asks, drawgate.Ask{Limiter: l, Key: drawgate.BoundedKey(key), Costs: costs})
	t.Holds = t.Holds || l.Plan().NeedsHold()
}

// Answer is the outcome of a take. A refusal is not an error, unless it ended the wait.
type Answer struct {
	Decision drawgate.Decision
	Applied  []engine.Applied // of an engine
	Asked    []drawgate.Ask   // of an engine, with Err: what was asked of each bucket
	Held     hold.Held        // nil: nothing is held
	Full     bool             // refused because too many requests wait
	Err      error            // it was not decided

	result *engine.Result // of an engine
}

// Waiting returns how many requests wait.
func (l *Limiter) Waiting() int { return int(l.waiting.Load()) }

// Decide decides a take, and lets it wait if it may.
func (l *Limiter) Decide(ctx context.Context, t *Take) Answer {
	a := l.WaitAfter(ctx, t, l.ask(ctx, t, false))
	if a.result != nil {
		a.end(ctx, t)
	}
	return a
}

// end completes the answer of an engine by its shadows, which are evaluated once for all that was
// asked.
func (a *Answer) end(ctx context.Context, t *Take) {
	t.attempts.End(a.result, a.Err)
	switch {
	case !a.result.Held():
	case a.Err == nil && a.Decision.Allowed:
		a.Held = &held{a.result}
	default: // shadows hold units for a request that is not served
		_ = a.result.Settle(context.WithoutCancel(ctx)) // an error of a shadow has no effect
	}
}

// WaitAfter is Decide for a take whose first answer is known. Its result is never older than the
// end of the wait.
func (l *Limiter) WaitAfter(ctx context.Context, t *Take, a Answer) Answer {
	o := &l.opts
	if a.Err != nil || a.Decision.Allowed || o.Wait == 0 || a.Decision.RetryAfter == drawgate.Never ||
		a.Decision.EarliestRetry > o.Wait {
		return a
	}
	if l.waiting.Add(1) > int64(o.Queue) {
		l.waiting.Add(-1)
		a.Full = true
		return a
	}
	defer l.waiting.Add(-1)
	until, cancel := context.WithTimeoutCause(ctx, o.Wait, drawgate.ErrDeadline)
	defer cancel()
	w := l.ask(until, t, true)
	switch kind := failure.Of(w.Err); {
	case ctx.Err() != nil:
		return w
	case kind == failure.QueueFull:
		a.Full = true
		return a
	case kind == failure.TimedOut:
		return l.ask(ctx, t, false) // the refusal from before the wait is out of date
	}
	return w
}

// ask asks once, or in the queue.
func (l *Limiter) ask(ctx context.Context, t *Take, wait bool) (a Answer) {
	if t.Engine != nil {
		return l.askEngine(ctx, t, wait)
	}
	req := drawgate.Request{Buckets: t.Asks, Wait: wait, Priority: t.Priority}
	if t.Holds {
		req.Hold.For = l.opts.Hold
	}
	var res *drawgate.Reservation
	if a.Decision, res, a.Err = t.Asks[0].Limiter.Take(ctx, req); res != nil {
		a.Held = res
	}
	return a
}

func (l *Limiter) askEngine(ctx context.Context, t *Take, wait bool) Answer {
	r := engine.Request{
		Attributes: t.Attributes, Wait: wait, Hold: l.opts.Hold, HoldIfNeeded: true,
		Priority: t.Priority, Attempts: &t.attempts,
	}
	res, err := t.Engine.Take(ctx, &r)
	return Answer{Decision: res.Decision, Applied: res.Applied, Asked: res.Asked(), Err: err, result: &res}
}

// held is a hold of an engine.
type held struct{ *engine.Result }

// Deadline implements [hold.Held]. A hold of shadows alone is never lost.
func (h *held) Deadline() time.Time {
	if h.Reservation == nil {
		return time.Now().Add(time.Hour)
	}
	return h.Reservation.Deadline()
}

// Keep renews the hold of a request while its handler runs; report is called with errors.
func (l *Limiter) Keep(ctx context.Context, h hold.Held, report func(error)) *hold.Hold {
	return hold.Keep(ctx, h, hold.Options{
		Package: l.opts.Package, For: l.opts.Hold, FailOpen: l.opts.FailOpen,
		Lost: l.opts.Lost, Report: report,
	})
}
