package engine

import (
	"slices"

	"github.com/drawgate/drawgate"
)

// useOf names what a rule applies, in one configuration and the next.
type useOf struct{ rule, policy string }

// renew returns what tells a take that waits which limiters count its buckets once the configuration is replaced; nil for one that does not wait. The buckets
// stay the same: a policy that is gone, or a rule that is, leaves them counted as they were, or by the policy's own amounts.
func (e *Engine) renew(s *state, r *Request, res *Result) func(int) *drawgate.Limiter {
	if !r.Wait {
		return nil
	}
	enforced := slices.DeleteFunc(slices.Clone(res.Applied), func(a Applied) bool { return a.Bucket < 0 })
	return func(i int) *drawgate.Limiter {
		now, a := e.state.Load(), &enforced[i]
		if now == s || now.policies[a.Policy] == nil {
			return nil
		}
		p := now.policies[a.Policy]
		v := p.plain
		if a.Rule >= 0 {
			if u := now.byRule[useOf{ruleName(s.config.Rules, a.Rule), a.Policy}]; u != nil {
				v = u
			}
		}
		return p.of(e.tenant(a.Tenant), a.Key, v).own
	}
}
