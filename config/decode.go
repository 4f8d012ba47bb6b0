package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/yamltext"
)

// decoder reads one file. It goes on after a mistake, so that all of them are found.
type decoder struct {
	*source

	config   *Config
	problems draft
	warnings draft
	partial  bool // a block with a syntax error was left out, so a missing key may have been in it
}

func (d *decoder) problem(at span, hint, format string, args ...any) {
	d.problems.add(at, fmt.Sprintf(format, args...), hint)
}

func (d *decoder) warn(at span, hint, format string, args ...any) {
	d.warnings.add(at, fmt.Sprintf(format, args...), hint)
}

// origin records the position of a setting.
func (d *decoder) origin(setting string, at span) {
	p := place{d.source, at}
	d.config.origins[setting], d.config.at[setting] = p.String(), p
}

// entry is one key of a mapping and its value.
type entry struct {
	key   string
	at    span // of the key
	value ast.Node
}

// entries returns the entries of a mapping, each key once. what is the mapping's name in messages.
func (d *decoder) entries(n ast.Node, what string) (entries []entry, ok bool) {
	pairs, ok := yamltext.Pairs(n, true)
	if _, empty := n.(*ast.NullNode); empty {
		d.missing(spanOf(n), "", "%s is empty", what)
	} else if !ok {
		d.problem(spanOf(n), "", "%s must be a mapping (key: value), not %s", what, describe(n))
	}
	for _, p := range pairs {
		switch {
		case !p.Plain:
			d.problem(p.At, "", "a key of %s must be plain text", what)
		case p.First != 0:
			d.problem(p.At, fmt.Sprintf("the first one is on line %d", p.First), "%q is given twice in %s", p.Key, what)
		default:
			entries = append(entries, entry{p.Key, p.At, p.Value})
		}
	}
	return entries, ok
}

// field is a key that an object may have, with the func that reads its value.
type field struct {
	key  string
	read func(entry)
}

// unlisted are keys that are accepted only to explain them.
var unlisted = []string{"token", "secret", "salt", "api_key"}

// object reads a mapping with known keys. It returns the keys that are present or were probably
// meant.
func (d *decoder) object(n ast.Node, what string, fields []field) (seen map[string]bool) {
	seen = map[string]bool{}
	entries, _ := d.entries(n, what)
	for _, e := range entries {
		var known []string
		found := false
		for _, f := range fields {
			if !slices.Contains(unlisted, f.key) {
				known = append(known, f.key)
			}
			if f.key == e.key {
				found, seen[f.key] = true, true
				f.read(e)
			}
		}
		if !found {
			hint, meant := unknownKey(e.key, known)
			if meant != "" && slices.ContainsFunc(entries, func(e entry) bool { return e.key == meant }) {
				hint = fmt.Sprintf("%q is there too: leave one of them out", meant)
			}
			seen[meant] = true
			if secretName.MatchString(e.key) {
				d.hideValue(e.value)
			}
			d.problem(e.at, hint, "unknown key %s in %s", shorten(e.key), what)
		}
	}
	return seen
}

// Bounds of what only a file can set; the other bounds are those of package drawgate.
const (
	maxName      = 128 // bytes of a policy's name
	maxBuckets   = 1_000_000_000
	maxInstances = 100_000
	maxTimeout   = time.Minute
)

const noPolicies = "there are no policies: nothing will be limited"

// file reads the one file of configuration.
func (d *decoder) file(root ast.Node) {
	c := d.config
	d.object(root, "the file", append(d.noted("", []field{
		{"enabled", func(e entry) { c.Off = !d.boolean(e) }},
		{"store", d.store},
		{"prefix", d.prefix},
		{"max_buckets", func(e entry) { c.MaxBuckets = int(d.integer(e, 1, maxBuckets)) }},
		{"instances", d.instances},
		{"store_timeout", func(e entry) { c.StoreTimeout = d.between(e, time.Millisecond, maxTimeout) }},
		{"store_mark", func(e entry) { c.RequireMark = d.oneOf(e, "optional", "required") == "required" }},
		{"start", func(e entry) { d.defaultStart(e, d.start(e)) }},
		{"start_full", func(e entry) {
			if d.boolean(e) {
				d.defaultStart(e, drawgate.StartFull)
				d.origin("start", spanOf(e.value))
			}
		}},
		{"warn_every", func(e entry) { c.WarnEvery = d.between(e, time.Second, maxStep) }},
	}), []field{
		{"policies", d.policies},
		{"rules", d.rules},
		{"api_keys", d.apiKeys},
		{"queue", d.queue},
		{"server", d.server},
		{"envoy", d.envoy},
		{"telemetry", d.telemetry},
		{"gateway", d.gateway},
	}...))
	if len(d.problems) == 0 && len(d.config.Policies) == 0 && len(d.config.Envoy.Configs) == 0 {
		d.warn(spanOf(root), "", noPolicies)
	}
}

// rulesFile reads a file of rules alone: see [EnvRules].
func (d *decoder) rulesFile(root ast.Node) {
	d.object(root, "a file of rules", []field{{"policies", d.policies}, {"rules", d.rules}, {"api_keys", d.apiKeys}})
}

// noted makes fields record the positions of their settings.
func (d *decoder) noted(section string, fields []field) []field {
	for i := range fields {
		f := fields[i]
		fields[i].read = func(e entry) {
			f.read(e)
			d.origin(strings.TrimPrefix(section+"."+f.key, "."), spanOf(e.value))
		}
	}
	return fields
}

// missing reports a problem, unless the missing key may have been in a block that was left out.
func (d *decoder) missing(at span, hint, format string, args ...any) {
	if !d.partial {
		d.problem(at, hint, format, args...)
	}
}

// rangeProblem reports a value of the right type that is out of range. A wrong type was reported
// before.
func (d *decoder) rangeProblem(e entry, key, hint, want string) {
	at := spanOf(e.value)
	if d.problems.at(at) {
		return
	}
	d.problem(at, hint, "%s must be %s", key, want)
}
