package config

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate/engine/rules"
)

// ruleItems returns a rule as a file has it.
func ruleItems(r *rules.Rule) (b mapping) {
	b.node("name", textNode(r.Name))
	b.node("match", node{pairs: matchItems(&r.Match)})
	b.expression("when", r.When)
	if r.Schedule != nil {
		b.node("schedule", node{pairs: scheduleItems(r.Schedule)})
	}
	b.expression("tenant", r.Tenant)
	var list node
	for i := range r.Apply {
		list.list = append(list.list, node{pairs: applyItems(&r.Apply[i])})
	}
	b.node("apply", list)
	b.node("exempt", flagNode(r.Exempt))
	b.node("final", flagNode(r.Final))
	b.node("shadow", flagNode(r.Shadow))
	return b
}

func (m *mapping) expression(key, source string) {
	if source != "" {
		m.add(key, quoteExpression(source))
	}
}

func matchItems(m *rules.Match) (b mapping) {
	b.node("methods", texts(m.Methods))
	b.node("path", textNode(m.Path))
	b.node("host", textNode(m.Host))
	b.node("route", textNode(m.Route))
	b.node("user", textNode(m.User))
	b.node("class", textNode(m.Class))
	b.node("ips", networksNode(m.IPs))
	b.node("headers", conditionsNode(m.Headers))
	b.node("attrs", conditionsNode(m.Attrs))
	return b
}

func networksNode(list []netip.Prefix) (n node) {
	for _, p := range list {
		n.list = append(n.list, node{scalar: `"` + p.String() + `"`})
	}
	return n
}

func conditionsNode(list map[string]string) node {
	var b mapping
	for _, name := range slices.Sorted(maps.Keys(list)) {
		b.add(quote(name), quote(list[name]))
	}
	return node{pairs: b}
}

func scheduleItems(s *rules.Schedule) (b mapping) {
	var days []string
	for _, d := range s.Days {
		days = append(days, strings.ToLower(d.String()[:3]))
	}
	b.node("days", texts(days))
	if s.From != 0 || s.To != 0 {
		b.add("from", formatClock(s.From))
		b.add("to", formatClock(s.To))
	}
	b.node("zone", textNode(s.Zone))
	return b
}

func formatClock(t time.Duration) string {
	return fmt.Sprintf("%q", fmt.Sprintf("%02d:%02d", t/time.Hour, t%time.Hour/time.Minute))
}

func applyItems(a *rules.Apply) (b mapping) {
	b.node("policy", textNode(a.Policy))
	b.expression("key", a.Key)
	b.node("limits", amountsNode(a.Amounts))
	var costs mapping
	for _, unit := range slices.Sorted(maps.Keys(a.Costs)) {
		costs.add(quote(unit), fmt.Sprint(a.Costs[unit]))
	}
	b.node("costs", node{pairs: costs})
	b.node("shadow", flagNode(a.Shadow))
	return b
}
