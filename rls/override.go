package rls

import (
	"context"
	"strings"
	"sync"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/store"
)

// OverridePolicy is the policy of rates in descriptors for which no rule with the same window
// matches. It is in the engine so that it can be disabled, and so that limiters can be derived from
// it.
const OverridePolicy = "rls"

// overrides caches the rates of requests. Its size is bounded, because clients choose how many
// there are.
type overrides struct {
	mu    sync.Mutex
	rates map[overrideKey]overrideRate // guarded by mu
}

type overrideKey struct {
	rule     *Rule // the rule with the same window; nil: none
	domain   string
	unit     ratelimit.RateLimitResponse_RateLimit_Unit
	times    uint32
	requests uint32
}

type overrideRate struct {
	rule    *Rule
	limiter *drawgate.Limiter
}

// maxOverrides is how many rates are cached. A limiter takes a few hundred bytes, and microseconds
// to make.
const maxOverrides = 1024

// override returns the rate of a descriptor, which replaces the file's.
//
// If a rule with the same window matches, it counts in the rule's bucket, with another amount: a
// client that alternates between the two has one limit, not two. Otherwise it counts in its own
// bucket.
func (c *call) override(d *domain, p *part, o *common.RateLimitDescriptor_RateLimitOverride) (*Rule, *drawgate.Limiter,
	error,
) {
	k := overrideKey{
		domain: d.name, unit: ratelimit.RateLimitResponse_RateLimit_Unit(o.GetUnit()), times: 1,
		requests: o.GetRequestsPerUnit(),
	}
	if m := o.GetUnitMultiplier(); m != nil {
		k.times = m.GetValue()
	}
	length := unitLength(k.unit)
	if length == 0 || k.times == 0 || k.times > uint32(store.MaxWindow/length) {
		return nil, nil, status.Errorf(codes.InvalidArgument,
			"rls: a descriptor has a limit per %d %s, which is not a supported window", k.times,
			strings.ToLower(o.GetUnit().String()))
	}
	if r := p.rule; r != nil && r.counts() && r.Unit == k.unit && r.Multiplier == k.times {
		k.rule = r
	}
	rate, err := c.rates.overrides.get(c.s.engine, k, c.rates.config.windows)
	return rate.rule, rate.limiter, err
}

func (o *overrides) get(e *engine.Engine, k overrideKey, w Windows) (overrideRate, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if rate, ok := o.rates[k]; ok {
		return rate, nil
	}
	rate, err := makeOverride(e, k, w)
	if err != nil {
		return rate, err
	}
	if o.rates == nil || len(o.rates) >= maxOverrides {
		o.rates = make(map[overrideKey]overrideRate)
	}
	o.rates[k] = rate
	return rate, nil
}

// makeOverride makes the rule and the limiter of a rate. It is enforced, and not a quota.
func makeOverride(e *engine.Engine, k overrideKey, w Windows) (overrideRate, error) {
	r := &Rule{Domain: k.domain, Unit: k.unit, Multiplier: k.times, Requests: k.requests}
	r.finish(w, false)
	if k.requests == 0 {
		return overrideRate{rule: r}, nil
	}
	base := OverridePolicy
	if k.rule != nil {
		base, r.Path = k.rule.policy.Name, k.rule.Path
	}
	r.policy.Name = base
	l := e.Limiter(base)
	if l == nil {
		return overrideRate{}, engine.ErrUnknownPolicy
	}
	l, err := l.With(r.policy)
	return overrideRate{rule: r, limiter: l}, err
}

// bucket returns the name of a part's bucket.
func (r *Rule) bucket(p *part) string {
	if r.Path != nil {
		return r.key(p.entries)
	}
	var b strings.Builder
	keyEscaper.WriteString(&b, r.Domain) //nolint:errcheck,gosec // a strings.Builder does not fail
	for _, e := range p.entries {
		b.WriteByte('|')
		keyEscaper.WriteString(&b, e.GetKey()) //nolint:errcheck,gosec // as above
		b.WriteByte('|')
		keyEscaper.WriteString(&b, e.GetValue()) //nolint:errcheck,gosec // as above
	}
	return b.String()
}

// runOverrides is [call.run] for a request with rates in its descriptors. One take decides these
// and the others; the engine evaluates what is in shadow separately.
func (c *call) runOverrides(ctx context.Context) (allowed bool, err error) {
	var shadows, enforced []int // asks
	limiters := make([]*drawgate.Limiter, len(c.asks))
	for i := range c.parts {
		p := &c.parts[i]
		if p.ask < 0 || limiters[p.ask] != nil {
			continue
		}
		if p.shadowed() {
			shadows = append(shadows, p.ask)
			limiters[p.ask] = c.s.engine.Limiter(p.policy)
			continue
		}
		if limiters[p.ask] = p.limiter; p.limiter == nil {
			ask, err := c.s.engine.Ask(p.policy, c.s.opts.Tenant, p.key)
			if err != nil {
				return false, err
			}
			limiters[p.ask] = ask.Limiter
		}
		enforced = append(enforced, p.ask)
	}
	allowed = true
	if enforced = c.withoutDisabled(enforced); len(enforced) > 0 {
		request := drawgate.Request{Labels: c.label()}
		for _, i := range enforced {
			a := &c.asks[i]
			request.Buckets = append(request.Buckets, drawgate.Ask{
				Limiter: limiters[i], Tenant: a.Tenant, Key: a.Key,
				Costs: a.Costs,
			})
		}
		decision, _, err := limiters[enforced[0]].Take(ctx, request)
		if err != nil {
			return false, err
		}
		allowed = decision.Allowed
		c.fallback = c.fallback || decision.Fallback
		if !allowed {
			c.refusal(&decision)
		}
		for bucket, i := range enforced {
			c.tellAsk(i, &decision, bucket)
		}
		c.describeTake(&decision)
	}
	c.evaluateShadows(ctx, shadows)
	return allowed, nil
}

// withoutDisabled leaves out the asks of policies that are disabled.
func (c *call) withoutDisabled(asks []int) []int {
	kept := asks[:0]
	for _, i := range asks {
		if p, _ := c.s.engine.Policy(c.asks[i].Policy); p.DisabledUntil.IsZero() {
			kept = append(kept, i)
		}
	}
	return kept
}

// evaluateShadows evaluates what is in shadow. An error there has no effect.
func (c *call) evaluateShadows(ctx context.Context, asks []int) {
	if len(asks) == 0 {
		return
	}
	r := engine.Request{}
	for _, i := range asks {
		r.Asks = append(r.Asks, c.asks[i])
	}
	res, err := c.s.engine.Take(ctx, &r)
	if err != nil || len(res.Shadow) != len(asks) {
		return
	}
	for k, i := range asks {
		c.tellShadow(i, &res.Shadow[k])
	}
}
