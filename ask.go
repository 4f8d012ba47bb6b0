package drawgate

import (
	"context"

	"github.com/drawgate/drawgate/store"
)

// Ask names one bucket, by a limiter and a key, and what to take from it. It is one bucket's part
// of a [Request]; [Ask.Status], [Ask.Refund], [Ask.Adjust] and [Ask.Pause] concern its bucket
// alone.
type Ask struct {
	Limiter *Limiter // nil: in a Request, the one that is asked
	Tenant  string   // "": the limiter's own; at most MaxTenant bytes
	Key     string   // at most MaxKey bytes; see [BoundedKey]
	Costs   []Cost   // units not named cost 0, requests 1; if no bucket of a take names a unit, one must count requests
}

// Ask asks for units from the bucket of key under this limiter's policy.
func (l *Limiter) Ask(key string, costs ...Cost) Ask {
	return Ask{Limiter: l, Key: key, Costs: costs}
}

// bucket checks what names the bucket.
func (a *Ask) bucket() (store.BucketCost, error) {
	if a.Limiter == nil {
		return store.BucketCost{}, errNoLimiter
	}
	if err := checkKey(a.Tenant, a.Key); err != nil {
		return store.BucketCost{}, err
	}
	return store.BucketCost{Key: a.Limiter.keyOf(a), Plan: a.Limiter.plan.Plan}, nil
}

// keyOf returns the key of what is asked of this limiter's policy.
func (l *Limiter) keyOf(a *Ask) Key {
	k := l.key(a.Key)
	if a.Tenant != "" {
		k.Tenant = a.Tenant
	}
	return k
}

// Status describes the bucket of key, and what a take of costs at priority 0 would get. It spends
// nothing.
func (l *Limiter) Status(ctx context.Context, key string, costs ...Cost) (Status, error) {
	return l.Ask(key, costs...).Status(ctx, 0)
}

// Status is [Limiter.Status] for a priority. A cost that never fits shows as a RetryAfter of
// [Never].
func (a Ask) Status(ctx context.Context, priority int) (Status, error) {
	b, err := a.bucket()
	if err == nil {
		err = checkPriority(priority)
	}
	if err == nil {
		b.N, err = a.Limiter.plan.Amounts(a.Costs)
	}
	if err != nil {
		return Status{}, err
	}
	l := a.Limiter
	var out [1]store.State
	err = l.within(ctx, "peek", stepTimeout, func(ctx context.Context) error {
		if err := l.store.Peek(ctx, []store.BucketCost{b}, int8(priority), out[:]); err != nil {
			return err
		}
		return out[0].Fail
	})
	if err != nil {
		return Status{}, l.storeError(ctx, "peek", err)
	}
	st := status(&out[0], l.plan, priority)
	l.queue.describe(b.Key, l.plan, int8(priority), &st)
	return st, nil
}
