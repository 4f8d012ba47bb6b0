package engine

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine/rules"
)

// Config is the configuration of an engine.
type Config struct {
	Policies []Policy
	Rules    []rules.Rule
	Off      bool // limits are switched off: a take of an unknown policy passes, and nothing is counted
}

// Policy is a policy with the engine's settings for it.
type Policy struct {
	drawgate.Policy
	Shadow    bool // evaluated and reported, never enforced
	Disabled  bool // left out of all takes until [Engine.Enable], or until a configuration does not say so
	Overrides []Override
	// only serves to make limiters with other limits: it can be used and disabled by name, but is
	// not listed
	Base bool
}

// Listed returns the policies that are not a Base.
func (c *Config) Listed() []Policy {
	return slices.DeleteFunc(slices.Clone(c.Policies), func(p Policy) bool { return p.Base })
}

// TakesNothing returns the rules that alone make a take fail unless its caller names a unit: they
// name no costs, and none of their policies counts requests. It returns the policies' units by the
// position of the rule. What a rule applies in shadow only counts if it applies nothing else.
func (c *Config) TakesNothing() map[int][]string {
	policies := make(map[string]*Policy, len(c.Policies))
	for i := range c.Policies {
		policies[c.Policies[i].Name] = &c.Policies[i]
	}
	found := map[int][]string{}
	for i := range c.Rules {
		if units := takesNothing(&c.Rules[i], policies); len(units) > 0 {
			found[i] = units
		}
	}
	return found
}

func takesNothing(r *rules.Rule, policies map[string]*Policy) (units []string) {
	shadow := func(a rules.Apply) bool {
		return r.Shadow || a.Shadow || policies[a.Policy] != nil && policies[a.Policy].Shadow
	}
	enforces := slices.ContainsFunc(r.Apply, func(a rules.Apply) bool { return !shadow(a) })
	for _, a := range r.Apply {
		if enforces && shadow(a) {
			continue
		}
		p := policies[a.Policy]
		if p == nil || len(a.Costs) > 0 {
			return nil // an unknown policy is reported elsewhere
		}
		for i := range p.Limits {
			switch unit := cmp.Or(p.Limits[i].Unit, drawgate.UnitRequests); {
			case unit == drawgate.UnitRequests:
				return nil
			case !slices.Contains(units, unit):
				units = append(units, unit)
			}
		}
	}
	return units
}

// AmountsInForce returns the listed policies with all amounts that takes may be tested against:
// their own, those of rules and those of overrides.
//
// Each list holds the amounts that takes of one bucket may use in turn, so its policies have one
// name. A policy has one list for all keys without an override, and one for each override. What
// rules apply in shadow is left out.
func (c *Config) AmountsInForce() (lists [][]drawgate.Policy, err error) {
	for _, p := range c.Listed() {
		seen := map[string]bool{}
		for _, amounts := range c.amountsOf(&p) {
			var list []drawgate.Policy
			for _, a := range amounts {
				id := fingerprint(a)
				if seen[id] {
					continue
				}
				seen[id] = true
				variant, err := withAmounts(p.Policy, a)
				if err != nil {
					return nil, err
				}
				list = append(list, variant)
			}
			if len(list) > 0 {
				lists = append(lists, list)
			}
		}
	}
	return lists, nil
}

// amountsOf returns the amounts of a policy that differ from its own, grouped by the buckets that
// use them; nil stands for its own.
func (c *Config) amountsOf(p *Policy) (lists [][]map[string]int64) {
	if !slices.ContainsFunc(p.Overrides, func(o Override) bool { return o.Key == "*" && o.Tenant == "" }) {
		plain := []map[string]int64{nil}
		for i := range c.Rules {
			for k := range c.Rules[i].Apply {
				if a := &c.Rules[i].Apply[k]; a.Policy == p.Name && !a.Shadow && !c.Rules[i].Shadow {
					plain = append(plain, a.Amounts)
				}
			}
		}
		lists = append(lists, plain)
	}
	for i := range p.Overrides {
		lists = append(lists, []map[string]int64{p.Overrides[i].Amounts})
	}
	return lists
}

// Override gives some keys of a policy other amounts. The most specific override applies: the key
// itself before the longest prefix, and of two that are equally specific the one that names a
// tenant. It replaces the amounts of rules.
type Override struct {
	Key     string           // exact, or "prefix*"
	Tenant  string           // "": any tenant
	Amounts map[string]int64 // per limit (and "limit.burst"); limits without an amount keep the policy's
}

// Options holds the optional settings of an Engine. The zero value is ready to use.
type Options struct {
	Tenant       string             // for requests that name none
	StoreTimeout time.Duration      // as in [drawgate.Options]; shadows wait no longer either
	ShadowGrace  time.Duration      // how long an answer that is ready waits for its shadows: 0 means 5ms
	Observer     *drawgate.Observer // receives every enforced decision, and every store call; nil costs nothing
	// receives every shadow that would have answered differently; called on the caller's path: it
	// must not block
	Diverged func(*Divergence)
	Logger   *slog.Logger // nil discards
}
