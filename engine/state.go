package engine

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/rules"
)

// shadowSuffix ends the policy part of the keys that a rule in shadow counts by.
const shadowSuffix = "~shadow"

// state is a configuration in force.
type state struct {
	config   Config
	policies map[string]*policy
	set      *rules.Set
	applies  []use // by rules.Applied.Index
}

// policy is a policy in force. Its limiters count in the same buckets.
type policy struct {
	name     string
	shadow   bool
	limiter  *drawgate.Limiter
	beside   *drawgate.Limiter // for rules in shadow: with buckets of its own
	exact    map[keyOf]*drawgate.Limiter
	prefixes []prefix // longest first
	disabled *disabled
}

type keyOf struct{ tenant, key string }

type prefix struct {
	keyOf
	limiter *drawgate.Limiter
}

// use is what a rule applies, made ready.
type use struct {
	policy  *policy
	limiter *drawgate.Limiter
	costs   []drawgate.Cost
}

// disabled is until when a policy is disabled, in Unix nanoseconds; 0 if it is not.
type disabled struct{ at atomic.Int64 }

func (d *disabled) set(t time.Time) {
	if t.IsZero() {
		d.at.Store(0)
		return
	}
	d.at.Store(t.UnixNano())
}

func (d *disabled) until(now time.Time) time.Time {
	at := d.at.Load()
	if at == 0 || at <= now.UnixNano() {
		return time.Time{}
	}
	return time.Unix(0, at)
}

func (s *state) unknown(name string) error { return fmt.Errorf("%w %q", ErrUnknownPolicy, name) }

// compile makes a configuration ready. old may be nil.
func (e *Engine) compile(c Config, old *state) (*state, error) {
	s := &state{config: c, policies: make(map[string]*policy, len(c.Policies))}
	var errs []error
	for i := range c.Policies {
		p, err := e.policy(i, &c.Policies[i])
		if _, twice := s.policies[c.Policies[i].Name]; twice {
			err = errors.Join(err, &Error{Policy: c.Policies[i].Name, Index: i, Field: "name", Err: errors.New("the name is used twice")})
		}
		if err != nil {
			errs = append(errs, err)
		}
		p.disabled = &disabled{}
		if old != nil && old.policies[p.name] != nil {
			p.disabled = old.policies[p.name].disabled
		}
		s.policies[p.name] = p
	}
	var err error
	s.set, err = rules.Compile(c.Rules, func(name string) error {
		if s.policies[name] == nil {
			return fmt.Errorf("there is no policy %q", name)
		}
		return nil
	})
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i := range c.Rules {
		for k := range c.Rules[i].Apply {
			u, err := e.use(s, &c.Rules[i], k)
			if err != nil {
				errs = append(errs, &rules.Error{Rule: i, Name: c.Rules[i].Name, Field: fmt.Sprintf("apply[%d].amounts", k), Err: err})
			}
			s.applies = append(s.applies, u)
		}
	}
	return s, errors.Join(errs...)
}

func (e *Engine) policy(i int, c *Policy) (*policy, error) {
	p := &policy{name: c.Name, shadow: c.Shadow, exact: map[keyOf]*drawgate.Limiter{}}
	var errs []error
	var err error
	if p.limiter, err = e.base.With(c.Policy); err != nil {
		errs = append(errs, err)
	}
	if strings.HasSuffix(c.Name, shadowSuffix) {
		errs = append(errs, &Error{Policy: c.Name, Index: i, Field: "name", Err: errors.New("names that end in " + shadowSuffix + " are for rules in shadow")})
	}
	return p, errors.Join(errs...)
}

func (e *Engine) use(s *state, r *rules.Rule, k int) (use, error) {
	a := &r.Apply[k]
	p := s.policies[a.Policy]
	u := use{policy: p, limiter: p.limiter}
	for unit, n := range a.Costs {
		u.costs = append(u.costs, drawgate.Cost{Unit: unit, N: n})
	}
	return u, nil
}

// of returns the limiter for a key: the override's, or otherwise this one.
func (p *policy) of(tenant, key string, otherwise *drawgate.Limiter) *drawgate.Limiter {
	if l := p.exact[keyOf{tenant, key}]; l != nil {
		return l
	}
	return otherwise
}
