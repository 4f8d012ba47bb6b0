package engine

import (
	"slices"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine/rules"
)

// useOf identifies what a rule applies, across configurations.
type useOf struct{ rule, policy string }

// renew returns a func that tells a waiting take which limiters count its buckets after the
// configuration was replaced; nil if the take does not wait. The buckets stay the same. If a policy
// or a rule is gone, they are counted as before, or by the policy's own amounts.
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

// own returns the limiter by which a configuration counts what a rule of an earlier one applied.
// The configuration must have the policy.
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
