// Package localtest decides plain takes in the caller's process, as a limiter does with a store
// that allows it, so that tests can compare them with what the store decides.
package localtest

import (
	"errors"

	"github.com/drawgate/drawgate/internal/cells"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// Opener is a store that allows it.
type Opener interface {
	Open(tenant string, plan *store.Plan) *cells.Buckets
}

// Take decides a plain take of one bucket.
func Take(s Opener, t *store.Take) (store.Verdict, error) {
	b := &t.Buckets[0]
	buckets, specs := s.Open(b.Key.Tenant, b.Plan), store.Internal.Specs(b.Plan, false)
	ask, v := [1]record.Ask{}, record.Verdict{}
	out := &ask[0].Out
	if len(specs) == 1 {
		if left, used, over, at, ok := buckets.TakeGCRA(b.Key.Name, b.N[0], t.Priority); ok {
			out[0] = record.Result{
				Remaining: max(0, left) / specs[0].Scale,
				ResetAt:   at + record.CeilDiv(used, specs[0].Drain),
			}
			switch {
			case over > 0:
				out[0].RetryAfter = record.CeilDiv(over, specs[0].Drain)
			case over < 0:
				out[0].RetryAfter = record.Never
			}
			v = record.Verdict{
				Now: at, Allowed: over == 0, RetryAfter: out[0].RetryAfter,
				EarliestRetry: out[0].RetryAfter,
			}
			return store.Internal.Verdict(&v, ask[:]), nil
		}
	}
	var err error
	n := record.Amounts(b.N)
	v.Allowed, v.Paused, v.Now, v.RetryAfter, v.EarliestRetry, err = buckets.Take(b.Key.Name, &n, t.Priority, out[:])
	switch {
	case errors.Is(err, cells.ErrClosed):
		return store.Verdict{}, store.ErrClosed
	case err != nil:
		return store.Verdict{}, &store.Error{Store: "memory", Op: "take", Err: err}
	}
	return store.Internal.Verdict(&v, ask[:]), nil
}
