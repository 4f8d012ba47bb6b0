package engine

import (
	"slices"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine/rules"
)

// useOf names what a rule applies, in one configuration and the next.
type useOf struct{ rule, policy string }

// renew returns what tells a take that waits which limiters count its buckets once the
// configuration is replaced; nil for one that does not wait. The buckets stay the same: a policy
// that is gone, or a rule that is, leaves them counted as they were, or by the policy's own
// amounts.
func (e *Engine) renew(s *state, r *Request, res *Result) func(int) *drawgate.Limiter {
	if !r.Wait {
		return nil
	}
	enforced := slices.DeleteFunc(slices.Clone(res.Applied), func(a Applied) bool { return a.Bucket < 0 })
	return func(i int) (l *drawgate.Limiter) {
		now := e.state.Load()
		if now == s {
			return nil
		}
		for k := range enforced {
			if a := &enforced[k]; a.Bucket == i && now.policies[a.Policy] != nil {
				own := e.own(now, s.config.Rules, a)
				if l == nil {
					l = own
				} else if both, err := lower(l, own); err == nil {
					l = both
				}
			}
		}
		return l
	}
}

// own returns the limiter by which a configuration counts what a rule of an earlier one applied. It
// has the policy.
func (e *Engine) own(s *state, before []rules.Rule, a *Applied) *drawgate.Limiter {
	p := s.policies[a.Policy]
	v := p.plain
	if a.Rule >= 0 {
		if u := s.byRule[useOf{ruleName(before, a.Rule), a.Policy}]; u != nil {
			v = u
		}
	}
	return p.of(e.tenant(a.Tenant), a.Key, v).own
}
