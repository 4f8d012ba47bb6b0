package drawgate

import (
	"context"
	"fmt"

	"github.com/drawgate/drawgate/store"
)

// Refund returns units that were taken without a reservation to the bucket that a names. Without
// costs it gives back one request, of a policy that counts them; otherwise the units that are
// named, and no others.
//
// It is for interfaces whose callers correct later and have no id, such as Envoy's rate limit
// protocol; everybody else reserves and settles. Nobody can tell then whether the units were taken,
// or given back before: each limit may be exceeded by what is refunded (docs/semantics.md), so
// whoever is responsible for it must enable this. It removes units that count now and would count
// longest, at most what is used, and none that an open reservation holds or that counted in a
// window that has ended. Slots are not given back.
//
// It is sent once. With an error that is [ErrStoreUnavailable] it may have arrived, and must not be
// sent again; with ErrUnknownUnit, ErrInvalid, ErrClosed or ctx's nothing was given back.
func (a Ask) Refund(ctx context.Context) error {
	b, err := a.bucket()
	if err == nil {
		b.N, err = a.Limiter.plan.refund(a.Costs)
	}
	if err != nil {
		return err
	}
	_, err = a.Limiter.settle(ctx, &store.Settlement{Op: store.OpRefund, Buckets: []store.BucketCost{b}})
	if err == nil {
		a.Limiter.queue.wake(b.Key)
	}
	return err
}

// refund says what costs give back per limit: nothing where they name no unit.
func (p *Plan) refund(costs []Cost) (store.Amounts, error) {
	if len(costs) == 0 {
		if !p.counts {
			return store.Amounts{}, fmt.Errorf("%w: there is no request to give back: policy %q counts none; name a cost in %s",
				ErrUnknownUnit, p.policy.Name, units(p.units))
		}
		return p.resolve(nil, UnitRequests, 0)
	}
	return p.resolve(costs, "", 0)
}
