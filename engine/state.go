package engine

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/internal/similar"
	"github.com/drawgate/drawgate/store"
)

// ShadowSuffix is the suffix of the policy in keys that a rule in shadow counts by. Names of
// configured policies must not end with it.
const ShadowSuffix = "~shadow"

// OwnPrefix is the prefix of the policy in keys that Drawgate uses for itself. Names of configured
// policies must not begin with it, unless they are a [Policy.Base].
const OwnPrefix = store.OwnPolicies

// state is a configuration in force.
type state struct {
	config   Config             // without policies that are a Base
	policies map[string]*policy // all of them
	set      *rules.Set
	uses     []use // by rules.Applied.Index
}

// policy is a policy in force.
type policy struct {
	name      string
	said      *Policy // as configured
	shadow    bool
	off       bool     // disabled by the configuration
	plain     *variant // with the policy's own amounts
	overrides overrides
	disabled  *disabled
	variants  variants

	totals   []int // positions of prepaid limits
	credited *credited
	topped   topped
}

// use is one compiled apply of a rule.
type use struct {
	policy  *policy
	variant *variant
	costs   []drawgate.Cost
}

// of returns the variant for a key: that of an override, or otherwise; with what was credited to
// the key.
func (p *policy) of(tenant, key string, otherwise *variant) *variant {
	v := otherwise
	if o := p.overrides.of(tenant, key); o != nil {
		v = o
	}
	if len(p.totals) == 0 {
		return v
	}
	return p.withCredit(v, tenant, key)
}

// endless stands for an end that never comes, in a form that all clients can read.
var endless = time.Unix(math.MaxInt32, 0)

// disabled holds until when a policy is disabled, in Unix nanoseconds; 0 if it is not.
type disabled struct{ at atomic.Int64 }

func (d *disabled) set(t time.Time) {
	if t.IsZero() {
		d.at.Store(0)
		return
	}
	d.at.Store(t.UnixNano())
}

func (d *disabled) now() bool {
	at := d.at.Load()
	return at != 0 && time.Now().UnixNano() < at
}

func (d *disabled) until() time.Time {
	if !d.now() {
		return time.Time{}
	}
	return time.Unix(0, d.at.Load())
}

// disabled returns until when a policy is disabled under the next configuration: what
// [Engine.Disable] set under this one continues, unless this configuration itself disables the
// policy. s may be nil.
func (s *state) disabled(next *Policy) *disabled {
	d := &disabled{}
	switch {
	case next.Disabled:
		d.set(endless)
	case s != nil && s.policies[next.Name] != nil && !s.policies[next.Name].off:
		return s.policies[next.Name].disabled
	}
	return d
}

// find returns the policy of this name.
func (s *state) find(name string) (*policy, error) {
	if p := s.policies[name]; p != nil && !isOwn(name) {
		return p, nil
	}
	return nil, fmt.Errorf("%w %q%s", ErrUnknownPolicy, name, similar.Suggest(name, s.names()))
}

// asked returns the policy of an ask.
func (s *state) asked(a *Ask) (*policy, error) {
	if p := s.policies[a.Policy]; p != nil && a.Own {
		return p, nil
	}
	return s.find(a.Policy)
}

// isOwn reports whether a policy is one that this module made for itself: nobody can name it.
func isOwn(name string) bool { return strings.HasPrefix(name, OwnPrefix) }

func (s *state) names() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.policies)), isOwn)
}

// compile compiles a configuration. old may be nil.
func (e *Engine) compile(c Config, old *state) (*state, error) {
	s := &state{config: c, policies: make(map[string]*policy, len(c.Policies))}
	s.config.Policies = c.Listed()
	shadowed := inShadow(&c)
	var errs []error
	for i := range c.Policies {
		p, mistakes := e.policy(i, &c.Policies[i], shadowed[c.Policies[i].Name])
		if s.policies[p.name] != nil {
			mistakes = append(mistakes, &Error{
				Policy: p.name, Index: i, Field: "name",
				Err: errors.New("another policy has the same name"),
			})
		}
		errs = append(errs, mistakes...)
		p.disabled = old.disabled(&c.Policies[i])
		s.policies[p.name] = p
	}
	var err error
	s.set, err = rules.Compile(c.Rules, func(name string) error {
		if s.policies[name] == nil {
			return fmt.Errorf("unknown policy %q%s", name, similar.Suggest(name, s.names()))
		}
		return nil
	})
	errs = append(errs, err)
	for i := range c.Rules {
		errs = append(errs, s.apply(i, &c.Rules[i])...)
	}
	for i, units := range c.TakesNothing() {
		errs = append(errs, &rules.Error{Rule: i, Name: c.Rules[i].Name, Field: "apply", Err: fmt.Errorf(
			"it takes nothing: it names no costs, and its policies do not count requests, only %s: add costs, or costs of 0 if only callers name them", strings.Join(units, ", "))})
	}
	return s, errors.Join(errs...)
}

// inShadow returns the policies that a rule applies in shadow.
func inShadow(c *Config) map[string]bool {
	names := map[string]bool{}
	for i := range c.Rules {
		for k := range c.Rules[i].Apply {
			if a := &c.Rules[i].Apply[k]; a.Shadow || c.Rules[i].Shadow {
				names[a.Policy] = true
			}
		}
	}
	return names
}

// policy compiles policy i.
func (e *Engine) policy(i int, c *Policy, shadowed bool) (p *policy, errs []error) {
	p = &policy{
		name: c.Name, said: c, shadow: c.Shadow, off: c.Disabled,
		variants: variants{base: e.base, policy: c.Policy, made: map[string]*variant{}},
		totals:   totals(&c.Policy), credited: e.credited,
	}
	switch {
	case c.Shadow: // counts where it would count if it were enforced
		p.variants.shadow = e.shadow
	case shadowed:
		p.variants.shadow, p.variants.suffix = e.shadow, ShadowSuffix
	}
	fail := func(field string, err error) {
		errs = append(errs, &Error{Policy: c.Name, Index: i, Field: field, Err: err})
	}
	if strings.HasSuffix(c.Name, ShadowSuffix) {
		fail("name", fmt.Errorf("names that end with %s are reserved for rules in shadow", ShadowSuffix))
	}
	if isOwn(c.Name) && !c.Base {
		fail("name", fmt.Errorf("names that begin with %s are reserved", OwnPrefix))
	}
	var err error
	if p.plain, err = p.variants.with(nil); err != nil {
		return p, append(errs, err)
	}
	for k := range c.Overrides {
		o := &c.Overrides[k]
		v, err := p.variants.with(o.Amounts)
		if err == nil && len(o.Amounts) == 0 {
			err = errors.New("amounts is empty")
		}
		if err != nil {
			fail(fmt.Sprintf("overrides[%d].amounts", k), err)
		} else if err = p.overrides.add(o, v); err != nil {
			fail(fmt.Sprintf("overrides[%d].key", k), err)
		}
	}
	return p, errs
}

// apply compiles what rule i applies. It reports mistakes that package rules does not find.
func (s *state) apply(i int, r *rules.Rule) (errs []error) {
	for k := range r.Apply {
		a := &r.Apply[k]
		fail := func(field string, err error) {
			errs = append(errs, &rules.Error{
				Rule: i, Name: r.Name, Field: fmt.Sprintf("apply[%d].%s", k, field),
				Err: err,
			})
		}
		u := use{policy: s.policies[a.Policy]}
		if u.policy != nil && u.policy.plain != nil {
			var err error
			if u.variant, err = u.policy.variants.with(a.Amounts); err != nil {
				fail("amounts", err)
			} else if u.costs, err = costs(u.variant.own.Plan(), a.Costs); err != nil {
				fail("costs", err)
			}
		}
		s.uses = append(s.uses, u)
	}
	return errs
}

// costs checks the costs of a rule for a policy. One request is nil, which is a limiter's default.
func costs(plan *drawgate.Plan, units map[string]int64) (list []drawgate.Cost, err error) {
	for _, unit := range slices.Sorted(maps.Keys(units)) {
		list = append(list, drawgate.Cost{Unit: unit, N: units[unit]})
	}
	n, err := plan.Amounts(list)
	if err != nil {
		return nil, err
	}
	policy := plan.Policy()
	for i := range policy.Limits {
		if policy.Limits[i].Every == drawgate.Total { // more may be credited
			continue
		}
		if policy.Limits[i].Amount > 0 && n[i] > plan.Max(i, drawgate.MaxPriority) { // of 0 it is meant
			return nil, fmt.Errorf("%d can never fit limit %q of policy %q", n[i], policy.Limits[i].Name, policy.Name)
		}
	}
	if one, _ := plan.Amounts(nil); n == one && plan.CountsRequests() {
		return nil, nil
	}
	return list, nil
}
