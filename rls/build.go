package rls

import (
	"fmt"
	"slices"
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/goccy/go-yaml/ast"

	"github.com/drawgate/drawgate/store"
)

// builder builds a configuration from files.
type builder struct {
	opts   ConfigOptions
	config *Config
	names  map[string]bool // of policies
	errs   ConfigErrors

	*reader // of the current file
	domain  *domain
}

// Keys of the parts of a file.
var (
	rootKeys       = []string{"domain", "descriptors"}
	descriptorKeys = []string{
		"key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric",
		"share_threshold", "metadata",
	}
	rateKeys    = []string{"unit", "unit_multiplier", "requests_per_unit", "unlimited", "name", "replaces"}
	replaceKeys = []string{"name"}
)

func (b *builder) file(f file) {
	b.reader = &reader{name: f.name, anchors: map[string]ast.Node{}}
	defer func() { b.errs = append(b.errs, b.reader.errs...) }()
	root := b.parse(f.data)
	if root == nil {
		return
	}
	ast.Walk(anchorsOf{b.anchors}, root)
	var name string
	var descriptors *entry
	at := placeOf(root)
	for _, e := range b.known(root, "the file", rootKeys, 0) {
		switch e.key {
		case "domain":
			at = e.at
			name = b.text(e)
		case "descriptors":
			descriptors = &e
		}
	}
	if name == "" {
		b.problem(at, "a file needs a domain: domain: my-domain")
		return
	}
	if !b.open(name, at) || descriptors == nil {
		return
	}
	b.descriptors(&b.domain.root, nil, *descriptors)
}

// open begins a domain, or continues one.
func (b *builder) open(name string, at place) bool {
	d := b.config.domains[name]
	if d != nil && !b.opts.Merge {
		b.problem(at, "the domain %s is already in another file; set merge to allow that", shorten(name))
		return false
	}
	if d == nil {
		d = &domain{name: name}
		b.config.domains[name] = d
	}
	b.domain = d
	return true
}

// known returns the entries of a mapping with known keys, and reports the others.
func (b *builder) known(n ast.Node, what string, keys []string, depth int) []entry {
	entries := b.entries(n, what, depth)
	return slices.DeleteFunc(entries, func(e entry) bool {
		if slices.Contains(keys, e.key) {
			return false
		}
		where := ""
		for _, other := range []struct {
			keys []string
			what string
		}{{rootKeys, "the top level of the file"}, {descriptorKeys, "a descriptor"}, {rateKeys, "rate_limit"}} {
			if slices.Contains(other.keys, e.key) {
				where = fmt.Sprintf(" (it belongs to %s)", other.what)
			}
		}
		b.problem(e.at, "%s has no key %s%s; known keys are %s", what, shorten(e.key), where, strings.Join(keys, ", "))
		return true
	})
}

func (b *builder) descriptors(parent *node, path []Step, e entry) {
	for _, n := range b.list(e) {
		if b.full {
			return
		}
		b.descriptor(parent, path, n, e.depth+1)
	}
}

// descriptorText is a descriptor as written in the file.
type descriptorText struct {
	at             place
	step           Step
	rate, children *entry
	metadata       *entry
	rule           Rule
}

func (b *builder) descriptor(parent *node, path []Step, n ast.Node, depth int) {
	t := descriptorText{at: placeOf(n)}
	for _, e := range b.known(n, "a descriptor", descriptorKeys, depth) {
		switch e.key {
		case "key":
			t.step.Key = b.text(e)
		case "value":
			t.step.Value = b.text(e)
		case "rate_limit":
			t.rate = &e
		case "descriptors":
			t.children = &e
		case "shadow_mode":
			t.rule.Shadow = b.boolean(e)
		case "quota_mode":
			t.rule.Quota = b.boolean(e)
		case "detailed_metric":
			t.rule.Detailed = b.boolean(e)
		case "value_to_metric":
			t.step.Metric = b.boolean(e)
		case "share_threshold":
			t.step.Shared = b.boolean(e)
		case "metadata":
			t.metadata = &e
		}
	}
	if !b.step(parent, &t) {
		return
	}
	path = append(slices.Clip(path), t.step)
	c := &node{step: t.step}
	if t.rate != nil {
		b.rate(c, path, &t)
	}
	parent.add(c)
	if t.children != nil {
		b.descriptors(c, path, *t.children)
	}
}

// step checks what a descriptor matches.
func (b *builder) step(parent *node, t *descriptorText) bool {
	s := &t.step
	if s.Key == "" {
		b.problem(t.at, "a descriptor needs a key")
		return false
	}
	joined := s.joined()
	s.Wildcard = strings.Contains(joined, "*")
	if first, twice := parent.seen[joined]; twice {
		b.problem(t.at, "the descriptor %s is defined twice; the first time on line %d", shorten(joined), first.Line)
		return false
	}
	if parent.seen == nil {
		parent.seen = map[string]place{}
	}
	parent.seen[joined] = t.at
	if s.Shared && !s.Wildcard {
		b.problem(t.at, "share_threshold is only for values and keys with a *, but this one is %s", shorten(joined))
	}
	return true
}

// rate reads the rate of a descriptor into c.
func (b *builder) rate(c *node, path []Step, t *descriptorText) {
	n := b.resolve(t.rate.value, t.rate.depth)
	if _, empty := n.(*ast.NullNode); empty || n == nil {
		return
	}
	r := t.rule
	r.Domain, r.Path, r.Multiplier = b.domain.name, path, 1
	unit, at := "", placeOf(n)
	for _, e := range b.known(n, "rate_limit", rateKeys, t.rate.depth) {
		switch e.key {
		case "unit":
			unit, at = b.text(e), placeOf(e.value)
		case "unit_multiplier":
			r.Multiplier = b.number(e, 1)
		case "requests_per_unit":
			r.Requests = b.number(e, 0)
		case "unlimited":
			r.Unlimited = b.boolean(e)
		case "name":
			r.Name = b.text(e)
		case "replaces":
			r.Replaces = b.replaces(e)
		}
	}
	if slices.Contains(r.Replaces, r.Name) && r.Name != "" {
		b.problem(t.rate.at, "the rate %s replaces itself", shorten(r.Name))
	}
	if t.metadata != nil {
		r.metadata = b.metadata(*t.metadata)
	}
	b.unit(&r, unit, at)
	r.finish(b.opts.Windows, b.opts.Leased)
	if r.counts() && !b.unique(&r) {
		b.problem(t.at, "two rates would share the policy %s", shorten(r.policy.Name))
	}
	c.rule = &r
	b.config.rules = append(b.config.rules, c.rule)
}

// unique records a policy's name, and reports duplicates, which take a hash collision.
func (b *builder) unique(r *Rule) bool {
	if b.names[r.policy.Name] {
		return false
	}
	b.names[r.policy.Name] = true
	return true
}

// unit checks a rate's unit and its window.
func (b *builder) unit(r *Rule, unit string, at place) {
	u, ok := ratelimit.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(unit)]
	ok = ok && u != int32(ratelimit.RateLimitResponse_RateLimit_UNKNOWN)
	switch {
	case r.Unlimited && ok:
		b.problem(at, "an unlimited rate has no unit")
		return
	case r.Unlimited:
		return
	case !ok:
		b.problem(at, "the unit %s is not one of second, minute, hour, day, week, month, year", shorten(unit))
		return
	}
	r.Unit = ratelimit.RateLimitResponse_RateLimit_Unit(u)
	if most := uint32(store.MaxWindow / unitLength(r.Unit)); r.Multiplier > most {
		b.problem(at, "%d %ss are longer than %d days, the longest window", r.Multiplier, strings.ToLower(unit),
			int(store.MaxWindow.Hours()/24))
		r.Multiplier = most
	}
}

// replaces reads the names of the rates that a rate replaces.
func (b *builder) replaces(e entry) []string {
	var names []string
	for _, n := range b.list(e) {
		name, at := "", placeOf(n)
		for _, f := range b.known(n, "an entry of replaces", replaceKeys, e.depth+1) {
			name, at = b.text(f), f.at
		}
		if name == "" {
			b.problem(at, "an entry of replaces needs a name")
			continue
		}
		names = append(names, name)
	}
	return names
}
