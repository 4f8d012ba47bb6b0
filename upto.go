package drawgate

import (
	"cmp"
	"context"
	"fmt"
)

// AllowUpTo takes as many units as are available, up to most.N (at least 1), and returns how many:
// for work that can be done in part. It never waits. If nothing is left, the Decision is a refusal
// and n is 0. Other units cost what they cost in [Limiter.Allow], whose errors it has. The store is
// asked twice: the units are held first, and then settled.
func (l *Limiter) AllowUpTo(ctx context.Context, key string, most Cost) (d Decision, n int64, err error) {
	if most.N < 1 {
		return d, 0, fmt.Errorf("%w: cannot take up to %d units: ask for at least 1", ErrInvalid, most.N)
	}
	if l.plan.NeedsHold() {
		return d, 0, fmt.Errorf("%w (policy %q)", ErrNeedsReserve, l.plan.policy.Name)
	}
	d, res, err := l.Take(ctx, Request{
		Buckets: []Ask{{Key: key, Costs: []Cost{most}}}, Hold: Hold{For: min(l.step, MaxHold), Lease: true},
	})
	if res == nil {
		return d, 0, err
	}
	got := d.Granted(0)
	n = most.N
	for i, unit := range l.plan.units {
		if unit == cmp.Or(most.Unit, UnitRequests) {
			n = min(n, got[i])
		}
	}
	// If this fails, the hold ends by itself, as used: nothing is lost but what one limit
	// granted beyond another.
	_ = res.Settle(ctx, Cost{Unit: most.Unit, N: n})
	return d, n, nil
}
