package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine/rules"
)

// Bounds of the lists in a rule; the other bounds are those of package rules.
const (
	maxMethods  = 32
	maxNetworks = 1000
)

// rulePlace is the position of a rule and of its parts: "match.path", "when", "apply[0].key",
// "apply[0].limits.rpm".
type rulePlace struct {
	*source

	from  string // the source that Explain names instead of the position
	start span
	at    map[string]span
	nodes map[string]ast.Node // of expressions
	bad   map[string]bool     // parts whose mistakes were reported while they were read
}

// place returns the position of a part, or of the part around it.
func (p *rulePlace) place(part string) span {
	for part != "" {
		if at, ok := p.at[part]; ok {
			return at
		}
		part = outer(part)
	}
	return p.start
}

// outer returns the part around a part: apply[0].key → apply[0] → apply → "".
func outer(part string) string {
	for i := len(part) - 1; i > 0; i-- {
		if part[i] == '.' || part[i] == '[' {
			return part[:i]
		}
	}
	return ""
}

// rules reads the list of rules.
func (d *decoder) rules(e entry) {
	if n, ok := e.value.(*ast.SequenceNode); ok && len(n.Values) == 0 {
		return // the policies may be in another file
	}
	items, ok := d.list(e, rules.MaxRules)
	if !ok {
		return
	}
	first := map[string]int{}
	for _, n := range items {
		r, at := d.rule(n)
		if line := first[r.Name]; line != 0 && r.Name != "" {
			d.problem(at.at["name"], fmt.Sprintf("the first one is on line %d", line), "rule name %s is used twice", shorten(r.Name))
			at.bad["name"] = true
		}
		first[r.Name] = at.start.Line
		d.config.Rules = append(d.config.Rules, r)
		d.config.places = append(d.config.places, at)
	}
	d.compileRules()
}

// rule reads one rule. compileRules checks its contents.
func (d *decoder) rule(n ast.Node) (r rules.Rule, p rulePlace) {
	p = rulePlace{source: d.source, start: spanOf(n), at: map[string]span{}, nodes: map[string]ast.Node{}, bad: map[string]bool{}}
	read := d.reader(&p, "")
	before := len(d.problems)
	seen := d.object(n, "a rule", []field{
		read("name", func(e entry) { r.Name = d.ruleName(e) }),
		read("match", func(e entry) { r.Match = d.match(e, &p) }),
		read("when", func(e entry) { r.When = d.expression(e) }),
		read("schedule", func(e entry) { r.Schedule = d.schedule(e, &p) }),
		read("tenant", func(e entry) { r.Tenant = d.expression(e) }),
		read("apply", func(e entry) { r.Apply = d.applies(e, &p) }),
		read("exempt", func(e entry) { r.Exempt = d.boolean(e) }),
		read("final", func(e entry) { r.Final = d.boolean(e) }),
		read("shadow", func(e entry) { r.Shadow = d.boolean(e) }),
	})
	if _, there := p.at["apply"]; len(seen) == 0 && len(d.problems) > before || seen["apply"] && !there {
		p.bad["apply"] = true // it is not a mapping, or misspelt, so its contents are unknown
	}
	return r, p
}

// reader returns a func that makes fields. They record the positions of their values, and whether
// these were valid.
func (d *decoder) reader(p *rulePlace, prefix string) func(key string, f func(entry)) field {
	return func(key string, f func(entry)) field {
		return field{key, func(e entry) {
			before := len(d.problems)
			f(e)
			part := prefix + key
			p.at[part], p.nodes[part] = spanOf(e.value), e.value
			p.bad[part] = len(d.problems) > before
		}}
	}
}

func (d *decoder) ruleName(e entry) string {
	name, ok := d.text(e)
	if ok && len(name) > maxName {
		d.problem(spanOf(e.value), "", "a rule's name has at most %d bytes", maxName)
	}
	return name
}

// expression reads the text of an expression, in quotes, without, or as a block.
func (d *decoder) expression(e entry) string {
	if n, ok := e.value.(*ast.LiteralNode); ok {
		return n.Value.Value
	}
	text, _ := d.text(e)
	return text
}

func (d *decoder) match(e entry, p *rulePlace) (m rules.Match) {
	read := d.reader(p, "match.")
	seen := d.object(e.value, "match", []field{
		read("methods", func(e entry) {
			d.texts(e, maxMethods, func(e entry) {
				if text, ok := d.text(e); ok {
					m.Methods = append(m.Methods, text)
				}
			})
		}),
		read("path", func(e entry) { m.Path = d.short(e) }),
		read("host", func(e entry) { m.Host = d.short(e) }),
		read("route", func(e entry) { m.Route = d.short(e) }),
		read("user", func(e entry) { m.User = d.pattern(e) }),
		read("class", func(e entry) { m.Class = d.pattern(e) }),
		read("ips", func(e entry) { m.IPs = d.networks(e) }),
		read("headers", func(e entry) { m.Headers = d.conditions(e, p, "match.headers.") }),
		read("attrs", func(e entry) { m.Attrs = d.conditions(e, p, "match.attrs.") }),
	})
	if len(seen) == 0 {
		d.missing(spanOf(e.value), "leave it out for a rule that matches every request", "match is empty")
	}
	return m
}

// short reads a text that is short enough to be compared with every request.
func (d *decoder) short(e entry) string {
	text, ok := d.text(e)
	if ok && len(text) > maxPattern {
		d.problem(spanOf(e.value), "", "%s has %d bytes, more than %d", e.key, len(text), maxPattern)
	}
	return text
}

func (d *decoder) networks(e entry) (list []netip.Prefix) {
	d.texts(e, maxNetworks, func(e entry) {
		if p, ok := d.network(e); ok {
			list = append(list, p)
		}
	})
	return list
}

// conditions reads values by the names of headers or attributes.
func (d *decoder) conditions(e entry, p *rulePlace, prefix string) map[string]string {
	entries, ok := d.entries(e.value, e.key)
	if ok && len(entries) == 0 {
		d.missing(spanOf(e.value), "leave it out", "%s is empty", e.key)
	}
	list := map[string]string{}
	for _, e := range entries {
		before := len(d.problems)
		list[e.key] = d.pattern(e)
		p.at[prefix+e.key], p.bad[prefix+e.key] = spanOf(e.value), len(d.problems) > before
	}
	return list
}

// schedule reads when a rule applies: {days: [mon, tue], from: "08:00", to: "18:30", zone:
// Europe/Paris}.
func (d *decoder) schedule(e entry, p *rulePlace) *rules.Schedule {
	s := &rules.Schedule{}
	read := d.reader(p, "schedule.")
	seen := d.object(e.value, "schedule", []field{
		read("days", func(e entry) { s.Days = d.days(e) }),
		read("from", func(e entry) { s.From = d.clock(e) }),
		read("to", func(e entry) { s.To = d.clock(e) }),
		read("zone", func(e entry) { s.Zone = d.zone(e) }),
	})
	if len(seen) == 0 {
		d.missing(spanOf(e.value), `such as {days: [mon, tue], from: "08:00", to: "18:00", zone: Europe/Paris}`, "schedule is empty")
	}
	return s
}

func (d *decoder) zone(e entry) string {
	text, ok := d.text(e)
	if _, err := time.LoadLocation(text); ok && err != nil {
		d.problem(spanOf(e.value), "such as Europe/Paris", "zone %s is not in the IANA time zone database", shorten(text))
	}
	return text
}

func (d *decoder) days(e entry) (days []time.Weekday) {
	seen := map[time.Weekday]bool{}
	d.texts(e, 7, func(e entry) {
		text, ok := d.text(e)
		if !ok {
			return
		}
		day, err := rules.ParseDay(text)
		switch {
		case err != nil:
			hint, _ := didYouMean(text, dayNames)
			d.problem(spanOf(e.value), hint, "%s is not a day of the week such as mon or monday", shorten(text))
		case seen[day]:
			d.problem(spanOf(e.value), "", "%s is given twice", text)
		default:
			days = append(days, day)
		}
		seen[day] = err == nil
	})
	return days
}

var dayNames = []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}

// clock reads a time of day. Other YAML parsers read 08:00 without quotes as a number, so quotes
// are recommended but not required.
func (d *decoder) clock(e entry) time.Duration {
	text, ok := d.text(e)
	if !ok {
		return 0
	}
	t, err := rules.ParseClock(text)
	if err != nil {
		d.problem(spanOf(e.value), "", "%s %s is not a time of day from \"00:00\" to \"24:00\"", e.key, shorten(text))
	}
	return t
}

func (d *decoder) applies(e entry, p *rulePlace) (list []rules.Apply) {
	items, ok := d.list(e, rules.MaxApply)
	if !ok {
		return nil
	}
	for i, n := range items {
		list = append(list, d.apply(n, p, "apply["+strconv.Itoa(i)+"]"))
	}
	return list
}

func (d *decoder) apply(n ast.Node, p *rulePlace, part string) (a rules.Apply) {
	p.at[part] = spanOf(n)
	before := len(d.problems)
	read := d.reader(p, part+".")
	seen := d.object(n, "apply", []field{
		read("policy", func(e entry) { a.Policy, _ = d.text(e) }),
		read("key", func(e entry) { a.Key = d.expression(e) }),
		read("limits", func(e entry) {
			other := d.amounts(e)
			a.Amounts = other.list
			for key, at := range other.at {
				p.at[part+".limits."+key] = at
			}
		}),
		read("costs", func(e entry) { a.Costs = d.costs(e, p, part+".costs.") }),
		read("shadow", func(e entry) { a.Shadow = d.boolean(e) }),
	})
	for key, hint := range map[string]string{"policy": "such as policy: api", "key": `who is counted, such as key: ip, key: user, or key: '"global"' for one bucket for all`} {
		if !seen[key] && len(d.problems) == before {
			d.missing(spanOf(n), hint, "apply has no %s", key)
		}
		p.bad[part+"."+key] = p.bad[part+"."+key] || !seen[key]
	}
	return a
}

// costs reads units by name.
func (d *decoder) costs(e entry, p *rulePlace, prefix string) map[string]int64 {
	entries, ok := d.entries(e.value, e.key)
	if ok && len(entries) == 0 {
		d.missing(spanOf(e.value), "such as {requests: 1, tokens: 500}", "costs is empty")
	}
	list := map[string]int64{}
	for _, e := range entries {
		list[e.key] = d.integer(e, 0, drawgate.MaxAmount)
		p.at[prefix+e.key] = e.at
	}
	return list
}
