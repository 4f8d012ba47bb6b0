package drawgate

import "context"

// Refund gives units back to the bucket that a names, which were taken without a reservation.
// Without costs it gives back one request; otherwise the units that are named, and no others.
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
// It is sent once. With an error that is [ErrStoreUnavailable] it may have arrived, and must not be
// sent again. Other errors are ErrUnknownUnit, ErrInvalid, ErrClosed and ctx's; nothing was given
// back then.
func (a Ask) Refund(ctx context.Context) error {
	b, err := a.bucket()
	if err == nil {
		b.N, err = b.Plan.refund(a.Costs)
	}
	if err != nil {
		return err
	}
	_, err = a.Limiter.settle(ctx, &Settlement{Op: OpRefund, Buckets: []BucketCost{b}})
	if err == nil {
		a.Limiter.queue.wake(b.Key)
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
