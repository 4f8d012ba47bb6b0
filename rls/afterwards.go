package rls

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/drawgate/drawgate"
)

// afterwards carries out what the request reports as already done: hits that were used, and hits to
// give back. It does not depend on whether the rest of the request passed.
func (c *call) afterwards(ctx context.Context) error {
	var errs []error
	some, took := false, false
	for i := range c.parts {
		p := &c.parts[i]
		took = took || p.action == takes
		if p.policy == "" || p.hits == 0 || p.action != reports && p.action != refunds {
			continue
		}
		some = true
		carryOut := c.refund
		if p.action == reports {
			carryOut = c.report
		}
		if err := carryOut(ctx, p); err != nil {
			errs = append(errs, err)
		}
	}
	if !some {
		return nil
	}
	err := errors.Join(errs...)
	if err == nil {
		err = c.peek(ctx, func(p *part) bool { return p.action == reports || p.action == refunds },
			func(p *part) bool { return p.remaining <= 0 })
	}
	if err == nil {
		return nil
	}
	c.s.log(c.request.GetDomain(), err)
	if took {
		return nil // the take stands, and is answered
	}
	// whatever the error: some of it may have been carried out, so it must not be retried
	return status.Error(codes.Unavailable, public(err))
}

// report counts hits that were already used: as a take if they fit, and otherwise as debt.
func (c *call) report(ctx context.Context, p *part) error {
	c.begin()
	c.add(p, p.hits)
	allowed, err := c.run(ctx)
	if errors.Is(err, drawgate.ErrNeverFits) {
		allowed, err = false, nil
	}
	if err != nil || allowed && !p.shadow {
		return err
	}
	ask, err := c.askOf(p)
	if err != nil {
		return err
	}
	return charge(ctx, ask, p.hits)
}

// charge counts units whatever the limit says. It settles a reservation whose hold is over with
// more than it held, so that the difference is charged.
func charge(ctx context.Context, ask drawgate.Ask, n int64) error {
	ask.Costs = []drawgate.Cost{{N: 1}}
	r, err := ask.Limiter.Resume(rand.Text(), drawgate.NewGrant(), time.Now(), ask)
	if err != nil {
		return err
	}
	if err := r.Settle(ctx, drawgate.Cost{N: min(n+1, drawgate.MaxAmount)}); !errors.Is(err, drawgate.ErrGone) {
		return err
	}
	return nil
}

// refund gives hits back.
func (c *call) refund(ctx context.Context, p *part) error {
	ask, err := c.askOf(p)
	if err != nil {
		return err
	}
	ask.Costs = []drawgate.Cost{{N: p.hits}}
	return ask.Refund(ctx)
}

func (c *call) askOf(p *part) (drawgate.Ask, error) {
	ask, err := c.s.engine.Ask(p.policy, c.s.opts.Tenant, p.key)
	if err == nil && p.limiter != nil {
		ask.Limiter = p.limiter
	}
	return ask, err
}
