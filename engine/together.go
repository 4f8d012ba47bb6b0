package engine

import (
	"errors"
	"slices"

	"github.com/drawgate/drawgate"
)

// together adds an ask of a set to a list, or what it costs to the ask of an earlier set for the same bucket, and returns the ask's position.
func (e *Engine) together(sc *scratch, list []drawgate.Ask, set int, ask *drawgate.Ask) ([]drawgate.Ask, int, error) {
	for i := range list {
		if set == 0 {
			break // nobody asked before
		}
		if o := &list[i]; o.Key == ask.Key && o.Limiter.Plan().Name() == ask.Limiter.Plan().Name() && e.tenant(o.Tenant) == e.tenant(ask.Tenant) {
			return list, i, sc.join(o, ask)
		}
	}
	return append(list, *ask), len(list), nil
}

// join lets an ask cost what both of two cost, by the lower of their amounts.
func (sc *scratch) join(to, more *drawgate.Ask) (err error) {
	a, errA := to.Limiter.Plan().Amounts(to.Costs)
	b, errB := more.Limiter.Plan().Amounts(more.Costs)
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	limits, from := to.Limiter.Plan().Policy().Limits, len(sc.costs)
	for i := range limits {
		if !named(sc.costs[from:], limits[i].Unit) {
			sc.costs = append(sc.costs, drawgate.Cost{Unit: limits[i].Unit, N: min(a[i]+b[i], drawgate.MaxAmount)})
		}
	}
	to.Costs = sc.costs[from:len(sc.costs):len(sc.costs)]
	to.Limiter, err = lower(to.Limiter, more.Limiter)
	return err
}

// lower returns a limiter with the lower amount of each limit of two that differ in nothing else: what passes it passes both.
func lower(a, b *drawgate.Limiter) (*drawgate.Limiter, error) {
	if a == b {
		return a, nil
	}
	p, other := a.Plan().Policy(), b.Plan().Policy().Limits
	limits, isA, isB := slices.Clone(p.Limits), true, true
	for i := range limits {
		l, m, o := &p.Limits[i], &limits[i], &other[i]
		m.Amount, m.Burst = min(l.Amount, o.Amount), min(bursts(l), bursts(o))
		isA = isA && m.Amount == l.Amount && m.Burst == bursts(l)
		isB = isB && m.Amount == o.Amount && m.Burst == bursts(o)
	}
	switch {
	case isA:
		return a, nil
	case isB:
		return b, nil
	}
	p.Limits = limits // so seldom that it is made each time
	return a.With(p)
}

// neverFits notes which of what is applied asks more than a limit ever grants.
func neverFits(r *Request, asks []drawgate.Ask, res *Result) {
	for i := range asks {
		plan := asks[i].Limiter.Plan()
		n, err := plan.Amounts(asks[i].Costs)
		never := false
		for k, spec := range plan.Specs(false) {
			never = never || err == nil && !spec.Fits(n[k], int8(r.Priority))
		}
		for k := range res.Applied {
			if a := &res.Applied[k]; a.Bucket == i {
				a.NeverFits = never
			}
		}
	}
}
