package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
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
			d.problem(at.at["name"], fmt.Sprintf("the first one is on line %d", line), "rule name %s is used twice",
				shorten(r.Name))
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
	p = rulePlace{
		source: d.source, start: spanOf(n), at: map[string]span{}, nodes: map[string]ast.Node{},
		bad: map[string]bool{},
	}
	before := len(d.problems)
	seen := d.object(n, ruleSection.what, ruleSettings(&r, &p), d.reader(&p, ""))
	if _, there := p.at["apply"]; len(seen) == 0 && len(d.problems) > before || seen["apply"] && !there {
		p.bad["apply"] = true // it is not a mapping, or misspelt, so its contents are unknown
	}
	return r, p
}

var (
	ruleSection = &section[rules.Rule]{
		name: "rule", what: "a rule", more: schema{"anyOf": need("apply", "exempt", "final")},
		settings: func(r *rules.Rule) []setting { return ruleSettings(r, nil) },
	}
	matchSection = &section[rules.Match]{
		name: "match", what: "match", more: schema{"minProperties": 1},
		settings: func(m *rules.Match) []setting { return matchSettings(m, nil) },
	}
	scheduleSection = &section[rules.Schedule]{name: "schedule", what: "schedule", settings: scheduleSettings}
	applySection    = &section[rules.Apply]{
		name: "apply", what: "apply",
		settings: func(a *rules.Apply) []setting { return applySettings(a, nil, "") },
	}
)

// ruleSettings returns the settings of a rule. p receives the positions of its parts; it is nil if
// nothing is read.
func ruleSettings(r *rules.Rule, p *rulePlace) []setting {
	expression := bounded(asExpression, fmt.Sprintf("at most %d bytes", rules.MaxSource))
	match := matchSection.to(&r.Match).by(func(d *decoder, e entry) { r.Match = d.match(e, p) })
	schedule := scheduleSection.to(cmp.Or(r.Schedule, &rules.Schedule{})).
		by(func(d *decoder, e entry) { r.Schedule = d.schedule(e, p) })
	apply := bounded(many(applySection, rules.MaxApply), fmt.Sprintf("1 to %d", rules.MaxApply)).to(&r.Apply).
		by(func(d *decoder, e entry) { r.Apply = d.applies(e, p) })
	return []setting{
		{"name", bounded(asName, fmt.Sprintf("at most %d bytes", maxName)).to(&r.Name), "", "what answers, messages " +
			"and metrics call it; unique"},
		{"match", match, "every request", "conditions on single attributes of a request; all must hold"},
		{"when", expression.to(&r.When), "", "an expression that must be true: `'path startsWith \"/v1/\" && user != " +
			"\"\"'`. Conditions that `match` can express are faster there"},
		{
			"schedule", schedule, "always",
			"when the rule applies: `{days: [mon, tue], from: \"08:00\", to: \"18:00\", zone: Europe/Paris}`",
		},
		{"tenant", expression.to(&r.Tenant), "the caller's own", "an expression that says whose keys they are: " +
			"`'header(\"X-Tenant\")'`"},
		{"apply", apply, "", "the policies that count the request: all pass, or nothing is spent"},
		{"exempt", asFlag.to(&r.Exempt), no, "neither this rule nor later ones apply anything"},
		{"final", asFlag.to(&r.Final), no, "later rules are ignored"},
		{"shadow", asFlag.to(&r.Shadow), no, "what the rule applies is evaluated and reported with buckets of its " +
			"own, never enforced"},
	}
}

// reader returns a func that reads a setting, and records the position of its value and whether it
// was valid.
func (d *decoder) reader(p *rulePlace, prefix string) func(*setting, entry) {
	return func(s *setting, e entry) {
		before, part := len(d.problems), prefix+s.key
		s.value.read(d, e)
		p.at[part], p.nodes[part] = spanOf(e.value), e.value
		p.bad[part] = len(d.problems) > before
	}
}

func (d *decoder) ruleName(e entry) string {
	name, ok := d.text(e)
	if ok && len(name) > maxName {
		d.problem(spanOf(e.value), "", "a rule's name has at most %d bytes", maxName)
	}
	return name
}

var asExpression = form[string]{
	read: (*decoder).expression,
	node: func(source string) (n node) {
		if source != "" {
			n.scalar = quoteExpression(source)
		}
		return n
	},
	schema: schema{"type": "string", "minLength": 1, "maxLength": rules.MaxSource},
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
	seen := d.object(e.value, "match", matchSettings(&m, p), d.reader(p, "match."))
	if len(seen) == 0 {
		d.missing(spanOf(e.value), "leave it out for a rule that matches every request", "match is empty")
	}
	return m
}

func matchSettings(m *rules.Match, p *rulePlace) []setting {
	conditions := func(to *map[string]string, name string) value {
		return value{
			read:   func(d *decoder, e entry) { *to = d.conditions(e, p, "match."+name+".") },
			node:   func() node { return mapNode(*to, textNode[string]) },
			schema: mapOf(asPattern.schema),
		}
	}
	return []setting{
		{"methods", oneOrMore(asText, maxMethods).to(&m.Methods), "", "the method is this one, or one of these: " +
			"`[GET, HEAD]`"},
		{"path", asShort.to(&m.Path), "", "the path is this one; `/v1/*` is everything that begins with `/v1/`; in " +
			"`/v1/items/{id}`, `{id}` is any single segment"},
		{"host", asShort.to(&m.Host), "", "the host is this one, such as `api.example.com`, or below `*.example.com`"},
		{"route", asShort.to(&m.Route), "", "the router found this pattern or name: `\"upload*\"`"},
		{"user", asPattern.to(&m.User), "", "this user is authenticated; `\"*\"`: any user"},
		{"class", asPattern.to(&m.Class), "", "the API key is of this class, such as `privileged`: see " +
			"[`api_keys`](#api_keys)"},
		{"ips", asNetworks.to(&m.IPs), "", "the client's address is in this network, or in one of these: " +
			"`[10.0.0.0/8, \"2001:db8::/32\"]`"},
		{"headers", conditions(&m.Headers, "headers"), "", "each of these headers has this value: `{X-Client: " +
			"\"mobile-*\"}`"},
		{"attrs", conditions(&m.Attrs, "attrs"), "", "each of these attributes, which the caller sends, has this " +
			"value: `{region: eu}`"},
	}
}

// short reads a text that is short enough to be compared with every request.
func (d *decoder) short(e entry) string {
	text, ok := d.text(e)
	if ok && len(text) > maxPattern {
		d.problem(spanOf(e.value), "", "%s has %d bytes, more than %d", e.key, len(text), maxPattern)
	}
	return text
}

func networksNode(list []netip.Prefix) (n node) {
	for _, p := range list {
		n.list = append(n.list, node{scalar: `"` + p.String() + `"`})
	}
	return n
}

var asNetworks = manyOf(form[netip.Prefix]{read: (*decoder).network, schema: asText.schema},
	maxNetworks, netip.Prefix.IsValid, networksNode)

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
	seen := d.object(e.value, "schedule", scheduleSettings(s), d.reader(p, "schedule."))
	if len(seen) == 0 {
		d.missing(spanOf(e.value), `such as {days: [mon, tue], from: "08:00", to: "18:00", zone: Europe/Paris}`,
			"schedule is empty")
	}
	return s
}

func scheduleSettings(s *rules.Schedule) []setting {
	clock := form[time.Duration]{
		read: (*decoder).clock,
		node: func(t time.Duration) (n node) {
			if s.From != 0 || s.To != 0 {
				n.scalar = fmt.Sprintf("\"%02d:%02d\"", t/time.Hour, t%time.Hour/time.Minute)
			}
			return n
		},
		schema: schema{"type": "string", "pattern": "^[0-9]{1,2}:[0-9]{2}$"},
	}
	days := form[[]time.Weekday]{
		read: (*decoder).days,
		node: func(list []time.Weekday) (n node) {
			for _, d := range list {
				n.list = append(n.list, node{scalar: strings.ToLower(d.String()[:3])})
			}
			return n
		},
		schema: oneOrList(asText.schema, 7),
	}
	return []setting{
		{"days", days.to(&s.Days), "all", "`mon` … `sun`, or whole names: one, or a list. With a time past midnight " +
			"it is the day on which it begins"},
		{"from", clock.to(&s.From), "the whole day", "the time of day at which it begins, in quotes: `\"08:00\"`"},
		{"to", clock.to(&s.To), "the whole day", "the time of day before which it ends, up to `\"24:00\"`. If it is " +
			"not after `from`, it is on the next day"},
		{"zone", textBy((*decoder).zone, nil).to(&s.Zone), "`UTC`", "a name of the IANA time zone database"},
	}
}

func (d *decoder) zone(e entry) string {
	text, ok := d.text(e)
	if _, err := time.LoadLocation(text); ok && err != nil {
		d.problem(spanOf(e.value), "such as Europe/Paris", "zone %s is not in the IANA time zone database",
			shorten(text))
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

var dayNames = []string{
	"mon", "tue", "wed", "thu", "fri", "sat", "sun", "monday", "tuesday", "wednesday", "thursday",
	"friday", "saturday", "sunday",
}

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
	seen := d.object(n, "apply", applySettings(&a, p, part), d.reader(p, part+"."))
	for key, hint := range map[string]string{
		"policy": "such as policy: api",
		"key":    `who is counted, such as key: ip, key: user, or key: '"global"' for one bucket for all`,
	} {
		if !seen[key] && len(d.problems) == before {
			d.missing(spanOf(n), hint, "apply has no %s", key)
		}
		p.bad[part+"."+key] = p.bad[part+"."+key] || !seen[key]
	}
	return a
}

// applySettings returns the settings of a use of a policy: see [ruleSettings]. part is its name.
func applySettings(a *rules.Apply, p *rulePlace, part string) []setting {
	limits := asAmounts.to(&a.Amounts).by(func(d *decoder, e entry) {
		other := d.amounts(e)
		a.Amounts = other.list
		for key, at := range other.at {
			p.at[part+".limits."+key] = at
		}
	})
	costs := value{
		read:   func(d *decoder, e entry) { a.Costs = d.costs(e, p, part+".costs.") },
		node:   func() node { return mapNode(a.Costs, asAmount.node) },
		schema: mapOf(asAmount.schema),
	}
	return []setting{
		{"policy", asText.to(&a.Policy), required, "the name of a policy"},
		{"key", asExpression.to(&a.Key), required, "an expression that says who is counted: `ip`, `user`, " +
			"`'header(\"X-Team\")'`, `join(user, route)`; `'\"global\"'` is one bucket for all"},
		{"limits", limits, "the policy's", "other amounts for this use, as in `overrides`; the bucket stays the same"},
		{
			"costs", costs, "one request; required if no policy of the rule counts requests",
			"units by name: `{requests: 1, tokens: 500}`",
		},
		{"shadow", asFlag.to(&a.Shadow), no, "evaluated and reported with buckets of its own, never enforced"},
	}
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
