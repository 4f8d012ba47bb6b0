package engine

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine/rules"
)

// Config is what an engine decides by.
type Config struct {
	Policies []Policy
	Rules    []rules.Rule
	Off      bool // limits are switched off: who asks for a policy that there is not passes, and nothing is counted
}

// Policy is a policy and what an engine adds to it.
type Policy struct {
	drawgate.Policy
	Shadow    bool // evaluated and reported, never enforced
	Disabled  bool // left out of all takes until [Engine.Enable], or until a configuration is in force that does not say so
	Overrides []Override
	Base      bool // limiters of other limits are made from it: it can be asked for and disabled by name, and is listed nowhere
}

// Listed returns the policies without those that are a Base.
func (c *Config) Listed() []Policy {
	return slices.DeleteFunc(slices.Clone(c.Policies), func(p Policy) bool { return p.Base })
}

// TakesNothing returns the rules by which alone a take is an error unless its caller names a unit:
// they name no costs, and no policy that they apply counts requests. Of each, by its position, it
// returns the units that there are. What a rule applies in shadow counts only if that is all that
// it applies.
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
			return nil // a policy that there is not is told elsewhere
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

// AmountsInForce returns the listed policies with all the amounts that takes may be tested against:
// their own, those of rules and those of overrides.
//
// Each list is what takes of one bucket may use in turn, so its policies have one name. A policy
// has a list for all keys without an override, and one for each override. What rules apply in
// shadow is not in force.
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

// amountsOf returns the amounts of a policy that differ from its own, by the buckets that they are
// for; nil are its own.
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

// Override gives some keys of a policy other amounts. The most exact one decides: the key itself
// before the longest prefix, and of two that are as exact the one that names a tenant. It replaces
// what a rule says of amounts.
type Override struct {
	Key     string           // exact, or "prefix*"
	Tenant  string           // "": of any tenant
	Amounts map[string]int64 // per limit (and "limit.burst"); what is not named stays as in the policy
}

// Options holds what an Engine can do without. The zero value is ready to use.
type Options struct {
	Tenant       string             // of whoever names none
	StoreTimeout time.Duration      // as in [drawgate.Options]; what is shadow waits no longer either
	ShadowGrace  time.Duration      // how long an answer waits for its shadows, when it is there before them: 0 means 5ms
	Observer     *drawgate.Observer // told of every decision that is enforced, and of every store call; nil costs nothing
	Diverged     func(*Divergence)  // told of every shadow that would have answered differently; on the caller's path: it must not block
	Logger       *slog.Logger       // nil discards
}
