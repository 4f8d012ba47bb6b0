package engine

import (
	"cmp"
	"errors"
	"slices"

	"github.com/drawgate/drawgate"
)

// together adds an ask of a set to a list. If an earlier set has an ask for the same bucket, its
// cost is added there. It returns the ask's position.
func (e *Engine) together(r *Request, sc *scratch, list []drawgate.Ask, set int, ask *drawgate.Ask) ([]drawgate.Ask,
	int, error,
) {
	if set == 0 { // there are no earlier sets
		return append(list, *ask), len(list), nil
	}
	for i := range list {
		if o := &list[i]; o.Key == ask.Key && o.Limiter.Plan().Name() == ask.Limiter.Plan().Name() &&
			e.tenant(o.Tenant) == e.tenant(ask.Tenant) {
			return list, i, sc.join(r, o, ask)
		}
	}
	return append(list, *ask), len(list), nil
}

// join adds the costs of two asks, with the lower of their amounts. The error is
// [drawgate.ErrNeverFits] if that is more than any limit grants.
func (sc *scratch) join(r *Request, to, more *drawgate.Ask) error {
	a, errA := to.Limiter.Plan().Amounts(to.Costs)
	b, errB := more.Limiter.Plan().Amounts(more.Costs)
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	both, err := lower(to.Limiter, more.Limiter)
	if err != nil {
		return err
	}
	to.Limiter = both
	limits, from := both.Plan().Policy().Limits, len(sc.costs)
	for i := range limits {
		if n := a[i] + b[i]; err == nil && n > drawgate.MaxAmount && !r.Lease { // a lease accepts any part
			err = beyond(both.Plan(), i, n, r.Priority)
		}
		if !named(sc.costs[from:], limits[i].Unit) {
			sc.costs = append(sc.costs, drawgate.Cost{Unit: limits[i].Unit, N: min(a[i]+b[i], drawgate.MaxAmount)})
		}
	}
	to.Costs = sc.costs[from:len(sc.costs):len(sc.costs)]
	return err
}

// beyond returns the error for n units that limit i can never grant. An invalid priority is for the
// limiter to refuse.
func beyond(p *drawgate.Plan, i int, n int64, priority int) error {
	if priority < 0 || priority > drawgate.MaxPriority {
		return nil
	}
	l := &p.Policy().Limits[i]
	return &drawgate.NeverFitsError{
		Policy: p.Name(), Limit: l.Name, Unit: cmp.Or(l.Unit, drawgate.UnitRequests),
		Amount: l.Amount, N: n, Max: p.Max(i, priority),
	}
}

// lower returns a limiter with the lower amount of each limit of two policies that otherwise are
// the same: what passes it passes both.
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
	p.Limits = limits // so rare that it is made each time
	return a.With(p)
}

// neverFits marks what asks for more than a limit can ever grant.
func neverFits(r *Request, asks []drawgate.Ask, res *Result) {
	for i := range asks {
		plan := asks[i].Limiter.Plan()
		n, err := plan.Amounts(asks[i].Costs)
		// of sets together
		never := slices.ContainsFunc(res.Applied, func(a Applied) bool { return a.Bucket == i && a.NeverFits })
		for k := range plan.Policy().Limits {
			never = never || err == nil && n[k] > plan.Max(k, r.Priority)
		}
		for k := range res.Applied {
			if a := &res.Applied[k]; a.Bucket == i {
				a.NeverFits = never
			}
		}
	}
}
