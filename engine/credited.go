package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/credit"
	"github.com/drawgate/drawgate/store"
)

// How what was credited to prepaid budgets is read. It only grows, so an old value never grants too
// much.
const (
	creditedFor   = 5 * time.Second        // until it is read again
	creditedFirst = time.Second            // for the store to answer, the first time
	creditedAgain = 250 * time.Millisecond // and later
	mostCredited  = 10_000                 // accounts that are remembered
)

// credited knows what was credited to prepaid budgets: the limits whose window is
// [drawgate.Total]. It is safe for concurrent use.
type credited struct {
	// read asks the store, which has so long to answer. It is for all callers of a key, so none of
	// their contexts ends it.
	read func(a *credit.Account, wait time.Duration) (int64, error)
	stop context.CancelFunc // ends what is being read

	mu       sync.Mutex
	accounts map[credit.Account]*balance // guarded by mu
}

// balance is what was credited to one account. turn is held by whoever reads it.
type balance struct {
	turn chan struct{}

	mu    sync.Mutex
	sum   int64     // guarded by mu
	known bool      // guarded by mu
	at    time.Time // guarded by mu: when it was read last, or could not be
}

//nolint:contextcheck,nolintlint // what it reads outlives any call
func newCredited(s store.Store) *credited {
	ctx, stop := context.WithCancel(context.Background())
	return &credited{
		read: func(a *credit.Account, wait time.Duration) (int64, error) {
			ctx, cancel := context.WithTimeout(ctx, wait)
			defer cancel()
			return a.Sum(ctx, s)
		},
		stop: stop, accounts: map[credit.Account]*balance{},
	}
}

// of returns what was credited to an account. While the store does not answer it is what was known
// before, or nothing.
func (c *credited) of(a credit.Account) int64 {
	c.mu.Lock()
	b := c.accounts[a]
	if b == nil {
		if len(c.accounts) >= mostCredited {
			clear(c.accounts) // they are read again
		}
		b = &balance{turn: make(chan struct{}, 1)}
		c.accounts[a] = b
	}
	c.mu.Unlock()
	sum, known, fresh := b.get()
	if fresh {
		return sum
	}
	wait := creditedAgain
	if known {
		select {
		case b.turn <- struct{}{}:
		default: // somebody else is reading it
			return sum
		}
	} else {
		b.turn <- struct{}{}
		wait = creditedFirst
	}
	defer func() { <-b.turn }()
	if sum, _, fresh = b.get(); fresh { // somebody else has read it meanwhile
		return sum
	}
	now, err := c.read(&a, wait)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.sum, b.known = now, true
	}
	b.at = time.Now()
	return b.sum
}

func (b *balance) get() (sum int64, known, fresh bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sum, b.known, !b.at.IsZero() && time.Since(b.at) < creditedFor
}

// totals returns the positions of a policy's prepaid limits.
func totals(p *drawgate.Policy) (list []int) {
	for i := range p.Limits {
		if p.Limits[i].Every == drawgate.Total {
			list = append(list, i)
		}
	}
	return list
}

// topped are variants of a policy with what was credited to single keys.
type topped struct {
	mu   sync.Mutex
	made map[toppedKey]*variant // guarded by mu
}

// toppedKey is a variant, and the amounts of its prepaid limits with what was credited.
type toppedKey struct {
	of      *variant
	amounts store.Amounts
}

// withCredit returns a variant with what was credited to a key: v itself, if that is nothing.
func (p *policy) withCredit(v *variant, tenant, key string) *variant {
	at, some := toppedKey{of: v}, false
	limits := v.own.Plan().Policy().Limits
	for _, i := range p.totals {
		sum := p.credited.of(credit.Account{
			Policy: p.name, Limit: limits[i].Name, Tenant: tenant, Key: drawgate.BoundedKey(key),
		})
		at.amounts[i] = min(limits[i].Amount+sum, drawgate.MaxAmount)
		some = some || at.amounts[i] != limits[i].Amount
	}
	if !some {
		return v
	}
	p.topped.mu.Lock()
	defer p.topped.mu.Unlock()
	if have := p.topped.made[at]; have != nil {
		return have
	}
	made := &variant{own: p.toppedUp(v.own, &at.amounts)}
	if v.shadow != nil {
		made.shadow = p.toppedUp(v.shadow, &at.amounts)
	}
	if len(p.topped.made) >= mostCredited || p.topped.made == nil {
		p.topped.made = map[toppedKey]*variant{}
	}
	p.topped.made[at] = made
	return made
}

// toppedUp returns a limiter with these amounts of its prepaid limits.
func (p *policy) toppedUp(l *drawgate.Limiter, amounts *store.Amounts) *drawgate.Limiter {
	c := l.Plan().Policy()
	c.Limits = slices.Clone(c.Limits)
	for _, i := range p.totals {
		c.Limits[i].Amount = amounts[i]
	}
	up, err := l.With(c)
	if err != nil {
		return l // which grants less
	}
	return up
}
