package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/drawgate/drawgate/engine/rules"
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

// unknown reports a key that is not among known, and marks the one that was probably meant as seen.
func (d *decoder) unknown(e entry, what string, known []string, entries []entry, seen map[string]bool) {
	hint, meant := unknownKey(e.key, known)
	if meant != "" && slices.ContainsFunc(entries, func(e entry) bool { return e.key == meant }) {
		hint = fmt.Sprintf("%q is there too: leave one of them out", meant)
	}
	seen[meant] = true
	if secretName().MatchString(e.key) {
		d.hideValue(e.value)
	}
	d.problem(e.at, hint, "unknown key %s in %s", shorten(e.key), what)
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
	d.object(root, "the file", d.config.settings(), func(s *setting, e entry) {
		d.origin(s.key, spanOf(e.value))
		s.value.read(d, e)
	})
	if len(d.problems) == 0 && len(d.config.Policies) == 0 && len(d.config.Envoy.Configs) == 0 {
		d.warn(spanOf(root), "", noPolicies)
	}
}

// settings returns the settings of the file.
func (c *Config) settings() []setting { return append(c.top(), c.parts()...) }

// top returns the settings that are simple values.
func (c *Config) top() []setting {
	prefix := bounded(textBy((*decoder).prefix, matching(prefixes)), "1 to 64 letters, digits, `.` `-` `_` `:` `/`")
	return []setting{
		{"enabled", asOff.to(&c.Off), yes, "`false` switches all limits off: everything passes and nothing is counted"},
		{
			"store", textBy((*decoder).store, nil).to(&c.Store),
			"the program: its SQLite file ([above](#the-program)); in Go: `memory:`", "where the counts are kept: " +
				"`memory:` (this process only), `sqlite:///absolute/path` or `sqlite:path/relative/to/this/file` " +
				"(one machine, survives crashes), `redis://host:6379/0`, `redis+sentinel://…`, `redis+cluster://…` " +
				"([all forms](redis.md#urls)), `postgres://user@host/database?sslmode=verify-full` or " +
				"`dynamodb://TABLE?region=REGION` (any number of processes)",
		},
		{"prefix", prefix.to(&c.Prefix), "the store's", "what every key in a shared store (Redis, DynamoDB) starts " +
			"with, before tenant and policy: `prefix:tenant:policy:key`. On PostgreSQL the names of the tables start " +
			"with it (at most 40 bytes). Several installations with different ones can share a store"},
		{"max_buckets", number[int](1, maxBuckets).to(&c.MaxBuckets), "10,000,000", "the most buckets in use at once " +
			"in the store `memory:`. Requests that need another bucket are refused; no bucket that still limits is " +
			"dropped. The [size of a bucket](#memory-of-a-bucket) depends on the policy: 10 million are about 1 GB " +
			"with one bucket limit, 5.4 GB with one rolling limit. For a bound in bytes set `GOMEMLIMIT`, and choose " +
			"here what fits in half of it"},
		{
			"instances", asInstances.to(&c.Instances), "Redis, PostgreSQL, DynamoDB: `auto`; SQLite, memory: 1",
			"how many processes share the limits; while the store is unavailable each admits its share (`fallback`). " +
				"A number; or `auto`: they are counted in the store ([below](#fallback)); or `{auto: true, at_least: " +
				"3}`: they are counted, and at least 3 are assumed",
		},
		{
			"store_timeout", between(time.Millisecond, maxTimeout).to(&c.StoreTimeout),
			"40ms; SQLite, PostgreSQL: 500ms; DynamoDB: 1s", "how long the store has for a take that does not wait, including " +
				"all attempts; then the fallback decides. A take that waits, and what settles or renews a hold, have 2s per " +
				"attempt, or this if it is longer",
		},
		{"store_mark", either("optional", "required").to(&c.RequireMark), "`optional`", "Redis and Valkey: " +
			"`required` makes the store unavailable while the server has no mark of it: before `drawgate store " +
			"init`, and again after the server lost its data, until somebody has decided " +
			"([more](fallback.md#redis-that-lost-its-data)). `optional`: a missing mark is made, and processes that " +
			"had seen another one report the loss. No effect on other stores (`validate` warns)"},
		{"store_batches", asOff.to(&c.NoBatches), yes, "Redis and Valkey: requests that come while a call of the " +
			"same process is on its way go together in the next one, up to about 1 ms of the server's time. `false`: " +
			"each is a call of its own. No effect on other stores (`validate` warns)"},
		{"store_recovery", either("on", "off").to(&c.NoRecovery), "`on`", "Redis and Valkey: what a server lost in a " +
			"fail-over, by an eviction or by a restart is charged and opened again by the processes that were admitted " +
			"it ([more](fallback.md#what-comes-back-after-a-fail-over)). `off`: it is forgotten. No effect on other " +
			"stores (`validate` warns)"},
		{"start", readBy(asStart, (*decoder).defaultStart).to(&c.Start), "`closed`", "for policies that do not say it: " +
			"what a process admits that starts while the store is unavailable, and so does not know what was used: " +
			"nothing (`closed`), a part of its share (`cold`), or all of it (`full`, only on SQLite with `instances: " +
			"1`; otherwise `cold`). [More](#start)"},
		{"start_full", value{read: (*decoder).startFull}.retired(), "", ""},
		{"warn_every", between(time.Second, maxStep).to(&c.WarnEvery), "5m", "while the store is unavailable, at " +
			"most one warning of each kind per this time"},
	}
}

// parts returns the settings that are mappings or lists.
func (c *Config) parts() []setting {
	rules := bounded(many(ruleSection, rules.MaxRules), "at most "+showNumber(rules.MaxRules)).to(&c.Rules).
		by((*decoder).rules)
	delete(rules.schema, "minItems") // the policies may be in another file
	return []setting{
		{"policies", c.policies(), none, "policies by name: sets of limits that must all pass, and how callers wait " +
			"for them. A name has 1 to 128 bytes, does not end in `~shadow`, and does not begin with `drawgate:` " +
			"([below](#a-policy))"},
		{"rules", rules, none, "which requests are counted by which policies, under which keys. Rules are " +
			"checked in order, and a policy that an earlier rule applied is not applied again: put special rules " +
			"first ([below](#rules))"},
		{"api_keys", keySection.to(&c.APIKeys), none, "classes of API keys, for rules ([below](#api_keys))"},
		{"queue", queueSection.to(&c.Queue), "", "for programs with a queue of tasks: its size, and when tasks are " +
			"tried again ([below](#queue))"},
		{"server", serverSection.to(&c.Server), "", "how the server listens, and whom it trusts ([below](#server))"},
		{"envoy", envoySection.to(&c.Envoy), "", "the rate limit service for Envoy ([below](#envoy))"},
		{"telemetry", telemetrySection.to(&c.Telemetry), "", "metrics, warnings and webhooks ([below](#telemetry))"},
		{"gateway", gatewaySection.to(&c.Gateway), none, "the proxy in front of LLM providers ([below](#gateway))"},
	}
}

// rulesFile reads a file of rules alone: see [EnvRules].
func (d *decoder) rulesFile(root ast.Node) {
	d.object(root, "a file of rules", d.config.parts()[:3], nil)
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
