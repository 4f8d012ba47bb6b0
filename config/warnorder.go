package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/drawgate/drawgate/engine/rules"
)

// maxCompared is the largest number of rules that are compared with each other. With more rules
// these warnings are left out.
const maxCompared = 500

// warnOrder warns of rules that have no effect because an earlier rule matches the same requests,
// and either ends the list or applies the same policies.
func (c *Config) warnOrder() {
	if len(c.Rules) > maxCompared {
		return
	}
	for i := range c.Rules {
		if first, ok := c.hidden(i); ok {
			at := &c.places[i]
			c.Warnings = append(c.Warnings, at.problem(at.start,
				fmt.Sprintf("the rule is never reached: %s matches everything that this rule matches, and ends the list", c.ruleName(first)),
				"put the special rules first"))
			continue
		}
		for k := range c.Rules[i].Apply {
			c.warnApplied(i, k)
		}
	}
}

// hidden returns the earlier rule that ends the list for everything that rule i matches.
func (c *Config) hidden(i int) (first int, ok bool) {
	for j := range i {
		r := &c.Rules[j]
		if (r.Exempt || r.Final && !r.Shadow) && covers(r, &c.Rules[i]) {
			return j, true
		}
	}
	return 0, false
}

// warnApplied warns of a policy that an earlier rule always applies first.
func (c *Config) warnApplied(i, k int) {
	r, a := &c.Rules[i], &c.Rules[i].Apply[k]
	shadow := r.Shadow || a.Shadow
	for j := range i {
		earlier := &c.Rules[j]
		applies := slices.ContainsFunc(earlier.Apply, func(b rules.Apply) bool {
			return b.Policy == a.Policy && (b.Shadow || earlier.Shadow) == shadow
		})
		if !applies || !covers(earlier, r) {
			continue
		}
		at := &c.places[i]
		c.Warnings = append(c.Warnings, at.problem(at.place(fmt.Sprintf("apply[%d].policy", k)),
			fmt.Sprintf("policy %s is never applied by this rule: %s matches everything that this rule matches, and applies the policy first", shorten(a.Policy), c.ruleName(j)),
			"put the special rules first"))
		return
	}
}

// ruleName names a rule in a message about another one.
func (c *Config) ruleName(i int) string {
	name := "the rule"
	if c.Rules[i].Name != "" {
		name = "rule " + shorten(c.Rules[i].Name)
	}
	return fmt.Sprintf("%s on line %d", name, c.places[i].start.Line)
}

// covers reports whether a matches everything that b matches, as far as that can be seen.
func covers(a, b *rules.Rule) bool {
	if a.When != "" && a.When != b.When || a.Schedule != nil &&
		(b.Schedule == nil || !sameSchedule(a.Schedule, b.Schedule)) {
		return false
	}
	m, n := &a.Match, &b.Match
	return (len(m.Methods) == 0 || len(n.Methods) > 0 && all(n.Methods, func(s string) bool {
		return slices.ContainsFunc(m.Methods, func(t string) bool { return strings.EqualFold(s, t) })
	})) && coversPath(m.Path, n.Path) && coversHost(m.Host, n.Host) &&
		coversValue(m.Route, n.Route) && coversValue(m.User, n.User) && coversValue(m.Class, n.Class) &&
		(len(m.IPs) == 0 || len(n.IPs) > 0 && all(n.IPs, func(p netip.Prefix) bool { return within(p, m.IPs) })) &&
		coversAll(m.Headers, n.Headers, true) && coversAll(m.Attrs, n.Attrs, false)
}

func all[T any](list []T, f func(T) bool) bool {
	return !slices.ContainsFunc(list, func(t T) bool { return !f(t) })
}

func sameSchedule(a, b *rules.Schedule) bool {
	return a.From == b.From && a.To == b.To && a.Zone == b.Zone && slices.Equal(a.Days, b.Days)
}

// coversValue reports whether every value of condition b is one of condition a: exact, "prefix*",
// or "" for any.
func coversValue(a, b string) bool {
	prefix, open := strings.CutSuffix(a, "*")
	switch {
	case a == "" || a == b:
		return true
	case b == "":
		return false
	}
	return open && strings.HasPrefix(strings.TrimSuffix(b, "*"), prefix)
}

// coversPath is coversValue for paths, whose segments may be {names}. If both have some, only
// the same text counts.
func coversPath(a, b string) bool {
	if strings.Contains(a, "{") {
		return a == b
	}
	return coversValue(a, b)
}

// coversHost is coversValue for hosts: exact, or "*.example.com".
func coversHost(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	return a == "" || a == b || strings.HasPrefix(a, "*.") && strings.HasSuffix(b, a[1:])
}

func within(p netip.Prefix, list []netip.Prefix) bool {
	return slices.ContainsFunc(list, func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) })
}

// coversAll is coversValue for values by name.
func coversAll(a, b map[string]string, header bool) bool {
	if header {
		a, b = lowerKeys(a), lowerKeys(b)
	}
	for name, cond := range a {
		other, ok := b[name]
		if !ok || !coversValue(cond, other) {
			return false
		}
	}
	return true
}

func lowerKeys(m map[string]string) map[string]string {
	lower := map[string]string{}
	for k, v := range m {
		lower[strings.ToLower(k)] = v
	}
	return lower
}
