package engine

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// What is the kind of a [Change].
type What string

// The changes.
const (
	PolicyAdded What = "policy_added"
	// its buckets are ignored; a policy of this name that comes back in time finds them again.
	PolicyRemoved What = "policy_removed"
	PolicyChanged What = "policy_changed"
	LimitAdded    What = "limit_added"
	LimitRemoved  What = "limit_removed"
	// another unit, kind, window, zone or anchor makes it another limit, which starts unused.
	LimitRestarts   What = "limit_restarts"
	LimitChanged    What = "limit_changed" // what is used stays used
	OverrideAdded   What = "override_added"
	OverrideRemoved What = "override_removed"
	OverrideChanged What = "override_changed"
	RuleAdded       What = "rule_added"
	RuleRemoved     What = "rule_removed"
	RuleChanged     What = "rule_changed"
	RuleMoved       What = "rule_moved" // before or after others that it used to follow or precede
)

// Change is one difference between two configurations that may change an answer.
type Change struct {
	What          What
	Policy        string
	Limit         string
	Rule          string // its name, or "#3" for the third rule if it has no name
	Tenant, Key   string // of an override
	Field         string // "amount", "match", "apply"
	Before, After string
	Unused        bool // its counting starts unused
}

// String describes the change in one line.
func (c Change) String() string {
	var b strings.Builder
	if c.Policy != "" {
		fmt.Fprintf(&b, "policy %q", c.Policy)
	}
	if c.Limit != "" {
		fmt.Fprintf(&b, ", limit %q", c.Limit)
	}
	if c.Rule != "" {
		fmt.Fprintf(&b, "rule %s", quoted(c.Rule))
	}
	if c.Key != "" {
		fmt.Fprintf(&b, ", override of %q", c.Key)
	}
	if c.Tenant != "" {
		fmt.Fprintf(&b, " of tenant %q", c.Tenant)
	}
	_, verb, _ := strings.Cut(string(c.What), "_")
	fmt.Fprintf(&b, ": %s", verb)
	switch {
	case c.Field != "":
		fmt.Fprintf(&b, ": %s %s → %s", c.Field, c.Before, c.After)
	case c.Before+c.After != "":
		fmt.Fprintf(&b, ": %s", cmp.Or(c.After, c.Before))
	}
	if c.Unused {
		b.WriteString(" (starts unused)")
	}
	return b.String()
}

// quoted returns the name of a rule in quotes. The number of a rule without a name stays as it is.
func quoted(rule string) string {
	if strings.HasPrefix(rule, "#") {
		return rule
	}
	return fmt.Sprintf("%q", rule)
}

// Compare returns which answers another configuration would change, and how, if [Engine.Replace]
// put it in force. It is pure. Both configurations must be valid. Policies are matched by name;
// rules by name, or otherwise by their content.
func Compare(before, after Config) (list []Change) {
	before.Policies, after.Policies = before.Listed(), after.Listed()
	old, now := byName(before.Policies), byName(after.Policies)
	for i := range before.Policies {
		p := &before.Policies[i]
		if q := now[p.Name]; q == nil {
			list = append(list, Change{What: PolicyRemoved, Policy: p.Name})
		} else {
			list = append(list, comparePolicies(p, q)...)
		}
	}
	for i := range after.Policies {
		if p := &after.Policies[i]; old[p.Name] == nil {
			list = append(list, Change{What: PolicyAdded, Policy: p.Name, Unused: true})
		}
	}
	return append(list, compareRules(before.Rules, after.Rules)...)
}

func byName(list []Policy) map[string]*Policy {
	m := make(map[string]*Policy, len(list))
	for i := range list {
		m[list[i].Name] = &list[i]
	}
	return m
}

func comparePolicies(p, q *Policy) (list []Change) {
	differ := func(field string, a, b any) {
		if a, b := text(a), text(b); a != b {
			list = append(list, Change{What: PolicyChanged, Policy: p.Name, Field: field, Before: a, After: b})
		}
	}
	differ("shadow", p.Shadow, q.Shadow)
	differ("disabled", p.Disabled, q.Disabled)
	differ("wait.up_to", p.Wait.MaxWait, q.Wait.MaxWait)
	differ("wait.queue", p.Wait.Queue, q.Wait.Queue)
	differ("wait.backoff", p.Wait.Backoff, q.Wait.Backoff)
	differ("wait.barge", p.Wait.Barge, q.Wait.Barge)
	differ("wait.own_line", p.Wait.OwnLine, q.Wait.OwnLine)
	differ("fallback", p.Fallback, q.Fallback)
	differ("start", p.Start, q.Start)
	differ("leased", p.Leased, q.Leased)
	for i := range p.Limits {
		l := &p.Limits[i]
		if k := limit(&q.Policy, l.Name); k < 0 {
			list = append(list, Change{What: LimitRemoved, Policy: p.Name, Limit: l.Name})
		} else {
			list = append(list, compareLimits(p.Name, l, &q.Limits[k])...)
		}
	}
	for i := range q.Limits {
		if l := &q.Limits[i]; limit(&p.Policy, l.Name) < 0 {
			list = append(list, Change{What: LimitAdded, Policy: p.Name, Limit: l.Name, Unused: true})
		}
	}
	return append(list, compareOverrides(p, q)...)
}

func compareLimits(policy string, l, k *drawgate.Limit) (list []Change) {
	differ := func(what What, field string, a, b any) {
		if a, b := text(a), text(b); a != b {
			list = append(list, Change{
				What: what, Policy: policy, Limit: l.Name, Field: field, Before: a, After: b,
				Unused: what == LimitRestarts,
			})
		}
	}
	if identity(l) != identity(k) {
		differ(LimitRestarts, "unit", unit(l), unit(k))
		differ(LimitRestarts, "kind", l.Kind, k.Kind)
		differ(LimitRestarts, "window", l.Window, k.Window)
		differ(LimitRestarts, "every", l.Every, k.Every)
		differ(LimitRestarts, "zone", cmp.Or(l.Zone, "UTC"), cmp.Or(k.Zone, "UTC"))
		differ(LimitRestarts, "anchor", max(1, l.Anchor), max(1, k.Anchor))
	}
	differ(LimitChanged, "amount", l.Amount, k.Amount)
	differ(LimitChanged, "burst", bursts(l), bursts(k))
	differ(LimitChanged, "headroom", l.Headroom, k.Headroom)
	differ(LimitChanged, "keep", kept(l), kept(k))
	differ(LimitChanged, "margin", l.Margin, k.Margin)
	differ(LimitChanged, "charge", l.Charge, k.Charge)
	differ(LimitChanged, "precision", l.Precision, k.Precision)
	differ(LimitChanged, "fallback", l.Fallback, k.Fallback)
	return list
}

// identity identifies the state that a limit uses; it is 0 for an invalid limit.
func identity(l *drawgate.Limit) uint64 {
	plan, err := drawgate.Policy{Name: "one", Limits: []drawgate.Limit{*l}}.Compile()
	if err != nil {
		return 0
	}
	return store.Internal.Specs(plan.Plan, false)[0].ID
}

func unit(l *drawgate.Limit) string { return cmp.Or(l.Unit, drawgate.UnitRequests) }

// bursts returns what a bucket grants after a long idle period; 0 for other limits.
func bursts(l *drawgate.Limit) int64 {
	if l.Kind != drawgate.Bucket {
		return 0
	}
	return cmp.Or(l.Burst, l.Amount)
}

// kept returns what is kept for priorities, as a text that is equal for equal settings.
func kept(l *drawgate.Limit) string {
	var b []string
	for p := range drawgate.MaxPriority + 1 {
		if s, ok := l.ReservedByPriority[p]; ok {
			b = append(b, fmt.Sprintf("%d: %s", p, s))
		}
	}
	return strings.Join(b, ", ")
}

func compareOverrides(p, q *Policy) (list []Change) {
	old := map[keyOf]*Override{}
	for i := range p.Overrides {
		old[keyOf{p.Overrides[i].Tenant, p.Overrides[i].Key}] = &p.Overrides[i]
	}
	for i := range q.Overrides {
		o := &q.Overrides[i]
		k := keyOf{o.Tenant, o.Key}
		c := Change{What: OverrideAdded, Policy: p.Name, Tenant: o.Tenant, Key: o.Key, After: text(o.Amounts)}
		if before := old[k]; before != nil {
			delete(old, k)
			c.What, c.Field, c.Before = OverrideChanged, "amounts", text(before.Amounts)
			if c.Before == c.After {
				continue
			}
		}
		list = append(list, c)
	}
	for i := range p.Overrides {
		if o := old[keyOf{p.Overrides[i].Tenant, p.Overrides[i].Key}]; o != nil {
			list = append(list, Change{
				What: OverrideRemoved, Policy: p.Name, Tenant: o.Tenant, Key: o.Key,
				Before: text(o.Amounts),
			})
		}
	}
	return list
}

// text formats a value as a person would write it.
func text(v any) string {
	switch v := v.(type) {
	case string:
		if v == "" {
			return "none"
		}
		return v
	case map[string]int64:
		return strings.TrimSpace(fingerprint(v))
	case fmt.Stringer:
		return cmp.Or(v.String(), "default")
	}
	return fmt.Sprint(v)
}
