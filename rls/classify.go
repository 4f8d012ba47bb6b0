package rls

import (
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/drawgate/drawgate"
)

// classify finds the rate of each descriptor, and what to take from it.
func (c *call) classify(d *domain) error {
	for _, descriptor := range c.request.GetDescriptors() {
		c.parts = append(c.parts, part{ask: -1})
		p := &c.parts[len(c.parts)-1]
		c.hits(descriptor, p)
		p.rule = d.find(p.entries)
		if o := descriptor.GetLimit(); o != nil {
			rule, limiter, err := c.override(d, p, o)
			if err != nil {
				return err
			}
			p.rule, p.limiter = rule, limiter
			c.carries = true
		}
		if p.rule != nil && p.rule.counts() {
			c.followCheck(descriptor, p, p.rule.policy.Name)
		}
		if err := c.match(p); err != nil {
			return err
		}
	}
	c.replace()
	return nil
}

// match checks the rate that was found.
func (c *call) match(p *part) error {
	r := p.rule
	if r == nil {
		p.action = nothing
		return nil
	}
	p.current = r.current
	c.dropped = append(c.dropped, r.Replaces...)
	switch {
	case r.Unlimited:
		p.action, p.unlimited, p.known, p.remaining = nothing, true, true, unlimitedRemaining
	case r.Requests == 0:
		p.known, p.resetAfter = true, r.window.Microseconds()
		p.never = p.action == takes || p.action == peeks
		p.shadow = r.Shadow && p.never
		p.action = nothing
	default:
		if p.action == refunds && !c.s.opts.Refunds {
			return status.Error(codes.FailedPrecondition,
				"rls: is_negative_hits gives units back, which this server does not allow")
		}
		p.policy = r.policy.Name
		p.key = drawgate.BoundedKey(r.bucket(p))
	}
	return nil
}

// replace removes rates that other rates of the request replace. A descriptor without a limit stays
// as it is.
func (c *call) replace() {
	if len(c.dropped) == 0 {
		return
	}
	for i := range c.parts {
		if p := &c.parts[i]; p.rule != nil && !p.rule.Unlimited && p.rule.Name != "" &&
			slices.Contains(c.dropped, p.rule.Name) {
			*p = part{entries: p.entries, ask: -1}
		}
	}
}

// Roles of descriptors.
func (p *part) shadowed() bool { return p.rule != nil && p.rule.Shadow }
func (p *part) quota() bool    { return p.rule != nil && p.rule.Quota && !p.rule.Shadow }
func (p *part) enforced() bool { return p.rule != nil && !p.rule.Quota && !p.rule.Shadow }

// blocked reports whether the request is already refused: by an enforced descriptor, or because all
// quotas are over.
func (c *call) blocked() bool {
	quotas, over := 0, 0
	for i := range c.parts {
		p := &c.parts[i]
		refused := p.over || p.never
		switch {
		case p.rule == nil || p.unlimited || p.action == reports || p.action == refunds:
		case p.enforced() && refused:
			return true
		case p.quota():
			quotas++
			if refused {
				over++
			}
		}
	}
	return quotas > 0 && quotas == over
}
