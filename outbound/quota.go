package outbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
)

// Call is one call as its quota counts it.
type Call struct {
	Model string // says which quota counts the call
	// what metrics call the model: one of a few names, never a caller's own text; "" means the
	// first models that are granted
	Series   string
	Costs    []drawgate.Cost   // an estimate; nil is one request. A unit that nothing counts is ignored
	Priority int               // 0 to drawgate.MaxPriority
	Labels   []drawgate.Label  // for the store's history
	Caller   *rules.Attributes // who calls, for the rules of an engine; may be nil
	NoWait   bool              // refuse at once instead of waiting in the queue
	// From is who makes it, the narrowest first, such as a key and its team: the failures of one of
	// them do not stop the others. See [Breaker].
	From []string

	// Asked is when the call began, before it asked for anything; [Client] sets it.
	Asked time.Time

	// Adapt returns the limiter that counts the call in the place of one of the upstream's own,
	// before each attempt to take: see [engine.Ask]. nil changes nothing. [Transport] sets it, so
	// that takes obey what the upstream says of its limits.
	Adapt func(*drawgate.Limiter) *drawgate.Limiter
}

// Quota counts calls. [Buckets] is one of limiters, [Policies] one of an engine. It is safe for
// concurrent use.
type Quota interface {
	// Take takes what a call costs and holds it for hold. It waits in the queue as the policies
	// say. A refusal is an error: a *[drawgate.LimitedError], or what a wait ends with.
	Take(ctx context.Context, c *Call, hold time.Duration) (Grant, error)
	// Pause makes what counts calls to the upstream like c refuse every take, in all processes
	// that share the store. It does not concern buckets of the caller's own.
	Pause(ctx context.Context, c *Call, p drawgate.Pause) error
}

// Grant is what a call holds. A *[drawgate.Reservation] and an *[engine.Result] hold units in this
// way.
type Grant interface {
	// Settle ends the hold with what was used. A unit that nothing counts is ignored.
	Settle(ctx context.Context, used ...drawgate.Cost) error
	// Cancel ends the hold and gives everything back.
	Cancel(ctx context.Context) error
	// Renew makes the hold end hold from now.
	Renew(ctx context.Context, hold time.Duration) error
	// Deadline is when the call must have ended, unless the hold is renewed.
	Deadline() time.Time
	// Decision says what is left of each limit.
	Decision() *drawgate.Decision
}

// Buckets names the buckets of the upstream that count a call. Their Costs may stay nil: then each
// is asked for the units of the call that its policy counts.
type Buckets func(c *Call) ([]drawgate.Ask, error)

var _ Quota = Buckets(nil)

// PerModel counts each model by the limiter whose policy has its name, and together with whatever
// else uses that policy and key. key names the owner of the quota, such as a project or an
// organisation. A call of another model is an error, so that nothing goes uncounted.
func PerModel(key string, limiters ...*drawgate.Limiter) Buckets {
	byName := map[string]*drawgate.Limiter{}
	for _, l := range limiters {
		byName[l.Plan().Name()] = l
	}
	return func(c *Call) ([]drawgate.Ask, error) {
		l := byName[c.Model]
		if l == nil {
			return nil, fmt.Errorf("outbound: no policy counts model %q: give PerModel a limiter whose policy has that name", c.Model)
		}
		return []drawgate.Ask{{Limiter: l, Key: key}}, nil
	}
}

// Take implements [Quota].
func (b Buckets) Take(ctx context.Context, c *Call, hold time.Duration) (Grant, error) {
	asks, err := b.asks(c)
	if err != nil {
		return nil, err
	}
	for i := range asks {
		if asks[i].Costs == nil {
			asks[i].Costs = counted(asks[i].Limiter.Plan(), c.Costs)
		}
	}
	req := drawgate.Request{
		Buckets: asks, Wait: !c.NoWait, Priority: c.Priority, Labels: c.Labels,
		Hold: drawgate.Hold{For: hold},
	}
	if c.Adapt != nil {
		own := slices.Clone(asks)
		req.RefreshLimiter = func(i int) *drawgate.Limiter { return c.Adapt(own[i].Limiter) }
		for i := range asks {
			asks[i].Limiter = c.Adapt(own[i].Limiter)
		}
	}
	d, res, err := asks[0].Limiter.Take(ctx, req)
	if err == nil {
		err = d.Err()
	}
	if err != nil {
		return nil, err
	}
	return &grant{Reservation: res}, nil
}

// Pause implements [Quota]: it pauses all the buckets.
func (b Buckets) Pause(ctx context.Context, c *Call, p drawgate.Pause) error {
	asks, err := b.asks(c)
	if err != nil {
		return err
	}
	for _, a := range asks {
		if _, err := a.Pause(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (b Buckets) asks(c *Call) ([]drawgate.Ask, error) {
	asks, err := b(c)
	if err == nil && len(asks) == 0 {
		err = fmt.Errorf("outbound: no bucket counts model %q", c.Model)
	}
	if err != nil {
		return nil, err
	}
	return slices.Clone(asks), nil
}

// counted returns the costs whose units a policy counts. A policy that counts none of them is
// asked for nothing of its first unit: it may still be paused.
func counted(p *drawgate.Plan, costs []drawgate.Cost) []drawgate.Cost {
	if costs == nil && p.CountsRequests() {
		return nil
	}
	limits := p.Policy().Limits
	mine := slices.DeleteFunc(slices.Clone(costs), func(c drawgate.Cost) bool { return !counts(limits, c.Unit) })
	if len(mine) == 0 && !p.CountsRequests() {
		return []drawgate.Cost{{Unit: limits[0].Unit}}
	}
	return mine
}

func counts(limits []drawgate.Limit, unit string) bool {
	return slices.ContainsFunc(limits, func(l drawgate.Limit) bool { return unitOf(l.Unit) == unitOf(unit) })
}

func unitOf(unit string) string { return cmp.Or(unit, drawgate.UnitRequests) }

// grant is the Grant of a reservation.
type grant struct{ *drawgate.Reservation }

// Decision implements [Grant].
func (g *grant) Decision() *drawgate.Decision { return &g.Reservation.Decision }

// Settle implements [Grant].
func (g *grant) Settle(ctx context.Context, used ...drawgate.Cost) error {
	return g.Reservation.Settle(ctx, known(&g.Reservation.Decision, used)...)
}

// known returns the costs whose units one of a decision's limits counts.
func known(d *drawgate.Decision, used []drawgate.Cost) (mine []drawgate.Cost) {
	for _, c := range used {
		if d.Counts(c.Unit) {
			mine = append(mine, c)
		}
	}
	return mine
}

// Policies counts calls by an engine: each model by a policy of the upstream's quota, under the
// owner's key, and in the same take whatever the engine's rules apply to the caller.
type Policies struct {
	Engine *engine.Engine
	Owner  string                                        // the key of the quota: a project or an organisation
	Policy func(model string) (policy string, err error) // of the upstream's quota; nil: the model's name
	// Meter is a bucket that counts the call beside its limits: see package spend. Without a Policy
	// there is none. A call that only it would refuse is made without it, of which Unmetered is
	// told.
	Meter     engine.Ask
	Metered   func(costs []drawgate.Cost) []drawgate.Cost // what it counts of these, in units of its own
	Unmetered func(err error)
}

var _ Quota = (*Policies)(nil)

// Take implements [Quota].
func (p *Policies) Take(ctx context.Context, c *Call, hold time.Duration) (Grant, error) {
	ask, err := p.ask(c)
	if err != nil {
		return nil, err
	}
	info, ok := p.Engine.Policy(ask.Policy)
	if !ok && !p.Engine.Config().Off {
		return nil, fmt.Errorf("outbound: model %q is counted by policy %q, which does not exist", c.Model, ask.Policy)
	}
	if ok {
		ask.Costs = counted(info.Plan, c.Costs)
	}
	if p.Meter.Policy == "" {
		return p.take(ctx, c, hold, ask)
	}
	meter := p.Meter
	meter.Own, meter.Costs = true, p.Metered(c.Costs)
	g, err := p.take(ctx, c, hold, ask, meter)
	if err == nil || !p.unmetered(err) {
		return g, err
	}
	g, without := p.take(ctx, c, hold, ask)
	if without == nil { // else it was not the meter's fault, or not alone
		p.Unmetered(err)
	}
	return g, without
}

// unmetered reports whether a take failed because of its meter, or may have.
func (p *Policies) unmetered(err error) bool {
	if e, ok := errors.AsType[*drawgate.LimitedError](err); ok {
		return e.Policy == p.Meter.Policy
	}
	return errors.Is(err, engine.ErrUnknownPolicy) || errors.Is(err, drawgate.ErrUnknownUnit) ||
		errors.Is(err, drawgate.ErrNeverFits)
}

func (p *Policies) take(ctx context.Context, c *Call, hold time.Duration, asks ...engine.Ask) (Grant, error) {
	res, err := p.Engine.Take(ctx, &engine.Request{
		Asks: asks, Attributes: c.Caller, Costs: c.Costs, Spare: true, Wait: !c.NoWait, Hold: hold,
		Priority: c.Priority, Labels: c.Labels,
	})
	if err == nil {
		err = res.Decision.Err()
	}
	if err != nil {
		if res.Held() { // shadows hold units for a call that is not made
			_ = res.Settle(context.WithoutCancel(ctx)) // an error of a shadow has no effect
		}
		return nil, err
	}
	g := &result{Result: res}
	if len(asks) > 1 {
		g.metered = p.Metered
	}
	return g, nil
}

// Pause implements [Quota]: it pauses the upstream's quota, not what the rules apply to the caller.
func (p *Policies) Pause(ctx context.Context, c *Call, pause drawgate.Pause) error {
	ask, err := p.ask(c)
	if err != nil {
		return err
	}
	_, err = p.Engine.Pause(ctx, ask, pause)
	return err
}

func (p *Policies) ask(c *Call) (engine.Ask, error) {
	policy := c.Model
	if p.Policy != nil {
		var err error
		if policy, err = p.Policy(c.Model); err != nil {
			return engine.Ask{}, err
		}
	}
	return engine.Ask{Policy: policy, Key: p.Owner, Adapt: c.Adapt}, nil
}

// result is the Grant of an engine's answer. It may hold nothing, where limits are switched off.
type result struct {
	engine.Result

	metered func([]drawgate.Cost) []drawgate.Cost // of its meter; nil: it has none
}

// Decision implements [Grant].
func (r *result) Decision() *drawgate.Decision { return &r.Result.Decision }

// Deadline implements [Grant]. A hold of shadows alone is never lost.
func (r *result) Deadline() time.Time {
	if r.Reservation == nil {
		return time.Now().Add(time.Hour)
	}
	return r.Reservation.Deadline()
}

// Settle implements [Grant].
func (r *result) Settle(ctx context.Context, used ...drawgate.Cost) error {
	mine := slices.Clone(used)
	if r.metered != nil {
		mine = append(mine, r.metered(used)...)
	}
	return r.Result.Settle(ctx, known(&r.Result.Decision, mine)...)
}
