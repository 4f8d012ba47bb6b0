package rls

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/store"
)

// peekAll peeks for the descriptors with 0 hits, all in one step.
//
// A descriptor with nothing left is over: refused requests spend nothing here, so a count never
// exceeds its limit by itself.
func (c *call) peekAll(ctx context.Context) error {
	return c.peek(ctx, func(p *part) bool { return p.action == peeks }, func(p *part) bool { return p.remaining <= 0 })
}

// peek peeks for the parts selected by which; over decides from what is left whether one is over.
func (c *call) peek(ctx context.Context, which, over func(*part) bool) error {
	var group []int
	for i := range c.parts {
		if c.parts[i].policy != "" && which(&c.parts[i]) {
			group = append(group, i)
		}
	}
	for some := range slices.Chunk(group, store.MaxBuckets) {
		c.begin()
		for _, i := range some {
			c.add(&c.parts[i], 0)
		}
		if _, err := c.run(ctx); err != nil {
			return err
		}
		for _, i := range some {
			p := &c.parts[i]
			p.ask = -1
			if p.known && !p.shadowed() {
				p.over = over(p)
			}
		}
	}
	return nil
}

// takeAll takes what the descriptors ask for: all enforced ones, and the quotas that have room, in
// one step or not at all.
func (c *call) takeAll(ctx context.Context) error {
	first := true
	for !c.blocked() {
		c.begin()
		for i := range c.parts {
			p := &c.parts[i]
			if p.action != takes || p.never || p.over && p.quota() || p.shadowed() && !first {
				continue
			}
			c.add(p, p.hits)
		}
		if len(c.asks) == 0 {
			return nil
		}
		allowed, err := c.run(ctx)
		if never, ok := errors.AsType[*drawgate.NeverFitsError](err); ok && c.neverFits(never) {
			continue
		}
		if err != nil || allowed {
			return err
		}
		first = false
		if !c.anyOver() {
			break // refused, but not by a limit: others are ahead in the queue
		}
	}
	c.refused = true
	return nil
}

// peekRest peeks for the takes without a result: those of a refused request, and those that ask for
// more than a limit can ever grant.
func (c *call) peekRest(ctx context.Context) error {
	return c.peek(ctx, func(p *part) bool { return p.action == takes && !p.known && (c.refused || p.never) },
		func(p *part) bool { return p.hits > p.remaining })
}

// neverFits marks the descriptors whose hits are more than a limit can ever grant; false if there
// are none.
func (c *call) neverFits(e *drawgate.NeverFitsError) bool {
	found := false
	for i := range c.parts {
		p := &c.parts[i]
		if p.ask >= 0 && p.policy == e.Policy && !p.never && c.costs[p.ask].N == e.N {
			p.never, found = true, true
		}
	}
	return found
}

func (c *call) anyOver() bool {
	return slices.ContainsFunc(c.parts, func(p part) bool { return p.ask >= 0 && p.over })
}

// begin starts another take.
func (c *call) begin() {
	c.asks, c.sets, c.costs = c.asks[:0], c.sets[:0], c.costs[:0]
	for i := range c.parts {
		c.parts[i].ask = -1
	}
}

// add asks for units from a part's bucket. Descriptors with the same bucket share one ask.
func (c *call) add(p *part, n int64) {
	for i := range c.parts {
		if o := &c.parts[i]; o.ask >= 0 && o.key == p.key && o.policy == p.policy && o.limiter == p.limiter {
			p.ask = o.ask
			c.costs[o.ask].N = min(MaxHits, c.costs[o.ask].N+n)
			return
		}
	}
	p.ask = len(c.asks)
	c.costs = append(c.costs, drawgate.Cost{N: n})
	c.asks = append(c.asks, engine.Ask{Policy: p.policy, Tenant: c.s.opts.Tenant, Key: p.key})
}

// run decides the asks and records the result for each part.
func (c *call) run(ctx context.Context) (allowed bool, err error) {
	if len(c.asks) > store.MaxBuckets {
		return false, status.Errorf(codes.InvalidArgument,
			"rls: the descriptors need %d buckets at once, but at most %d are allowed", len(c.asks), store.MaxBuckets)
	}
	for i := range c.asks { // now that costs no longer moves
		if c.costs[i].N != 1 {
			c.asks[i].Costs = c.costs[i : i+1 : i+1]
		}
	}
	if c.carries {
		return c.runOverrides(ctx)
	}
	c.req = engine.Request{Asks: c.asks, Labels: c.label()}
	err = c.s.engine.TakeInto(ctx, &c.req, &c.res)
	if err != nil {
		return false, err
	}
	c.tell()
	c.describeTake(&c.res.Decision)
	return c.res.Decision.Allowed, nil
}

// describeTake sets the headers of a decision that took something, and replaces those of an earlier
// attempt. A request that takes nothing, because it only peeks or its hits never fit, has headers
// with the state of its limits.
func (c *call) describeTake(d *drawgate.Decision) {
	if c.costs[0].N > 0 || c.bare() {
		c.describeDraft(d, false)
	}
}

// label lists the names of rates for the history, if their files ask for it, each name once.
func (c *call) label() []drawgate.Label {
	c.labels = c.labels[:0]
	for i := range c.parts {
		p := &c.parts[i]
		if p.ask < 0 || !p.rule.named() {
			continue
		}
		l := drawgate.Label{Name: "rls", Value: bounded(p.rule.metric(p.entries))}
		if !slices.Contains(c.labels, l) {
			c.labels = append(c.labels, l)
		}
	}
	return c.labels
}

// tell records the engine's result.
func (c *call) tell() {
	res := &c.res
	c.fallback = c.fallback || res.Decision.Fallback
	shadow := 0
	for i := range min(len(res.Applied), len(c.asks)) {
		a := &res.Applied[i]
		if a.Shadow && shadow < len(res.Shadow) {
			c.tellShadow(i, &res.Shadow[shadow])
			shadow++
		}
		if a.Bucket >= 0 && !a.Shadow {
			c.tellAsk(i, &res.Decision, a.Bucket)
		}
	}
	if !res.Decision.Allowed {
		c.refusal(&res.Decision)
	}
}

// refusal records when a refused take would pass.
func (c *call) refusal(d *drawgate.Decision) {
	c.retry = max(c.retry, d.RetryAfter.Microseconds())
	c.paused = c.paused || d.Reason == drawgate.Paused
}

// tellAsk records a decision's result for the parts of an ask: from the limit of its bucket that
// refuses longest, or has the least left.
func (c *call) tellAsk(ask int, d *drawgate.Decision, bucket int) {
	var t outcome
	for l := range d.Limits() {
		if l.Bucket != bucket {
			continue
		}
		if l.Refused() && l.RetryAfter.Microseconds() > t.retryAfter || !t.known ||
			!t.over && !l.Refused() && l.Remaining < t.remaining {
			t = outcome{
				known: true, over: t.over || l.Refused(), remaining: l.Remaining,
				retryAfter: l.RetryAfter.Microseconds(), resetAfter: l.ResetAfter().Microseconds(),
			}
		}
	}
	for i := range c.parts {
		if p := &c.parts[i]; p.ask == ask {
			t.shadow = p.shadow
			p.outcome = t
		}
	}
}

// tellShadow records how a rate in shadow would have answered. It never refuses.
func (c *call) tellShadow(ask int, s *engine.Shadow) {
	if s.Err == nil {
		c.tellAsk(ask, &s.Decision, s.Bucket)
	}
	for i := range c.parts {
		if p := &c.parts[i]; p.ask == ask {
			p.over, p.shadow = false, s.Err == nil && !s.Allowed
			c.diverge(p.policy, s.Divergence)
		}
	}
}

// bounded cuts a label to the library's maximum.
func bounded(s string) string {
	const most = 256
	if len(s) > most {
		s = s[:most]
	}
	return s
}
