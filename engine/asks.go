package engine

import (
	"slices"
	"time"

	"github.com/drawgate/drawgate"
)

// Asks returns what a take of r would ask, and takes nothing: the Applied, Exempt and Unmatched of
// its Result, and for each Applied the ask, with the amounts and costs of the take. The ask of a
// shadow is for the shadow's own bucket, that of a disabled policy is as if it were enabled. An ask
// without a Limiter is of a policy that does not exist, which passes while [Config.Off].
//
// The error is that of a take, as far as it does not depend on the amounts: a cost that can never
// fit is no error here, but shows in the [drawgate.Ask.Status].
func (e *Engine) Asks(r *Request) (res Result, asks []drawgate.Ask, err error) {
	sc, _ := e.pool.Get().(*scratch)
	defer func() {
		sc.clear()
		e.pool.Put(sc)
	}()
	if err = e.gather(e.state.Load(), r, sc, &res); err == nil {
		err = e.within(r, &res)
	}
	if err != nil {
		return Result{}, nil, err
	}
	res.Shadow = nil
	sc.spare()
	if len(sc.enforced) > 0 && empty(sc.enforced) { // the limiter says what is wrong
		if _, err = sc.enforced[0].Limiter.Resume("asks", 1, time.Time{}, sc.enforced...); err != nil {
			return Result{}, nil, err
		}
	}
	asks = slices.Clone(sc.asked)
	for i := range asks {
		if b := res.Applied[i].Bucket; b >= 0 {
			asks[i] = sc.enforced[b]
		}
		asks[i].Costs = slices.Clone(asks[i].Costs)
	}
	return res, asks, nil
}
