package outbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/ending"
	"github.com/drawgate/drawgate/internal/hold"
	"github.com/drawgate/drawgate/internal/sleep"
)

// Options holds what a [Client] can do without. The zero value is ready to use.
type Options struct {
	Upstream string // its name in errors, events and the circuit; "" means "upstream"
	Owner    string // whose quota it is, for events
	// how long a call's units stay held if this process dies; 0 means 30s. While it lives, holds
	// are renewed
	Hold    time.Duration
	Breaker Breaker
	// Retries is how often a call is made again after it failed, or was refused for the quota. Each
	// attempt takes from the quota. The caller's ctx bounds all of them together.
	Retries int
	// Failed says whether an error of a function that [Do] calls is a failure of the upstream; nil
	// means that every error is one. It is not asked about refusals, nor when the caller has left.
	Failed   func(error) bool
	Observer *Observer // may be nil
}

const (
	defaultHold = 30 * time.Second
	retryFirst  = 500 * time.Millisecond // before the first retry of a failure; doubled for each one after it
	retryLast   = 30 * time.Second
	pauseTime   = time.Minute // of a refusal that does not say until when
	pauseLimit  = 2 * time.Second
)

// Client makes calls to one upstream within its quota. It is safe for concurrent use.
type Client struct {
	quota    Quota
	opts     Options
	circuits *circuits
	underWay atomic.Int64
	waiting  atomic.Int64
	lastID   atomic.Uint64
}

// New returns a Client whose calls quota counts. opts may be nil.
func New(quota Quota, opts *Options) *Client {
	c := &Client{quota: quota}
	if opts != nil {
		c.opts = *opts
	}
	c.opts.Upstream = cmp.Or(c.opts.Upstream, "upstream")
	c.opts.Hold = max(hold.Min, cmp.Or(c.opts.Hold, defaultHold))
	c.circuits = newCircuits(c.opts.Breaker)
	return c
}

// Circuit returns [CircuitClosed], [CircuitOpen] or [CircuitHalfOpen], and after which time a call
// may try: of the circuit that is open longest, of the connections and the models. Those of single
// callers are not considered.
func (c *Client) Circuit() (state string, retryAfter time.Duration) {
	return worst(c.circuits.list(time.Now()))
}

func worst(list []Circuit) (state string, retryAfter time.Duration) {
	state = CircuitClosed
	for _, k := range list {
		if k.Caller == "" && (state == CircuitClosed || k.RetryAfter > retryAfter) {
			state, retryAfter = k.State, k.RetryAfter
		}
	}
	return state, retryAfter
}

// UnderWay returns how many calls of this process hold units now.
func (c *Client) UnderWay() int { return int(c.underWay.Load()) }

// State is what a [Client] does at an instant.
type State struct {
	Upstream   string
	Circuit    string        // as [Client.Circuit] returns it, with RetryAfter
	RetryAfter time.Duration // after which a call may try; 0 unless the circuit is open
	Circuits   []Circuit     // those that are not closed, also of single callers
	UnderWay   int           // calls that hold units
	Waiting    int           // calls that are not granted yet: in the queue, or while the store is asked
}

// State returns what the client does now, in this process.
func (c *Client) State() State {
	s := State{
		Upstream: c.opts.Upstream, UnderWay: c.UnderWay(), Waiting: int(c.waiting.Load()),
		Circuits: c.circuits.list(time.Now()),
	}
	s.Circuit, s.RetryAfter = worst(s.Circuits)
	return s
}

// Do makes one call: f is called once the quota has granted what call says, and not at all while
// the circuit is open. f returns what it really used, or nil if the estimate stands.
//
// If f fails, its estimate stands too unless it says what it used: costs of 0 for a call that was
// never sent. An error of f that is a *[RefusedError] says that the upstream refused it for the
// quota: that is paused for everybody. f must return when its ctx ends.
//
// Do fails with f's error, or before calling f with a *[CircuitOpenError], or as the quota says: a
// *[drawgate.LimitedError], [drawgate.ErrDeadline], [drawgate.ErrQueueFull], or a
// *[drawgate.StoreError].
func Do[T any](ctx context.Context, c *Client, call Call, f func(ctx context.Context) (T, []drawgate.Cost, error)) (T,
	error,
) {
	for try := 0; ; try++ {
		v, err, again := once(ctx, c, &call, f)
		if !again || try >= c.opts.Retries || !sleep.For(ctx, retryPause(try, err)) {
			return v, err
		}
	}
}

// Limited returns f as a function whose every call is one request of a model: the short form of
// [Do] for calls whose only cost is that they are made.
func Limited[In, Out any](c *Client, model string, f func(context.Context, In) (Out, error)) func(context.Context,
	In) (Out, error) {
	return func(ctx context.Context, in In) (Out, error) {
		return Do(ctx, c, Call{Model: model}, func(ctx context.Context) (Out, []drawgate.Cost, error) {
			out, err := f(ctx, in)
			return out, nil, err
		})
	}
}

// once makes one attempt. again says that another one may succeed.
func once[T any](ctx context.Context, c *Client, call *Call,
	f func(ctx context.Context) (T, []drawgate.Cost, error),
) (v T, err error, again bool) {
	r, err := c.begin(ctx, call)
	if err != nil {
		return v, err, false
	}
	var used []drawgate.Cost
	over := false
	defer func() {
		if !over { // f panicked
			r.failed(nil)
		}
	}()
	r.event.Sent = time.Now()
	v, used, err = f(r.hold.Context())
	r.event.Answered = time.Now()
	over = true
	if cause := context.Cause(r.hold.Context()); errors.Is(cause, ErrHoldLost) && err != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	refused, isRefused := errors.AsType[*RefusedError](err)
	if !isRefused {
		r.event.Err = err
	}
	switch {
	case err == nil:
		r.succeeded(used)
	case isRefused:
		r.refused(used, refused.Until, refused.Reason)
		return v, err, true
	case errors.Is(ctx.Err(), context.Canceled), c.opts.Failed != nil && !c.opts.Failed(err):
		r.dropped(used)
	default:
		r.failed(used)
		return v, err, true
	}
	return v, err, false
}

// retryPause returns how long to wait before the next attempt. After a refusal the queue waits.
func retryPause(try int, err error) time.Duration {
	if errors.Is(err, ErrRefused) {
		return 0
	}
	d := min(retryLast, retryFirst<<min(try, 10))
	return d/2 + rand.N(d/2) //nolint:gosec // jitter needs no secrecy
}

// running is a call that holds units. Exactly one of succeeded, refused, failed, dropped and unsent
// ends it.
type running struct {
	c       *Client
	call    *Call
	attempt attempt
	grant   Grant
	hold    *hold.Hold
	began   time.Time     // when it entered
	granted time.Time     // no later than the store's decision
	margin  time.Duration // how long after granted it may reach the upstream; 0: any time
	event   Event
	once    sync.Once
}

// begin takes what a call costs, and lets it through the circuit. The circuit is asked before, so
// that a call neither spends nor waits while it is open, and again after a wait: it may have opened
// meanwhile. Only then does a trial begin: a call that waits in the queue, perhaps for hours, must
// not keep the others from trying.
func (c *Client) begin(ctx context.Context, call *Call) (*running, error) {
	began := time.Now()
	asking := *call
	asking.Asked = began
	call = &asking
	if open := c.circuits.ask(call, began); open != nil {
		return nil, c.turnedAway(call, 0, began, open)
	}
	id := c.lastID.Add(1)
	c.opts.Observer.asking(&Event{
		ID: id, Upstream: c.opts.Upstream, Owner: c.opts.Owner, Model: call.Model, Series: call.Series,
		Priority: call.Priority, Labels: call.Labels, Estimate: call.Costs, Asked: began,
	})
	g, err := c.take(ctx, call)
	if err != nil {
		c.observe(&Event{
			ID: id, Model: call.Model, Series: call.Series, Priority: call.Priority, Labels: call.Labels,
			Outcome:  NotGranted,
			Estimate: call.Costs, Err: err, Asked: began, Queued: time.Since(began),
		})
		return nil, err
	}
	now := time.Now()
	a, open := c.circuits.begin(call, now)
	if open != nil {
		c.cancel(ctx, call, g)
		return nil, c.turnedAway(call, id, began, open)
	}
	r := &running{c: c, call: call, attempt: a, grant: g, began: began}
	r.granted = g.Deadline().Add(-c.opts.Hold + c.opts.Hold/1000)
	if r.granted.After(now) {
		r.granted = now
	}
	r.margin = margin(g.Decision())
	r.event = Event{
		ID: id, Upstream: c.opts.Upstream, Owner: c.opts.Owner, Model: call.Model, Series: call.Series,
		Priority: call.Priority, Labels: call.Labels,
		Decision: *g.Decision(), Estimate: call.Costs, Asked: began,
		Granted: r.granted, Queued: now.Sub(began), UnderWay: int(c.underWay.Add(1)),
	}
	c.opts.Observer.granted(&r.event)
	r.hold = hold.Keep(ctx, g, hold.Options{
		Package: "outbound", For: c.opts.Hold, Lost: ErrHoldLost, Report: func(err error) { c.holdFailed(call, err) },
	})
	return r, nil
}

// take takes what a call costs.
func (c *Client) take(ctx context.Context, call *Call) (Grant, error) {
	c.waiting.Add(1)
	defer c.waiting.Add(-1)
	return c.quota.Take(ctx, call, c.opts.Hold)
}

// turnedAway is the error of a call that an open circuit stopped.
func (c *Client) turnedAway(call *Call, id uint64, began time.Time, open *Circuit) error {
	err := &CircuitOpenError{
		Upstream: c.opts.Upstream, Model: open.Model, Caller: open.Caller, RetryAfter: open.RetryAfter,
		Recovery: time.Now().Add(open.RetryAfter),
	}
	c.observe(&Event{
		ID: id, Model: call.Model, Series: call.Series, Priority: call.Priority, Labels: call.Labels,
		Outcome:  TurnedAway,
		Estimate: call.Costs, Err: err, Asked: began, Queued: time.Since(began),
	})
	return err
}

// cancel gives a grant back that nobody uses.
func (c *Client) cancel(ctx context.Context, call *Call, g Grant) {
	ctx, stop := ending.Context(ctx)
	defer stop()
	if err := g.Cancel(ctx); err != nil && !errors.Is(err, drawgate.ErrGone) {
		c.holdFailed(call, fmt.Errorf("outbound: what was held for a call that is not made ends by itself, as used: %w",
			err))
	}
}

func (c *Client) holdFailed(call *Call, err error) {
	c.observe(&Event{Model: call.Model, Series: call.Series, Outcome: HoldFailed, Err: err})
}

// margin returns the shortest margin of the limits that have one: a call that reaches the upstream
// later than that may be counted in a window in which its units are not held.
func margin(d *drawgate.Decision) (least time.Duration) {
	for r := range d.Limits() {
		if m := r.Limit.Margin; m > 0 && (least == 0 || m < least) {
			least = m
		}
	}
	return least
}

// late reports whether the call may not be sent any more.
func (r *running) late() bool { return r.margin > 0 && time.Since(r.granted) > r.margin }

func (r *running) succeeded(used []drawgate.Cost) {
	r.end(Succeeded, func() {
		r.upstreamAnswered()
		r.settle(used)
	})
}

// upstreamAnswered tells the circuits that the upstream is up.
func (r *running) upstreamAnswered() { r.c.circuitsChanged(r.attempt.succeeded(time.Now())) }

func (r *running) failed(used []drawgate.Cost) {
	r.end(Failed, func() {
		r.c.circuitsChanged(r.attempt.failed(time.Now()))
		r.settle(used)
	})
}

// dropped is for a call that says nothing about the upstream: its caller left.
func (r *running) dropped(used []drawgate.Cost) {
	r.end(GaveUp, func() {
		r.attempt.dropped()
		r.settle(used)
	})
}

// unsent is for a call of which nothing reached the upstream. failed says that this is not the
// caller's fault, and connected that there was a connection.
func (r *running) unsent(failed, connected bool) {
	outcome := GaveUp
	if failed {
		outcome = Failed
	}
	r.end(outcome, func() {
		switch now := time.Now(); {
		case !failed:
			r.attempt.dropped()
		case connected:
			r.c.circuitsChanged(r.attempt.failed(now))
		default:
			r.c.circuitsChanged(r.attempt.unreachable(now))
		}
		r.c.opts.Observer.ended(&r.event)
		r.event.Unsettled = r.hold.Cancel()
	})
}

// refused is for a call that the upstream refused for the quota, which is closed until an instant.
func (r *running) refused(used []drawgate.Cost, until time.Time, reason string) {
	r.end(Refused, func() {
		r.upstreamAnswered()
		r.event.Until, r.event.Reason = until, reason
		r.pause(until, reason)
		r.settle(used)
	})
}

// notOffered is for a call of a model that the upstream does not offer. Other models may share the
// quota, which stays open.
func (r *running) notOffered(used []drawgate.Cost, reason string) {
	r.end(Refused, func() {
		r.upstreamAnswered()
		r.event.Reason = reason
		r.settle(used)
	})
}

// pause closes the quota for everybody.
func (r *running) pause(until time.Time, reason string) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(r.hold.Context()), pauseLimit)
	defer stop()
	p := drawgate.Pause{Until: until, Reason: cmp.Or(reason, "the upstream refused a call")}
	if !until.After(time.Now()) {
		p.Until, p.For = time.Time{}, pauseTime
	}
	p.Until = earlier(p.Until, time.Now().Add(drawgate.MaxHold-time.Minute))
	if err := r.c.quota.Pause(ctx, r.call, p); err != nil {
		r.event.Err = fmt.Errorf("outbound: the quota could not be paused: %w", err)
	}
}

func earlier(t, most time.Time) time.Time {
	if !t.IsZero() && t.After(most) {
		return most
	}
	return t
}

func (r *running) settle(used []drawgate.Cost) {
	r.event.Used = used
	r.c.opts.Observer.ended(&r.event)
	r.event.Unsettled = r.hold.End(used...)
}

// end ends the call, once.
func (r *running) end(o Outcome, f func()) {
	r.once.Do(func() {
		r.event.Outcome, r.event.Ended = o, time.Now()
		f()
		r.c.underWay.Add(-1)
		r.event.Took = time.Since(r.began)
		r.c.observe(&r.event)
	})
}
