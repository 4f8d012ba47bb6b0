package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/llm"
)

// gatewayUse is how calls through the gateway use a policy.
type gatewayUse struct{ upstreams, units []string }

func (g *gatewayUse) add(upstream string, units []string) {
	for _, v := range []struct {
		list  *[]string
		names []string
	}{{&g.upstreams, []string{upstream}}, {&g.units, units}} {
		for _, name := range v.names {
			if !slices.Contains(*v.list, name) {
				*v.list = append(*v.list, name)
			}
		}
	}
}

// warnUnits warns of limits that calls through the gateway never count, because of a unit that none
// of their upstreams has. Such a limit admits everything. A policy that other takes may use is left
// out: they can name any unit.
func (c *Config) warnUnits() {
	uses := c.gatewayUses()
	for i := range c.Policies {
		p := &c.Policies[i]
		use := uses[p.Name]
		if use == nil {
			continue
		}
		for k := range p.Limits {
			l := &p.Limits[k]
			if unit := cmp.Or(l.Unit, drawgate.UnitRequests); !slices.Contains(use.units, unit) {
				c.warnOf(limitSetting(p.Name, l.Name), c.unitHint(unit, use.units),
					"limit %s of policy %s never refuses a call: it counts %s, which no upstream that uses the policy counts (%s)",
					shorten(l.Name), shorten(p.Name), shorten(unit),
					strings.Join(use.upstreams[:min(len(use.upstreams), 10)], ", "))
			}
		}
	}
}

// warnStored warns of upstreams whose calls for what is stored nothing counts, because their policy
// has no limit of what these calls have.
func (c *Config) warnStored() {
	for i := range c.Gateway.Upstreams {
		u := &c.Gateway.Upstreams[i]
		at := slices.IndexFunc(c.Policies, func(p drawgate.Policy) bool { return p.Name == u.Stored.Policy })
		if at < 0 || slices.ContainsFunc(c.Policies[at].Limits, func(l drawgate.Limit) bool {
			return l.Unit == "" || l.Unit == drawgate.UnitRequests || l.Unit == llm.UnitBytes
		}) {
			continue
		}
		c.warnOf(upstreamSetting(u.Name)+".stored", "give the policy a limit of requests, or name another one",
			"nothing counts the calls of %s for what is stored: policy %s has no limit of requests or bytes",
			shorten(u.Name), shorten(u.Stored.Policy))
	}
}

// gatewayUses returns the policies that only calls through the gateway use, as far as that can be
// seen.
func (c *Config) gatewayUses() map[string]*gatewayUse {
	uses := map[string]*gatewayUse{}
	if len(c.Gateway.Upstreams) == 0 {
		return uses
	}
	use := func(policy string) *gatewayUse {
		if uses[policy] == nil {
			uses[policy] = &gatewayUse{}
		}
		return uses[policy]
	}
	units := make([][]string, len(c.Gateway.Upstreams))
	for i := range c.Gateway.Upstreams {
		u := &c.Gateway.Upstreams[i]
		units[i] = c.upstreamUnits(u)
		for _, m := range u.Models {
			use(m.Policy).add(u.Name, units[i])
		}
		if p := u.Stored.Policy; p != "" {
			use(p).add(u.Name, units[i])
		}
	}
	others := map[string]bool{}
	for k := range c.Rules {
		r := &c.Rules[k]
		for _, a := range r.Apply {
			if !forGateway(r, a.Key) {
				others[a.Policy] = true
				continue
			}
			for i := range c.Gateway.Upstreams {
				if u := &c.Gateway.Upstreams[i]; r.Match.Attrs["upstream"] == "" ||
					fits(r.Match.Attrs["upstream"], u.Name) {
					use(a.Policy).add(u.Name, append(slices.Clone(units[i]), namedUnits(a.Costs)...))
				}
			}
		}
	}
	for policy := range others {
		delete(uses, policy)
	}
	return uses
}

// upstreamUnits returns what calls to an upstream count.
func (c *Config) upstreamUnits(u *Upstream) (units []string) {
	if p, err := u.Provider(); err == nil {
		units = slices.Clone(p.Units)
	}
	if t := c.Gateway.Prices.Table(); t != nil {
		units = append(units, t.Unit())
	}
	return units
}

// forGateway reports whether a rule that applies a policy by a key is for calls through the
// gateway: it looks at an attribute that the gateway gives them.
func forGateway(r *rules.Rule, key string) bool {
	text := key + r.When
	return slices.ContainsFunc([]string{"key", "team", "upstream", "provider", "model", "family", "operation"},
		func(name string) bool {
			_, matched := r.Match.Attrs[name]
			return matched || strings.Contains(text, `attr("`+name+`")`)
		})
}

// namedUnits returns the units of which a rule takes some.
func namedUnits(costs map[string]int64) (units []string) {
	for unit, n := range costs {
		if n > 0 {
			units = append(units, unit)
		}
	}
	return units
}

// unitHint says which of the units that are counted was probably meant.
func (c *Config) unitHint(unit string, counted []string) string {
	prices := llm.Prices{Currency: cmp.Or(c.Gateway.Prices.Currency, "usd")}
	money := prices.Unit()
	list := "counted are " + strings.Join(counted, ", ")
	switch {
	case strings.HasSuffix(unit, "_micros") || unit == prices.Currency ||
		slices.Contains([]string{"dollar", "dollars", "euro", "euros"}, unit):
		if !slices.Contains(counted, money) {
			list = "set gateway.prices: without them nothing counts money"
		}
		if unit != money {
			list += fmt.Sprintf("; did you mean %q, millionths of the currency?", money)
		}
		return list
	case unit == llm.UnitTokens && slices.Contains(counted, llm.UnitOutputTokens):
		return list + "; write a limit of input_tokens and one of output_tokens"
	case unit == llm.UnitTokens && slices.Contains(counted, llm.UnitInputTokens):
		return list + `; did you mean "input_tokens"?`
	}
	if hint, _ := didYouMean(unit, counted); hint != "" {
		list += "; " + hint
	}
	return list
}
