package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/internal/similar"
)

// Amounts are other amounts of one key, by policy and limit ("limit.burst" is the burst of a
// bucket).
type Amounts map[string]map[string]int64

// mostMade is how many variants of a policy are remembered to be used again.
const mostMade = 20_000

// CheckAmounts returns what speaks against amounts that a key is to be given while the engine runs:
// the first of them that does not exist, or cannot be replaced. by is the expression whose value
// the key is: some rule must apply the policy by it.
func (c *Config) CheckAmounts(key, by string, amounts Amounts) error {
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		i := slices.IndexFunc(c.Policies, func(p Policy) bool { return p.Name == name && !p.Base })
		if i < 0 {
			var names []string
			for _, p := range c.Listed() {
				names = append(names, p.Name)
			}
			return fmt.Errorf("unknown policy %q%s", name, similar.Suggest(name, names))
		}
		if err := c.checkAmounts(&c.Policies[i], key, by, amounts[name]); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) checkAmounts(p *Policy, key, by string, amounts map[string]int64) error {
	if slices.ContainsFunc(p.Overrides, func(o Override) bool { return o.Key == key }) {
		return fmt.Errorf("policy %q has an override of key %q in the configuration: change it there", p.Name, key)
	}
	if !c.appliesBy(p.Name, by) {
		return fmt.Errorf("no rule applies policy %q by %s, so that its limits have no amounts of single keys", p.Name, by)
	}
	for i := range p.Limits {
		_, amount := amounts[p.Limits[i].Name]
		if l := &p.Limits[i]; amount && l.Every == drawgate.Total {
			return fmt.Errorf("limit %q of policy %q is a prepaid budget: credit it to the key instead", l.Name, p.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		if n := amounts[name]; n < 1 || n > drawgate.MaxAmount {
			return fmt.Errorf("limit %q of policy %q: amount %d is not 1 to %d", name, p.Name, n, int64(drawgate.MaxAmount))
		}
	}
	varied, err := withAmounts(p.Policy, amounts)
	if err == nil {
		_, err = varied.Compile()
	}
	return err
}

// appliesBy reports whether a rule applies a policy by an expression, however it is written.
func (c *Config) appliesBy(policy, by string) bool {
	form := strings.NewReplacer(" ", "", "\t", "", "\n", "", "'", `"`)
	return slices.ContainsFunc(c.Rules, func(r rules.Rule) bool {
		return slices.ContainsFunc(r.Apply, func(a rules.Apply) bool {
			return a.Policy == policy && form.Replace(a.Key) == form.Replace(by)
		})
	})
}

// GiveAmounts gives keys amounts of their own, in place of those that they were given before; none
// takes them back. They are in force for each take from now on, and for callers who wait. A key has
// those of its override, if the configuration has one of exactly this key; otherwise these, before
// those of an override of a prefix, or of a rule. The buckets stay the same.
//
// The amounts stay if the configuration is replaced. Those of limits that it does not have any more
// are left out, with a warning, until one has them again.
func (e *Engine) GiveAmounts(keys map[string]Amounts) {
	e.mu.Lock()
	defer e.mu.Unlock()
	changed := map[string]map[string]bool{} // keys by policy
	for key, amounts := range keys {
		for _, list := range []Amounts{e.given[key], amounts} {
			for policy := range list {
				if changed[policy] == nil {
					changed[policy] = map[string]bool{}
				}
				changed[policy][key] = true
			}
		}
		if len(amounts) == 0 {
			delete(e.given, key)
			continue
		}
		if e.given == nil {
			e.given = map[string]Amounts{}
		}
		e.given[key] = amounts
	}
	if len(changed) == 0 {
		return
	}
	s := *e.state.Load()
	for policy, keys := range changed {
		e.give(&s, policy, slices.Collect(maps.Keys(keys)))
	}
	e.state.Store(&s) // another one: callers who wait find their limits again
	e.base.WakeAll()
}

// give puts in force what keys were given of a policy. mu is held.
func (e *Engine) give(s *state, policy string, keys []string) {
	p := s.policies[policy]
	if p == nil || p.plain == nil {
		e.leftOut(policy, "", len(keys))
		return
	}
	next := map[string]*variant{}
	if old := p.overrides.given.Load(); old != nil {
		next = maps.Clone(*old)
	}
	lost := map[string]int{}
	for _, key := range keys {
		bounded := drawgate.BoundedKey(key)
		delete(next, bounded)
		if v := p.withGiven(e.given[key][policy], lost); v != nil {
			next[bounded] = v
		}
	}
	p.overrides.given.Store(&next)
	for _, limit := range slices.Sorted(maps.Keys(lost)) {
		e.leftOut(policy, limit, lost[limit])
	}
}

// withGiven returns the variant with those of some amounts whose limits there are, and adds the
// others to lost; nil if there are none.
func (p *policy) withGiven(amounts map[string]int64, lost map[string]int) *variant {
	fit := map[string]int64{}
	for limit, n := range amounts {
		if _, err := withAmounts(p.said.Policy, map[string]int64{limit: n}); err != nil {
			lost[limit]++
			continue
		}
		fit[limit] = n
	}
	if len(fit) == 0 {
		return nil
	}
	if len(p.variants.made) >= mostMade {
		clear(p.variants.made)
	}
	v, err := p.variants.with(fit)
	if err != nil {
		for limit := range fit {
			lost[limit]++
		}
		return nil
	}
	return v
}

// leftOut warns of amounts that are not in force.
func (e *Engine) leftOut(policy, limit string, keys int) {
	e.opts.Logger.Warn("the configuration has no such limit any more: what single keys were given of it is not in force",
		"policy", policy, "limit", limit, "keys", keys)
}

// giveAll is give for all keys, of a state that is not in force yet.
func (e *Engine) giveAll(s *state) {
	keys := map[string][]string{}
	for key, amounts := range e.given {
		for policy := range amounts {
			keys[policy] = append(keys[policy], key)
		}
	}
	for _, policy := range slices.Sorted(maps.Keys(keys)) {
		e.give(s, policy, keys[policy])
	}
}
