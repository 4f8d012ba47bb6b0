package rls

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/rules"
)

// holdTime is how long the units of one descriptor are held while the others are decided. If this process ends in between they count as used.
const holdTime = 10 * time.Second

// byRules decides a request by the engine's rules: the entries of each descriptor are the attributes of a request of its own.
//
// The engine takes for one set of attributes at a time. Where several descriptors are counted, all but the last are held, and given back if one is refused.
func (c *call) byRules(ctx context.Context) (*ratelimit.RateLimitResponse, error) {
	last, took := -1, false
	for i, d := range c.request.GetDescriptors() {
		c.parts = append(c.parts, part{ask: -1})
		p := &c.parts[i]
		c.hits(d, p)
		p.own = d.GetHitsAddend() != nil || c.request.GetHitsAddend() > 0
		if p.does == takes && len(c.request.GetDescriptors()) == 1 {
			p.counted = true // it need not be known before
		} else if err := c.find(p); err != nil {
			return nil, err
		}
		if p.does == refunds && p.counted && !c.s.opts.Refunds {
			return nil, status.Error(codes.FailedPrecondition, "rls: is_negative_hits gives units back, which this server does not allow")
		}
		took = took || p.does == takes
		if p.does == takes && p.counted {
			last = i
		}
	}
	if err := c.rulesPeek(ctx, func(p *part) bool { return p.does == peeks }); err != nil {
		return nil, err
	}
	if !c.refused {
		if err := c.rulesTake(ctx, last); err != nil {
			return nil, err
		}
	}
	if c.refused {
		if err := c.rulesPeek(ctx, func(p *part) bool { return p.does == takes && !p.known && !p.never }); err != nil {
			return nil, err
		}
	}
	if err := c.rulesAfterwards(ctx); err != nil {
		c.s.log(c.request.GetDomain(), err)
		if !took { // otherwise the take stands, and its answer is told
			return nil, status.Error(codes.Unavailable, public(err))
		}
	}
	return c.answer(), nil
}

// rulesTake takes for each descriptor.
func (c *call) rulesTake(ctx context.Context, last int) (err error) {
	var held []engine.Result
	defer func() {
		for i := range held {
			end := held[i].Settle
			if err != nil || c.refused {
				end = func(ctx context.Context, _ ...drawgate.Cost) error { return held[i].Cancel(ctx) }
			}
			if e := end(context.WithoutCancel(ctx)); e != nil && !errors.Is(e, drawgate.ErrGone) {
				c.s.log(c.request.GetDomain(), e) // it counts as used when the hold ends
			}
		}
	}()
	for i := range c.parts {
		p := &c.parts[i]
		if p.does != takes || len(p.applied) == 0 && !p.counted {
			continue
		}
		hold := holdTime
		if i == last || !p.counted {
			hold = 0
		}
		res, err := c.rulesAsk(ctx, p, p.hits, hold)
		if errors.Is(err, drawgate.ErrNeverFits) {
			p.never, p.rule, c.refused = true, anyRule, true
			return nil
		}
		if err != nil {
			return err
		}
		c.rulesTell(p, &res.Decision)
		c.describeDraft(&res.Decision, i > 0)
		if !res.Decision.Allowed {
			c.refused, c.retry = true, res.Decision.RetryAfter.Microseconds()
			return nil
		}
		if res.Reservation != nil {
			held = append(held, res)
		}
		if slots(&res.Decision) {
			return drawgate.ErrNeedsReserve
		}
	}
	return nil
}

// slots reports whether a decision is of a concurrency limit: nothing would ever say when a slot that this protocol took comes free.
func slots(d *drawgate.Decision) bool {
	for l := range d.Limits() {
		if l.Limit.Kind == drawgate.Concurrency {
			return true
		}
	}
	return false
}

// anyRule stands for the rules that count a descriptor: they are enforced.
var anyRule = &Rule{}

// rulesAsk asks the engine for one descriptor.
func (c *call) rulesAsk(ctx context.Context, p *part, n int64, hold time.Duration) (engine.Result, error) {
	r := engine.Request{Attributes: c.attributes(p), Hold: hold}
	if p.own {
		r.Costs = []drawgate.Cost{{N: n}}
	}
	res, err := c.s.engine.Take(ctx, &r)
	c.fallback = c.fallback || res.Decision.Fallback
	for i := range res.Shadow {
		c.diverge(res.Shadow[i].Policy, res.Shadow[i].Divergence)
	}
	return res, err
}

// rulesPeek tells how descriptors stand. One is over if a limit has too little left for its hits; for one.
func (c *call) rulesPeek(ctx context.Context, which func(*part) bool) error {
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
			if p.hits > 1 {
				ask.Costs = []drawgate.Cost{{N: p.hits}}
			}
			st, err := ask.Limiter.StatusAt(ctx, 0, ask)
			if err != nil {
				return err
			}
			c.rulesTell(p, &st.Decision)
		}
		if p.over && p.does == peeks {
			c.refused = true
		}
	}
	return nil
}

// find finds what counts a descriptor.
func (c *call) find(p *part) error {
	res, err := c.s.engine.Match(c.attributes(p))
	if err != nil {
		return err
	}
	p.applied = res.Applied
	for i := range p.applied {
		p.counted = p.counted || !p.applied[i].Shadow && !p.applied[i].Disabled
	}
	return nil
}

// rulesAfterwards counts reports and gives back refunds.
func (c *call) rulesAfterwards(ctx context.Context) error {
	for i := range c.parts {
		p := &c.parts[i]
		if p.hits == 0 || len(p.applied) == 0 || p.does != reports && p.does != refunds {
			continue
		}
		if p.does == reports {
			p.own = true
			res, err := c.rulesAsk(ctx, p, p.hits, 0)
			if err == nil && res.Decision.Allowed {
				c.rulesTell(p, &res.Decision)
				continue
			}
			if err != nil && !errors.Is(err, drawgate.ErrNeverFits) {
				return err
			}
		}
		if err := c.rulesEach(ctx, p); err != nil {
			return err
		}
	}
	return c.rulesPeek(ctx, func(p *part) bool { return (p.does == reports || p.does == refunds) && !p.known })
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
		if p.does == reports {
			err = charge(ctx, ask, p.hits)
		} else {
			ask.Costs = []drawgate.Cost{{N: p.hits}}
			err = ask.Limiter.RefundAsk(ctx, ask)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rulesTell notes what a decision says of a descriptor: of the limit that refuses longest, or has the least left.
func (c *call) rulesTell(p *part, d *drawgate.Decision) {
	l, some := d.Refusing()
	if !some {
		l, some = d.Tightest()
	}
	if !some || p.known && !l.Refused() && l.Remaining >= p.remaining {
		return
	}
	p.told = told{
		known: true, over: p.over || l.Refused(), remaining: l.Remaining, retryAfter: l.RetryAfter.Microseconds(),
		resetAfter: max(0, l.ResetAt().Sub(d.At()).Microseconds()),
	}
	p.rule = anyRule
	p.current = rateOf(&l)
}

// attributes are a descriptor's entries, and the domain under its name. What Envoy's actions and common sense name alike has a field of its own too.
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
	a.Extra["domain"] = c.request.GetDomain()
	return a
}

// rateOf describes a limit as the protocol does: an amount per unit of time, or per several.
func rateOf(l *drawgate.LimitResult) *ratelimit.RateLimitResponse_RateLimit {
	r := &ratelimit.RateLimitResponse_RateLimit{Name: l.Policy + "/" + l.Limit.Name, RequestsPerUnit: uint32(min(l.Limit.Amount, unlimitedRemaining))}
	times := uint32(1)
	if l.Limit.Kind == drawgate.Calendar {
		r.Unit = map[drawgate.Every]ratelimit.RateLimitResponse_RateLimit_Unit{
			drawgate.Minute: ratelimit.RateLimitResponse_RateLimit_MINUTE, drawgate.Hour: ratelimit.RateLimitResponse_RateLimit_HOUR,
			drawgate.Day: ratelimit.RateLimitResponse_RateLimit_DAY, drawgate.Week: ratelimit.RateLimitResponse_RateLimit_WEEK,
			drawgate.Month: ratelimit.RateLimitResponse_RateLimit_MONTH,
		}[l.Limit.Every]
	} else {
		r.Unit, times = unitsOf(l.Limit.Window)
	}
	if times > 1 {
		r.UnitMultiplier = wrapperspb.UInt32(times)
	}
	return r
}

// unitsOf returns the largest unit of which a window is a whole number; UNKNOWN if it is none of seconds.
func unitsOf(window time.Duration) (ratelimit.RateLimitResponse_RateLimit_Unit, uint32) {
	for _, u := range [...]ratelimit.RateLimitResponse_RateLimit_Unit{
		ratelimit.RateLimitResponse_RateLimit_YEAR, ratelimit.RateLimitResponse_RateLimit_MONTH, ratelimit.RateLimitResponse_RateLimit_WEEK,
		ratelimit.RateLimitResponse_RateLimit_DAY, ratelimit.RateLimitResponse_RateLimit_HOUR, ratelimit.RateLimitResponse_RateLimit_MINUTE,
		ratelimit.RateLimitResponse_RateLimit_SECOND,
	} {
		if length := unitLength(u); window >= length && window%length == 0 {
			return u, uint32(window / length)
		}
	}
	return ratelimit.RateLimitResponse_RateLimit_UNKNOWN, 1
}
