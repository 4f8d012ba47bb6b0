package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine/rules"
)

// TakeInto is [Engine.Take] into a Result that is used again and again, which saves allocations.
// What the last one said is overwritten. Once it returns, r and what it points to are the caller's
// again.
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
	var compare func(error)
	if len(sc.shadow) > 0 {
		compare = e.evaluate(ctx, r, sc, res)
	}
	err := sc.never
	if err == nil {
		err = e.enforce(ctx, s, r, sc.enforced, res)
	}
	if err != nil && errors.Is(err, drawgate.ErrNeverFits) {
		neverFits(r, sc.enforced, res)
	}
	if compare != nil {
		compare(err)
	}
	return err
}

// spare lets takes pass that name no unit, and count no requests only because a policy that does is
// disabled, or enforced where they are in shadow. To switch a policy off must not make requests
// fail that passed by it.
func (sc *scratch) spare() {
	spared := sc.spared
	if spared {
		nameNothing(sc.enforced)
	}
	if len(sc.shadow) > 0 && (spared || !empty(sc.enforced)) {
		nameNothing(sc.shadow)
	}
}

// empty reports whether asks name no unit, and none counts requests: as a take they are
// drawgate.ErrUnknownUnit.
func empty(asks []drawgate.Ask) bool {
	for i := range asks {
		if len(asks[i].Costs) > 0 || asks[i].Limiter.Plan().CountsRequests() {
			return false
		}
	}
	return true
}

// nameNothing has empty asks say that they ask for nothing.
func nameNothing(asks []drawgate.Ask) {
	if len(asks) > 0 && empty(asks) {
		asks[0].Costs = []drawgate.Cost{{Unit: asks[0].Limiter.Plan().Policy().Limits[0].Unit}}
	}
}

// within returns an error if a bucket is of another tenant than the request may name.
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

// Match says what counts a request with these attributes, and takes nothing: the Applied, Exempt
// and Unmatched of a Result. For what their buckets have left see [Engine.Ask].
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

// enforce takes what is enforced.
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
	req.Wait, req.Renew = r.Wait, e.renew(s, r, res)
	res.Decision, res.Reservation, err = l.Take(ctx, req)
	return err
}

// request makes the limiter's form of a request, of one that does not wait.
func request(r *Request, asks []drawgate.Ask) drawgate.Request {
	req := drawgate.Request{Buckets: asks, Priority: r.Priority, Labels: r.Labels}
	if holds(r, asks) {
		req.Hold = drawgate.Hold{For: r.Hold, Lease: r.Lease, ID: r.ID, Grant: r.Grant}
	}
	return req
}

// holds reports whether a request is held.
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
