package config

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
)

const (
	maxOverrides = 10_000
	maxPattern   = 1024 // bytes of a key, a path, a value
)

// nameOf returns under which name the position of a key itself is recorded. The plain name is for
// the position of its value.
func nameOf(key string) string { return key + " (name)" }

// burstOf is the name of a limit's burst among other amounts.
func burstOf(limit string) string { return limit + ".burst" }

// amounts are the amounts that differ for some keys or for one use of a policy, with their places.
type amounts struct {
	list map[string]int64
	at   map[string]span
}

// amounts reads other amounts: {rpm: 100, rate: {amount: 100, burst: 30}}. vary checks whether such
// limits exist.
func (d *decoder) amounts(e entry) amounts {
	a := amounts{map[string]int64{}, map[string]span{}}
	entries, ok := d.entries(e.value, e.key)
	if ok && len(entries) == 0 {
		d.problem(spanOf(e.value), "such as {rpm: 100}", "%s is empty", e.key)
	}
	set := func(name string, least int64, e entry) {
		a.at[name], a.at[nameOf(name)] = spanOf(e.value), e.at
		before := len(d.problems)
		if n := d.integer(e, least, drawgate.MaxAmount); len(d.problems) == before {
			a.list[name] = n
		}
	}
	for _, e := range entries {
		switch e.value.(type) {
		case *ast.MappingNode, *ast.MappingValueNode:
			name := e.key
			a.at[name], a.at[nameOf(name)] = e.at, e.at
			seen := d.object(e.value, "the limit "+shorten(name), variedSettings(), func(s *setting, e entry) {
				if s.key == "burst" {
					set(burstOf(name), 1, e)
				} else {
					set(name, 0, e)
				}
			})
			if len(seen) == 0 {
				d.problem(spanOf(e.value), "such as {amount: 100, burst: 30}", "%s is empty: give an amount or a burst",
					shorten(name))
			}
		default:
			set(e.key, 0, e)
		}
	}
	return a
}

// variedSettings describes other amounts of a limit. They are not read into a variable of their
// own.
func variedSettings() []setting {
	var n int64
	return []setting{
		{"amount", asAmount.to(&n), "the limit's", "another amount"},
		{"burst", asCount.to(&n), "the limit's", "another burst of a bucket"},
	}
}

// asAmounts is the form of other amounts.
var asAmounts = form[map[string]int64]{
	read: func(d *decoder, e entry) map[string]int64 { return d.amounts(e).list },
	node: amountsNode,
	schema: mapOf(schema{"anyOf": []schema{
		asAmount.schema, define("varying", schema{"minProperties": 1}, variedSettings),
	}}),
}

// mistake is a mistake in one key of a mapping.
type mistake struct{ key, hint, message string }

// vary returns a policy with other amounts, and the mistakes in them.
func vary(p drawgate.Policy, list map[string]int64) (drawgate.Policy, []mistake) {
	names := make([]string, len(p.Limits))
	known := map[string]bool{}
	var wrong []mistake
	varied := p
	varied.Limits = append([]drawgate.Limit(nil), p.Limits...)
	for i := range varied.Limits {
		l := &varied.Limits[i]
		names[i] = l.Name
		amount, more := list[l.Name]
		burst, bursts := list[burstOf(l.Name)]
		known[l.Name], known[burstOf(l.Name)] = true, true
		switch {
		case bursts && l.Kind != drawgate.Bucket:
			wrong = append(wrong, mistake{
				burstOf(l.Name), "",
				fmt.Sprintf("burst is for bucket limits, but %s is a %s limit", l.Name, l.Kind),
			})
			continue
		case bursts:
			l.Burst = burst
		}
		if more {
			l.Amount = amount
		}
		if err := l.Check(); err != nil && (more || bursts) {
			key := l.Name
			if !more {
				key = burstOf(l.Name)
			}
			wrong = append(wrong, mistake{key, "", plain(err)})
		}
	}
	for name := range list {
		if known[name] {
			continue
		}
		hint, _ := didYouMean(name, names)
		if hint == "" {
			hint = "have: " + strings.Join(names, ", ")
		}
		wrong = append(wrong, mistake{nameOf(name), hint, fmt.Sprintf("policy %s has no limit %s", shorten(p.Name),
			shorten(name))})
	}
	return varied, wrong
}

// overrides reads the amounts that some keys of a policy have instead.
func (d *decoder) overrides(p drawgate.Policy, e entry) (list []engine.Override) {
	items, ok := d.list(e, maxOverrides)
	if !ok {
		return nil
	}
	type target struct{ tenant, key string }
	first := map[target]int{}
	_, err := p.Compile()
	for _, n := range items {
		o, places, ok := d.override(n)
		if err == nil { // otherwise its mistakes would be reported twice
			_, wrong := vary(p, o.Amounts)
			for _, m := range wrong {
				d.problem(places[m.key], m.hint, "%s", m.message)
			}
		}
		if !ok {
			continue
		}
		if line := first[target{o.Tenant, o.Key}]; line != 0 {
			d.problem(spanOf(n), fmt.Sprintf("the first one is on line %d", line), "key %s has two overrides",
				shorten(o.Key))
			continue
		}
		first[target{o.Tenant, o.Key}] = spanOf(n).Line
		list = append(list, o)
	}
	return list
}

var overrideSection = &section[engine.Override]{name: "override", what: "an override", settings: overrideSettings}

func overrideSettings(o *engine.Override) []setting {
	return []setting{
		{"key", asPattern.to(&o.Key), required, "the key, or a prefix of keys followed by `*`"},
		{"tenant", asText.to(&o.Tenant), "any tenant's", "only keys of this tenant"},
		{"limits", asAmounts.to(&o.Amounts), required, "other amounts, by the names of limits: `rpm: 300`, or `rate: " +
			"{amount: 50, burst: 100}` if the `burst` of a bucket differs too. Limits that are not named stay the " +
			"same, and so do the buckets"},
	}
}

func (d *decoder) override(n ast.Node) (o engine.Override, places map[string]span, ok bool) {
	before := len(d.problems)
	seen := d.object(n, overrideSection.what, overrideSettings(&o), func(s *setting, e entry) {
		if s.key != "limits" {
			s.value.read(d, e)
			return
		}
		a := d.amounts(e)
		o.Amounts, places = a.list, a.at
	})
	for _, key := range []string{"key", "limits"} {
		if !seen[key] && len(d.problems) == before {
			d.missing(spanOf(n), `such as {key: "vip-*", limits: {rpm: 100}}`, "the override has no %s", key)
		}
	}
	return o, places, len(d.problems) == before
}

// pattern reads an exact value, or "prefix*".
func (d *decoder) pattern(e entry) string {
	text, ok := d.text(e)
	switch {
	case !ok:
		return ""
	case len(text) > maxPattern:
		d.problem(spanOf(e.value), "", "%s has %d bytes, more than %d", e.key, len(text), maxPattern)
	case strings.Contains(strings.TrimSuffix(text, "*"), "*"):
		d.problem(spanOf(e.value), "write an exact value, or prefix*", "%s %s has a * that is not at its end", e.key,
			shorten(text))
	}
	return text
}
