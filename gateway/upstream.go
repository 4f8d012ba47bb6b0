package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/internal/failure"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/spend"
)

// upstream is an [Upstream] in force.
type upstream struct {
	config    *Upstream
	client    *outbound.Client
	transport *outbound.Transport
	secret    *redactor // of its key
}

// upstream puts one in force.
func (h *Handler) upstream(u *Upstream, prices *llm.Prices) *upstream {
	client := outbound.New(&quota{h, u.Name, u.owner()}, &outbound.Options{
		Upstream: u.Name, Owner: u.owner(), Hold: u.Hold, Breaker: u.Breaker, Retries: u.Retries,
		Observer: h.opts.Observer,
	})
	secret := newRedactor(string(u.Key))
	opts := &outbound.TransportOptions{
		Base: &watch{
			base: h.opts.Base, secret: secret,
			silence: cmp.Or(u.Silence, defaultSilence), whole: cmp.Or(u.Duration, defaultDuration),
		},
		Prices: prices, Call: countCaller, Tokens: h.opts.Spend != nil,
	}
	if u.Likely {
		e := &llm.Estimator{}
		opts.Estimate, opts.Ended = e.Likely, e.Learn
	}
	return &upstream{u, client, outbound.NewTransport(client, u.Profile, opts), secret}
}

// ask is how a call is counted, and what was granted. It is in the context of the call.
type ask struct {
	key    *Key
	secret [sha256.Size]byte // SHA-256 of what the caller showed
	model  *Model
	caller *rules.Attributes
	labels []drawgate.Label
	from   []string      // as in [outbound.Call]
	level  int           // its priority
	wait   time.Duration // longest wait in the queue; 0: none
	race   *race         // of several accounts, of which this is one; nil: there is none

	decision drawgate.Decision // of the latest grant
	queued   time.Duration     // until it was granted
}

type askKey struct{}

// askOf returns the ask of a call, which has one.
func askOf(ctx context.Context) *ask {
	a, _ := ctx.Value(askKey{}).(*ask)
	return a
}

// countCaller says how a call is counted, in addition to what its body says.
func countCaller(r *http.Request, _ *llm.Call, count *outbound.Call) error {
	a := askOf(r.Context())
	count.Series = a.model.Name
	count.Caller, count.Labels, count.From = a.caller, a.labels, a.from
	count.Priority, count.NoWait = a.level, a.wait <= 0
	return nil
}

// errStopping ends waits in the queue.
var errStopping = errors.New("gateway: this process is stopping: send the call again, to another one")

// quota is the quota of an upstream: a policy by the call's model, under the owner's key.
type quota struct {
	h        *Handler
	upstream string
	owner    string
}

var _ outbound.Quota = (*quota)(nil)

func (q *quota) policies(a *ask) *outbound.Policies {
	return &outbound.Policies{
		Engine: q.h.engine, Owner: q.owner,
		Policy: func(string) (string, error) { return a.model.Policy, nil },
	}
}

// counted returns policies that also count what a call spends.
func (q *quota) counted(ctx context.Context, a *ask, c *outbound.Call) *outbound.Policies {
	p := q.policies(a)
	if b := q.h.opts.Spend; b != nil {
		m := b.Meter(ctx, spend.Meter{Team: a.key.Team, Key: a.key.Name, Upstream: q.upstream, Model: c.Model}, c.Asked)
		p.Meter.Policy = spend.PolicyName
		p.Meter.Tenant, p.Meter.Key = m.Bucket()
		p.Metered = spend.Costs
		p.Unmetered = func(err error) {
			q.h.warn("what a call spends is not counted", "upstream", q.upstream, "model", c.Model, "error", err)
		}
	}
	return p
}

// Take implements [outbound.Quota].
func (q *quota) Take(ctx context.Context, c *outbound.Call, hold time.Duration) (outbound.Grant, error) {
	a := askOf(ctx)
	began := time.Now()
	if a.race != nil && a.race.won.Load() == a { // it is made again: other accounts come before this queue
		again := *c
		again.NoWait, c = true, &again
	}
	p := q.counted(ctx, a, c)
	g, err := q.take(ctx, a, p, c, hold)
	if errors.Is(err, errStopping) { // it may not wait, but what fits now is granted
		now := *c
		now.NoWait = true
		g, err = p.Take(ctx, &now, hold)
		switch failure.Of(err) {
		case failure.Limited, failure.TimedOut, failure.QueueFull:
			err = errStopping
		}
	}
	a.queued += time.Since(began)
	if err != nil {
		return nil, err
	}
	if a.race != nil && !a.race.claim(a) {
		q.giveBack(ctx, g)
		return nil, errElsewhere
	}
	if why := q.h.refusesNow(a.key, a.secret); why != nil {
		q.giveBack(ctx, g)
		return nil, &keyError{why}
	}
	a.decision = *g.Decision()
	return g, nil
}

// take takes, and waits until the handler stops.
func (q *quota) take(ctx context.Context, a *ask, p *outbound.Policies, c *outbound.Call, hold time.Duration,
) (outbound.Grant, error) {
	if !c.NoWait {
		defer q.h.journal.waits(a, waiting{a.key.Name, q.upstream, c.Model, time.Now()})()
		bounded, cancel := context.WithTimeoutCause(ctx, a.wait, drawgate.ErrDeadline)
		defer cancel()
		var end context.CancelCauseFunc
		ctx, end = context.WithCancelCause(bounded)
		defer end(nil)
		defer context.AfterFunc(q.h.life, func() { end(errStopping) })() //nolint:contextcheck // not the call's
	}
	g, err := p.Take(ctx, c, hold)
	if err != nil && errors.Is(context.Cause(ctx), errStopping) {
		return nil, errStopping
	}
	return g, err
}

// Pause implements [outbound.Quota].
func (q *quota) Pause(ctx context.Context, c *outbound.Call, p drawgate.Pause) error {
	return q.policies(askOf(ctx)).Pause(ctx, c, p)
}

// attributes is what rules see of a call.
func (x *exchange) attributes(c *call) *rules.Attributes {
	r, key, up, path := x.r, x.key, c.up.config, x.path
	if c.alias != "" {
		path = "/" + up.Name + c.path
	}
	return &rules.Attributes{
		Method: r.Method, Path: path, Host: r.Host, IP: x.h.client(r), User: key.User, Class: key.Class,
		Headers: withoutKeys(r.Header),
		Extra: map[string]string{
			"key": key.Name, "team": key.Team, "user": key.User, "upstream": up.Name,
			"provider": up.Profile.Name,
			"model":    c.Model, "family": c.Family, "operation": string(c.Operation),
		},
	}
}
