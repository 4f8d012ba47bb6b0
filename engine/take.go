package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine/rules"
)

// TakeInto is [Engine.Take] into a Result that is reused, which saves allocations. It overwrites
// the previous content. Once it returns, the caller may reuse r and what it points to.
func (e *Engine) TakeInto(ctx context.Context, r *Request, res *Result) error {
	*res = Result{Applied: res.Applied[:0], Shadow: res.Shadow[:0]}
	sc, _ := e.pool.Get().(*scratch)
	defer func() {
		sc.clear()
		e.pool.Put(sc)
	}()
	s := e.state.Load()
	if err := e.gather(s, r, sc, res); err != nil {
		return err
	}
	if err := e.within(r, res); err != nil {
		return err
	}
	sc.spare()
	compare := e.beginShadows(ctx, r, sc, res)
	err := sc.never
	if err == nil {
		err = e.enforce(ctx, s, r, sc.enforced, res)
	}
	if err != nil {
		res.asked = e.asksNow(s, r, sc.enforced)
		if errors.Is(err, drawgate.ErrNeverFits) {
			neverFits(r, sc.enforced, res)
		}
	}
	if compare != nil {
		compare(res, err)
	}
	return err
}

// spare lets a take pass that names no unit and counts no requests only because the policy that
// would is disabled, or is in shadow while others are enforced. Switching off a policy must not
// make requests fail that passed with it.
func (sc *scratch) spare() {
	spared := sc.spared
	if spared {
		nameNothing(sc.enforced)
	}
	if len(sc.shadow) > 0 && (spared || !empty(sc.enforced)) {
		nameNothing(sc.shadow)
	}
}

// empty reports whether asks name no unit, and none counts requests: such a take fails with
// drawgate.ErrUnknownUnit.
func empty(asks []drawgate.Ask) bool {
	for i := range asks {
		if len(asks[i].Costs) > 0 || asks[i].Limiter.Plan().CountsRequests() {
			return false
		}
	}
	return true
}

// nameNothing makes empty asks explicit: they ask for 0 of a unit.
func nameNothing(asks []drawgate.Ask) {
	if len(asks) > 0 && empty(asks) {
		asks[0].Costs = []drawgate.Cost{{Unit: asks[0].Limiter.Plan().Policy().Limits[0].Unit}}
	}
}

// within returns an error if a bucket belongs to another tenant than the request may use.
func (e *Engine) within(r *Request, res *Result) error {
	if r.Within == "" {
		return nil
	}
	for i := range res.Applied {
		if a := &res.Applied[i]; e.tenant(a.Tenant) != r.Within {
			return fmt.Errorf("%w: of policy %q", ErrOtherTenant, a.Policy)
		}
	}
	return nil
}

// Match returns what counts a request with these attributes, and takes nothing: the Applied, Exempt
// and Unmatched of a Result. [Engine.Ask] shows what is left in the buckets.
func (e *Engine) Match(a *rules.Attributes) (Result, error) {
	var res Result
	sc, _ := e.pool.Get().(*scratch)
	defer func() {
		sc.clear()
		e.pool.Put(sc)
	}()
	err := e.gather(e.state.Load(), &Request{Attributes: a}, sc, &res)
	res.Shadow = nil
	return res, err
}

// enforce takes from the enforced policies.
func (e *Engine) enforce(ctx context.Context, s *state, r *Request, asks []drawgate.Ask, res *Result) (err error) {
	if len(asks) == 0 {
		res.Decision.Allowed = true
		return ctx.Err()
	}
	l := asks[0].Limiter
	if len(asks) == 1 && !r.Wait && r.Priority == 0 && len(r.Labels) == 0 && asks[0].Tenant == "" && !holds(r, asks) {
		res.Decision, err = l.Allow(ctx, asks[0].Key, asks[0].Costs...)
		return err
	}
	req := request(r, asks)
	req.Wait, req.RefreshLimiter = r.Wait, e.renew(s, r, asks)
	res.Decision, res.Reservation, err = l.Take(ctx, req)
	return err
}

// request converts a request that does not wait for a limiter.
func request(r *Request, asks []drawgate.Ask) drawgate.Request {
	req := drawgate.Request{Buckets: asks, Priority: r.Priority, Labels: r.Labels}
	if holds(r, asks) {
		req.Hold = drawgate.Hold{For: r.Hold, Lease: r.Lease, ID: r.ID, Grant: r.Grant}
	}
	return req
}

// holds reports whether a request reserves.
func holds(r *Request, asks []drawgate.Ask) bool {
	if r.Hold == 0 || !r.HoldIfNeeded {
		return r.Hold != 0 || r.ID != "" || r.Lease
	}
	for i := range asks {
		if asks[i].Limiter.Plan().NeedsHold() {
			return true
		}
	}
	return false
}
