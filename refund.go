package drawgate

import "context"

// Refund gives units back to the bucket of key that were taken without a reservation. Without costs
// it gives back one request; otherwise the units that are named, and no others.
//
// It is for doors whose callers take first and correct later without an id, such as Envoy's rate
// limit protocol; everybody else reserves and settles. Without an id nobody can tell whether the
// units were taken, and given back before: each limit may be exceeded by what is refunded, at most
// by the sum of all refunds (the exception is named in docs/semantics.md). So a refund must be
// enabled by whoever answers for the limit, and its size is bounded: it takes off what counts now
// and would count longest, never below nothing, never what an open reservation holds, never in a
// window that is over. Slots of a concurrency limit are not given back. A bucket of which nothing
// is used stays as it is.
//
// It is sent once. With an error that is [ErrStoreAway] it may have arrived, and must not be sent
// again. Other errors are ErrUnknownUnit, ErrInvalid, ErrClosed and ctx's; nothing was given back
// then.
func (l *Limiter) Refund(ctx context.Context, key string, costs ...Cost) error {
	return l.RefundAsk(ctx, l.Ask(key, costs...))
}

// RefundAsk is [Limiter.Refund] for the bucket that b names.
func (l *Limiter) RefundAsk(ctx context.Context, b Ask) error {
	o := b.Limiter
	if o == nil {
		o = l
	}
	if o.lobby != l.lobby {
		return errForeign
	}
	if err := checkKey(b.Tenant, b.Key); err != nil {
		return err
	}
	n, err := o.plan.refund(b.Costs)
	if err != nil {
		return err
	}
	key := o.keyOf(&b)
	_, err = l.settle(ctx, &Settlement{Op: OpRefund, Buckets: []BucketCost{{Key: key, Plan: o.plan, N: n}}})
	if err == nil {
		l.lobby.nudge(key)
	}
	return err
}

// refund says what costs give back per limit: nothing where they name no unit.
func (p *Plan) refund(costs []Cost) (Amounts, error) {
	if len(costs) == 0 {
		return p.resolve(nil, UnitRequests, 0)
	}
	return p.resolve(costs, "", 0)
}
