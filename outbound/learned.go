package outbound

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/store"
)

// learned lowers the limits of an upstream's quota to what it has told. It is safe for concurrent
// use.
type learned struct {
	limits *llm.Learned
	tell   func(*Lowered) // of each limit that is lowered

	mu   sync.Mutex
	made map[lowKey]*drawgate.Limiter // guarded by mu
}

// lowKey is a limiter and the amounts to which it is lowered.
type lowKey struct {
	of      *drawgate.Limiter
	amounts store.Amounts
}

// mostMade bounds what is kept: limiters that a reload has replaced are never asked for again.
const mostMade = 1000

// check returns ErrNotOffered if the upstream has said so of a call's model.
func (l *learned) check(c *llm.Call) error {
	if l.limits.Offered(c, time.Now()) {
		return nil
	}
	return fmt.Errorf("%w: model %.80q: the upstream refused it with a limit of 0 within the last day; choose another model or plan", ErrNotOffered, c.Model)
}

// lower returns the limiter that counts a call in the place of the upstream's own: the amounts that
// are known to be lower are lowered.
func (l *learned) lower(c *llm.Call, of *drawgate.Limiter) *drawgate.Limiter {
	limits, now := of.Plan().Policy().Limits, time.Now()
	key, same := lowKey{of: of}, true
	for i := range limits {
		key.amounts[i] = l.limits.Of(c, &limits[i], now)
		same = same && key.amounts[i] == limits[i].Amount
	}
	if same {
		return of
	}
	low, isNew := l.limiter(key)
	if isNew && low != of {
		for i := range limits {
			if key.amounts[i] < limits[i].Amount {
				l.tell(&Lowered{
					Model: c.Family, Policy: of.Plan().Policy().Name, Limit: limits[i],
					Amount: key.amounts[i],
				})
			}
		}
	}
	return low
}

// limiter returns the limiter with the amounts of key, and whether it was made now.
func (l *learned) limiter(key lowKey) (low *drawgate.Limiter, isNew bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if have := l.made[key]; have != nil {
		return have, false
	}
	if len(l.made) >= mostMade || l.made == nil {
		l.made = map[lowKey]*drawgate.Limiter{}
	}
	l.made[key] = lowered(key.of, key.amounts)
	return l.made[key], true
}

// lowered returns a limiter with other amounts. If a bucket cannot count them exactly, it is the
// limiter itself.
func lowered(of *drawgate.Limiter, amounts store.Amounts) *drawgate.Limiter {
	plan := of.Plan()
	p := plan.Policy()
	p.Limits = slices.Clone(p.Limits)
	for i := range p.Limits {
		l := &p.Limits[i]
		if amounts[i] >= l.Amount {
			continue
		}
		l.Amount, l.Burst = amounts[i], min(l.Burst, amounts[i])
		if plan.Max(i, 0) > 0 && !grants(l) {
			// Shares that were chosen for a larger amount would leave nothing of this one.
			l.Headroom, l.ReservedByPriority = drawgate.Share{}, nil
			if !grants(l) { // a bucket whose margin is all of it
				l.Margin = 0
			}
		}
	}
	made, err := of.With(p)
	if err != nil {
		return of
	}
	return made
}

// grants reports whether a limit ever grants anything at the lowest priority.
func grants(l *drawgate.Limit) bool {
	plan, err := drawgate.Policy{Name: "one", Limits: []drawgate.Limit{*l}}.Compile()
	return err == nil && plan.Max(0, 0) > 0
}
