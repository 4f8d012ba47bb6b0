package rls

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
)

// byRules decides a request with the engine's rules: the entries of each descriptor are a set of
// attributes, and all descriptors that take are one take.
func (c *call) byRules(ctx context.Context) (*ratelimit.RateLimitResponse, error) {
	took := false
	for _, d := range c.request.GetDescriptors() {
		c.parts = append(c.parts, part{ask: -1})
		p := &c.parts[len(c.parts)-1]
		c.hits(d, p)
		p.own = d.GetHitsAddend() != nil || c.request.GetHitsAddend() > 0
		if d.GetHitsAddend() != nil && p.action == peeks {
			c.s.checks.add(c.shape(p))
		}
		if p.action == takes {
			took = true
		} else if err := c.find(p); err != nil {
			return nil, err
		}
		if p.action == refunds && p.counted() && !c.s.opts.Refunds {
			return nil, status.Error(codes.FailedPrecondition,
				"rls: is_negative_hits gives units back, which this server does not allow")
		}
	}
	if err := c.rulesPeek(ctx, func(p *part) bool { return p.action == peeks }); err != nil {
		return nil, err
	}
	if took {
		if err := c.rulesTake(ctx); err != nil {
			return nil, err
		}
	}
	if err := c.rulesAfterwards(ctx); err != nil {
		c.s.log(c.request.GetDomain(), err)
		if !took { // otherwise the take stands, and is answered
			return nil, status.Error(codes.Unavailable, public(err))
		}
	}
	c.warnOfLostReports()
	return c.answer(), nil
}

// warnOfLostReports logs hits that were refused although their limit was checked with 0 hits
// before: if they were used already, they do not count. With rules a take cannot be told from a
// report.
func (c *call) warnOfLostReports() {
	if !c.refused {
		return
	}
	for i, d := range c.request.GetDescriptors() {
		if p := &c.parts[i]; p.action == takes && d.GetHitsAddend() != nil && c.s.checks.has(c.shape(p)) {
			c.s.log(c.request.GetDomain(), errLostReport)
			return
		}
	}
}

// rulesTake takes for all descriptors in one step, or for none. If the request is already refused,
// it only peeks.
func (c *call) rulesTake(ctx context.Context) error {
	if !c.refused {
		if err := c.rulesAsk(ctx, func(p *part) bool { return p.action == takes }); err != nil {
			return err
		}
		d := &c.res.Decision
		c.describeDraft(d, false)
		if d.Allowed {
			return nil
		}
		c.refused = true
		c.refusal(d)
	}
	unknown := func(p *part) bool { return p.action == takes && !p.known }
	for i := range c.parts {
		if p := &c.parts[i]; unknown(p) {
			if err := c.find(p); err != nil {
				return err
			}
		}
	}
	return c.rulesPeek(ctx, unknown)
}

// anyRule stands for the enforced rules that count a descriptor.
var anyRule = &Rule{}

// rulesAsk asks the engine for some of the descriptors, as one take, and records the answer for
// each. Hits that never fit are a refusal.
func (c *call) rulesAsk(ctx context.Context, which func(*part) bool) error {
	c.begin()
	for i := range c.parts {
		if p := &c.parts[i]; which(p) {
			p.ask = len(c.sets)
			c.sets = append(c.sets, engine.Set{Attributes: c.attributes(p)})
			c.costs = append(c.costs, drawgate.Cost{N: p.hits})
		}
	}
	for i := range c.parts { // now that costs no longer moves
		if p := &c.parts[i]; p.ask >= 0 && p.own {
			c.sets[p.ask].Costs = c.costs[p.ask : p.ask+1 : p.ask+1]
		}
	}
	c.req = engine.Request{Sets: c.sets}
	err := c.s.engine.TakeInto(ctx, &c.req, &c.res)
	if err != nil && !errors.Is(err, drawgate.ErrNeverFits) {
		return err
	}
	c.fallback = c.fallback || c.res.Decision.Fallback
	for i := range c.res.Shadow {
		c.diverge(c.res.Shadow[i].Policy, c.res.Shadow[i].Divergence)
	}
	for i := range c.parts {
		if p := &c.parts[i]; p.ask >= 0 {
			c.rulesTellSet(p)
		}
	}
	return nil
}

// rulesTellSet records the engine's result for a descriptor, from the buckets that count it.
func (c *call) rulesTellSet(p *part) {
	buckets := uint64(0)
	for i := range c.res.Applied {
		a := &c.res.Applied[i]
		if a.Set == p.ask && a.Bucket >= 0 {
			buckets |= 1 << a.Bucket
			p.never = p.never || a.NeverFits
		}
	}
	if p.never {
		p.rule = anyRule
	}
	c.rulesTell(p, &c.res.Decision, buckets)
}

// rulesPeek records the state of descriptors. One that takes is over if a limit has too little left
// for its hits, any other if nothing is left.
func (c *call) rulesPeek(ctx context.Context, which func(*part) bool) error {
	bare := c.bare()
	for i := range c.parts {
		p := &c.parts[i]
		if !which(p) {
			continue
		}
		for k := range p.applied {
			a := &p.applied[k]
			if a.Shadow || a.Disabled {
				continue
			}
			ask, err := c.s.engine.AskApplied(a)
			if err != nil {
				return err
			}
			if p.action == takes && p.hits > 1 && countsHits(ask.Limiter) {
				ask.Costs = []drawgate.Cost{{N: p.hits}}
			}
			st, err := ask.Status(ctx, 0)
			if err != nil {
				return err
			}
			c.fallback = c.fallback || st.Fallback
			c.rulesTell(p, &st.Decision, everyBucket)
			if bare {
				c.describeDraft(&st.Decision, true)
			}
		}
		if p.over && p.action == peeks {
			c.refused = true
		}
	}
	return nil
}

// find finds the buckets that count a descriptor.
func (c *call) find(p *part) error {
	res, err := c.s.engine.Match(c.attributes(p))
	if err != nil {
		return err
	}
	p.applied = res.Applied
	return nil
}

// counted reports whether an enforced policy counts a descriptor.
func (p *part) counted() bool {
	return slices.ContainsFunc(p.applied, func(a engine.Applied) bool { return !a.Shadow && !a.Disabled })
}

// rulesAfterwards counts reports and gives back refunds.
func (c *call) rulesAfterwards(ctx context.Context) error {
	for i := range c.parts {
		p := &c.parts[i]
		if p.hits == 0 || len(p.applied) == 0 || p.action != reports && p.action != refunds {
			continue
		}
		if p.action == reports {
			p.own = true
			if err := c.rulesAsk(ctx, func(o *part) bool { return o == p }); err != nil {
				return err
			}
			if c.res.Decision.Allowed {
				continue
			}
			p.never, p.rule, p.outcome = false, nil, outcome{} // it is counted anyway
		}
		if err := c.rulesEach(ctx, p); err != nil {
			return err
		}
	}
	return c.rulesPeek(ctx, func(p *part) bool { return (p.action == reports || p.action == refunds) && !p.known })
}

// rulesEach charges, or refunds, a descriptor's hits in all buckets that count it.
func (c *call) rulesEach(ctx context.Context, p *part) error {
	for i := range p.applied {
		a := &p.applied[i]
		if a.Shadow || a.Disabled {
			continue
		}
		ask, err := c.s.engine.AskApplied(a)
		if err != nil {
			return err
		}
		if !countsHits(ask.Limiter) {
			continue
		}
		if p.action == reports {
			err = charge(ctx, ask, p.hits)
		} else {
			ask.Costs = []drawgate.Cost{{N: p.hits}}
			err = ask.Refund(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// everyBucket selects all buckets of a decision.
const everyBucket = ^uint64(0)

// rulesTell records a decision for a descriptor that some of its buckets count: from the limit that
// refuses longest, or has the least left.
func (c *call) rulesTell(p *part, d *drawgate.Decision, buckets uint64) {
	var worst drawgate.LimitResult
	for l := range d.Limits() {
		if buckets>>l.Bucket&1 != 0 && (worst.Limit == nil || worse(&l, &worst)) {
			worst = l
		}
	}
	retry := worst.RetryAfter.Microseconds()
	if worst.Limit == nil || p.over && retry <= p.retryAfter ||
		p.known && !worst.Refused() && worst.Remaining >= p.remaining {
		return
	}
	p.outcome = outcome{
		known: true, over: p.over || worst.Refused(), remaining: worst.Remaining, retryAfter: retry,
		resetAfter: worst.ResetAfter().Microseconds(),
	}
	p.rule = anyRule
	p.current = rateOf(&worst)
}

// worse reports whether a limit refuses longer than another or, if neither refuses, has a smaller
// fraction left.
func worse(l, o *drawgate.LimitResult) bool {
	if l.Refused() || o.Refused() {
		return l.RetryAfter > o.RetryAfter
	}
	return l.Part() < o.Part()
}

// attributes returns a descriptor's entries, and the domain under its name. Keys that Envoy's
// actions commonly use also set their own field.
func (c *call) attributes(p *part) *rules.Attributes {
	a := &rules.Attributes{Extra: make(map[string]string, len(p.entries)+1)}
	for _, e := range p.entries {
		key, value := e.GetKey(), e.GetValue()
		a.Extra[key] = value
		switch key {
		case "remote_address":
			if ip, err := netip.ParseAddr(value); err == nil {
				a.IP = ip.Unmap()
			}
		case "method":
			a.Method = value
		case "path":
			a.Path, _, _ = strings.Cut(value, "?")
		case "host":
			a.Host = value
		case "route":
			a.Route = value
		case "user":
			a.User = value
		case "class":
			a.Class = value
		}
	}
	if a.Class == "" && c.s.opts.Class != nil {
		a.Class = c.s.opts.Class(a.Extra)
	}
	a.Extra["domain"] = c.request.GetDomain()
	return a
}

// rateOf describes a limit as the protocol does: an amount per unit of time, or per several units.
func rateOf(l *drawgate.LimitResult) *ratelimit.RateLimitResponse_RateLimit {
	r := &ratelimit.RateLimitResponse_RateLimit{
		Name:            l.Policy + "/" + l.Limit.Name,
		RequestsPerUnit: uint32(min(l.Limit.Amount, unlimitedRemaining)),
	}
	times := uint32(1)
	if l.Limit.Kind == drawgate.Calendar {
		unit := ratelimit.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(l.Limit.Every.String())]
		r.Unit = ratelimit.RateLimitResponse_RateLimit_Unit(unit) // of the same name
	} else {
		r.Unit, times = unitsOf(l.Limit.Window)
	}
	if times > 1 {
		r.UnitMultiplier = wrapperspb.UInt32(times)
	}
	return r
}

// unitsOf returns the largest unit that divides a window; UNKNOWN if the window is not a whole
// number of seconds.
func unitsOf(window time.Duration) (ratelimit.RateLimitResponse_RateLimit_Unit, uint32) {
	for _, u := range [...]ratelimit.RateLimitResponse_RateLimit_Unit{
		ratelimit.RateLimitResponse_RateLimit_YEAR, ratelimit.RateLimitResponse_RateLimit_MONTH,
		ratelimit.RateLimitResponse_RateLimit_WEEK,
		ratelimit.RateLimitResponse_RateLimit_DAY, ratelimit.RateLimitResponse_RateLimit_HOUR,
		ratelimit.RateLimitResponse_RateLimit_MINUTE,
		ratelimit.RateLimitResponse_RateLimit_SECOND,
	} {
		if length := unitLength(u); window >= length && window%length == 0 {
			return u, uint32(window / length)
		}
	}
	return ratelimit.RateLimitResponse_RateLimit_UNKNOWN, 1
}

// countsHits reports whether a policy counts requests, which is what hits are. A take ignores a
// policy that does not.
func countsHits(l *drawgate.Limiter) bool {
	_, err := l.Plan().Amounts([]drawgate.Cost{{N: 1}})
	return err == nil
}
