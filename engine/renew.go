package engine

import (
	"slices"

	"github.com/drawgate/drawgate"
)

// renewal finds the limiters that count the buckets of a take that waits while the configuration is
// replaced. It is for one goroutine.
type renewal struct {
	engine   *Engine
	request  Request
	asks     []drawgate.Ask
	state    *state              // the configuration that limiters are of
	limiters []*drawgate.Limiter // by bucket; nil: as at the beginning
}

// renew returns a func that tells a waiting take which limiters count its buckets after the
// configuration was replaced; nil if the take does not wait.
func (e *Engine) renew(s *state, r *Request, asks []drawgate.Ask) func(int) *drawgate.Limiter {
	if !r.Wait {
		return nil
	}
	n := &renewal{engine: e, request: *r, asks: asks, state: s, limiters: make([]*drawgate.Limiter, len(asks))}
	return n.limiter
}

// limiter returns the limiter of bucket i under the configuration in force.
func (n *renewal) limiter(i int) *drawgate.Limiter {
	if now := n.engine.state.Load(); now != n.state {
		n.state, n.limiters = now, n.engine.recount(now, &n.request, n.asks)
	}
	if l := n.adapted(&n.asks[i]); l != nil {
		return l
	}
	return n.limiters[i]
}

// adapted returns the limiter of a bucket that was asked for by name with [Ask.Adapt], or nil.
func (n *renewal) adapted(bucket *drawgate.Ask) *drawgate.Limiter {
	for k := range n.request.Asks {
		a := &n.request.Asks[k]
		if a.Adapt == nil || a.Policy != bucket.Limiter.Plan().Name() || drawgate.BoundedKey(a.Key) != bucket.Key ||
			a.Tenant != bucket.Tenant {
			continue
		}
		if p := n.state.policies[a.Policy]; p != nil {
			return a.Adapt(p.of(n.engine.tenant(a.Tenant), a.Key, p.plain).own)
		}
	}
	return nil
}

// recount returns the limiters by which a configuration counts the buckets of a take that began
// under another one. The buckets stay the same.
//
// The rules are asked again, because no name or position of a rule says which of the new ones
// stands for an old one. A bucket in which the request would not be counted any more is counted by
// the policy's own amounts for the key. The limiter is nil, and the bucket is counted as before, if
// there is no such policy, or if the rules fail on this request before they name the bucket.
func (e *Engine) recount(s *state, r *Request, asks []drawgate.Ask) []*drawgate.Limiter {
	sc, _ := e.pool.Get().(*scratch)
	defer func() {
		sc.clear()
		e.pool.Put(sc)
	}()
	var res Result
	err := e.gather(s, r, sc, &res)
	list := make([]*drawgate.Limiter, len(asks))
	for i := range asks {
		bucket := Applied{Policy: asks[i].Limiter.Plan().Name(), Tenant: asks[i].Tenant, Key: asks[i].Key}
		for k := range res.Applied {
			if a := &res.Applied[k]; a.limiter != nil && e.equal(a, &bucket) {
				list[i] = lowest(list[i], a.limiter)
			}
		}
		if p := s.policies[bucket.Policy]; p != nil && list[i] == nil && err == nil {
			list[i] = p.of(e.tenant(bucket.Tenant), bucket.Key, p.plain).own
		}
	}
	return list
}

// lowest returns a limiter with the lower amounts of two limiters of one policy; b if a is nil.
func lowest(a, b *drawgate.Limiter) *drawgate.Limiter {
	if a == nil {
		return b
	}
	if both, err := lower(a, b); err == nil {
		return both
	}
	return a
}

// asksNow returns what a take that began under a configuration asked, to be kept: with the limiters
// that count its buckets by now.
func (e *Engine) asksNow(before *state, r *Request, asks []drawgate.Ask) []drawgate.Ask {
	list := slices.Clone(asks)
	var limiters []*drawgate.Limiter
	if now := e.state.Load(); now != before {
		limiters = e.recount(now, r, asks)
	}
	for i := range list {
		list[i].Costs = slices.Clone(list[i].Costs)
		if limiters != nil && limiters[i] != nil {
			list[i].Limiter = limiters[i]
		}
	}
	return list
}
