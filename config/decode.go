package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/drawgate/drawgate"
)

// The bounds of what only a file says; the others are drawgate's.
const (
	maxQueue   = 1_000_000
	maxBackoff = 32
	maxStep    = 24 * time.Hour
	maxName    = 128 // bytes of a policy's name
)

// decoder reads one file. It goes on after a mistake, so that all of them are found.
type decoder struct {
	source

	config   *Config
	problems Problems
	warnings Problems
	partial  bool // a block with a syntax error was left out: what is missing may have been there
}

func (d *decoder) problem(at span, hint, format string, args ...any) {
	if len(d.problems) < maxProblems {
		d.problems = append(d.problems, d.source.problem(at, fmt.Sprintf(format, args...), hint))
	}
}

func (d *decoder) warn(at span, hint, format string, args ...any) {
	if len(d.warnings) < maxProblems {
		d.warnings = append(d.warnings, d.source.problem(at, fmt.Sprintf(format, args...), hint))
	}
}

// origin notes where a setting stands.
func (d *decoder) origin(setting string, at span) {
	d.config.origins[setting] = fmt.Sprintf("%s:%d:%d", d.name, at.line, at.column)
}

// entry is one key of a mapping and its value.
type entry struct {
	key   string
	at    span // of the key
	value ast.Node
}

// entries returns what a mapping holds, each key once. what is the mapping's name in messages.
func (d *decoder) entries(n ast.Node, what string) (entries []entry, ok bool) {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	case *ast.NullNode:
		d.missing(spanOf(n), "", "%s is empty", what)
		return nil, false
	default:
		d.problem(spanOf(n), "", "%s must be a mapping (key: value), not %s", what, describe(n))
		return nil, false
	}
	first := map[string]int{}
	for _, v := range values {
		at := spanOf(v.Key)
		key, isScalar := keyText(v.Key)
		switch line := first[key]; {
		case !isScalar:
			d.problem(at, "", "a key of %s must be plain text", what)
			continue
		case line != 0:
			d.problem(at, fmt.Sprintf("the first one is on line %d", line), "%q is given twice in %s", key, what)
			continue
		}
		first[key] = at.line
		entries = append(entries, entry{key, at, v.Value})
	}
	return entries, true
}

func keyText(key ast.Node) (string, bool) {
	switch key := key.(type) {
	case *ast.StringNode:
		return key.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		return key.GetToken().Value, true
	}
	return "", false
}

// field is a key that an object may have, and what reads its value.
type field struct {
	key  string
	read func(entry)
}

// object reads a mapping with known keys. It returns the keys that are there, or were probably meant.
func (d *decoder) object(n ast.Node, what string, fields []field) (seen map[string]bool) {
	seen = map[string]bool{}
	entries, _ := d.entries(n, what)
	for _, e := range entries {
		known := make([]string, len(fields))
		found := false
		for i, f := range fields {
			known[i] = f.key
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
			d.problem(e.at, hint, "unknown key %s in %s", shorten(e.key), what)
		}
	}
	return seen
}

const noPolicies = "there are no policies: nothing will be limited"

func (d *decoder) file(root ast.Node) {
	d.object(root, "the file", []field{
		{"store", d.store},
		{"prefix", d.prefix},
		{"policies", d.policies},
	})
	if len(d.problems) == 0 && len(d.config.Policies) == 0 {
		d.warn(spanOf(root), "", noPolicies)
	}
}

func (d *decoder) store(e entry) {
	text, ok := d.text(e)
	if !ok {
		return
	}
	if hint, err := checkStore(text); err != nil {
		d.problem(spanOf(e.value), hint, "%s", err)
		return
	}
	d.config.Store = text
	d.origin("store", spanOf(e.value))
}

func (d *decoder) prefix(e entry) {
	text, ok := d.text(e)
	if !ok {
		return
	}
	if err := checkPrefix(text); err != nil {
		d.problem(spanOf(e.value), "", "%s", err)
		return
	}
	d.config.Prefix = text
	d.origin("prefix", spanOf(e.value))
}

var prefixes = regexp.MustCompile(`^[A-Za-z0-9._:/-]{1,64}$`)

func checkPrefix(text string) error {
	if !prefixes.MatchString(text) {
		return fmt.Errorf("prefix %s is not 1 to 64 letters, digits, '.', '-', '_', ':' or '/'", shorten(text))
	}
	return nil
}

func (d *decoder) policies(e entry) {
	entries, _ := d.entries(e.value, "policies")
	for _, e := range entries {
		before := len(d.problems)
		p := d.policy(e)
		if len(d.problems) > before || d.partial {
			continue
		}
		// Everything has been checked by now, with better places; this makes sure that a policy that is returned compiles.
		if _, err := p.Compile(); err != nil {
			d.problem(e.at, "", "%s", err)
			continue
		}
		d.config.Policies = append(d.config.Policies, p)
	}
}

func (d *decoder) policy(e entry) drawgate.Policy {
	p := drawgate.Policy{Name: e.key}
	if e.key == "" || len(e.key) > maxName {
		d.problem(e.at, "", "a policy needs a name of 1 to %d bytes", maxName)
	}
	what := "policy " + shorten(e.key)
	if _, ok := e.value.(*ast.NullNode); ok {
		d.missing(e.at, "", "%s is empty: it needs limits", what)
		return p
	}
	before := len(d.problems)
	seen := d.object(e.value, what, []field{
		{"limits", func(e entry) { p.Limits = d.limits(p.Name, e) }},
		{"wait", func(e entry) { p.Wait = d.wait(p.Name, e) }},
	})
	if !seen["limits"] && len(d.problems) == before {
		d.missing(e.at, "", "%s has no limits", what)
	}
	return p
}

// missing is a problem unless what is missing may have been cut out.
func (d *decoder) missing(at span, hint, format string, args ...any) {
	if !d.partial {
		d.problem(at, hint, format, args...)
	}
}

func (d *decoder) limits(policy string, e entry) (limits []drawgate.Limit) {
	list, ok := e.value.(*ast.SequenceNode)
	if _, empty := e.value.(*ast.NullNode); empty {
		d.missing(spanOf(e.value), "", "limits is empty: a policy has 1 to %d", drawgate.MaxLimits)
		return nil
	}
	if !ok {
		d.problem(spanOf(e.value), "write one \"- {name: …, …}\" per limit", "limits must be a list, not %s", describe(e.value))
		return nil
	}
	if len(list.Values) == 0 {
		d.missing(spanOf(list), "", "limits is empty: a policy has 1 to %d", drawgate.MaxLimits)
	}
	first := map[string]int{}
	for i, n := range list.Values {
		if i == drawgate.MaxLimits {
			d.problem(spanOf(n), "a take can name several policies", "a policy has at most %d limits", drawgate.MaxLimits)
		}
		l := d.limit(n)
		if line := first[l.Name]; line != 0 && l.Name != "" {
			d.problem(l.at["name"], fmt.Sprintf("the first one is on line %d", line), "limit name %q is used twice in this policy", l.Name)
		} else {
			first[l.Name] = l.start.line
		}
		d.origin(limitSetting(policy, l.Name), l.start)
		limits = append(limits, l.Limit)
	}
	return limits
}

func (d *decoder) wait(policy string, e entry) (w drawgate.Wait) {
	d.origin(waitSetting(policy), e.at)
	d.object(e.value, "wait", []field{
		{"up_to", func(e entry) {
			w.UpTo = d.duration(e)
			if w.UpTo == 0 {
				d.rangeProblem(e, "up_to", "leave it out for no bound of the policy's own", "more than 0")
			}
		}},
		{"queue", func(e entry) { w.Queue = int(d.integer(e, 1, maxQueue)) }},
		{"backoff", func(e entry) { w.Backoff = d.backoff(e) }},
		{"barge", func(e entry) { w.Barge = d.boolean(e) }},
	})
	return w
}

// rangeProblem reports a value that has the right type, unless it has not and that was reported.
func (d *decoder) rangeProblem(e entry, key, hint, want string) {
	at := spanOf(e.value)
	for _, p := range d.problems {
		if p.Line == at.line && p.Column == at.column {
			return
		}
	}
	d.problem(at, hint, "%s must be %s", key, want)
}

func (d *decoder) backoff(e entry) (steps []time.Duration) {
	list, ok := e.value.(*ast.SequenceNode)
	if !ok {
		d.problem(spanOf(e.value), "such as [2s, 4s, 8s]", "backoff must be a list of durations, not %s", describe(e.value))
		return nil
	}
	if n := len(list.Values); n == 0 || n > maxBackoff {
		d.problem(spanOf(list), "", "backoff has %d steps, not 1 to %d", n, maxBackoff)
		return nil
	}
	for _, n := range list.Values {
		step := entry{"a step of backoff", spanOf(n), n}
		wait := d.duration(step)
		if wait < time.Millisecond || wait > maxStep {
			d.rangeProblem(step, step.key, "", "between 1ms and 24h")
		}
		steps = append(steps, wait)
	}
	return steps
}

// checkStore reports a store URL that no store of this version understands.
func checkStore(url string) (hint string, err error) {
	scheme, rest, ok := strings.Cut(url, ":")
	switch {
	case !ok:
		return "such as memory:, sqlite:///var/lib/drawgate/state.db or redis://localhost:6379/0",
			fmt.Errorf("store %s is not a URL", shorten(url))
	case scheme == "memory":
		if rest != "" {
			return "write memory:", fmt.Errorf("store %s has something behind \"memory:\"", shorten(url))
		}
	case scheme == "sqlite":
		if _, ok := SQLitePath(url); !ok {
			return "write sqlite:///absolute/path or sqlite:relative/path", fmt.Errorf("store %s does not name a file", shorten(url))
		}
	case scheme == "redis" || scheme == "rediss":
		if host := strings.TrimPrefix(rest, "//"); host == rest || host == "" {
			return "such as redis://localhost:6379/0", fmt.Errorf("store %s does not name a server", shorten(url))
		}
	default:
		hint, meant := didYouMean(scheme, []string{"memory", "sqlite", "redis", "rediss"})
		if meant != "" {
			hint = fmt.Sprintf("did you mean %q?", meant+":")
		}
		return hint, fmt.Errorf("store %s is of no known kind (memory:, sqlite:, redis:// or rediss://)", shorten(url))
	}
	return "", nil
}

// SQLitePath returns the path in a store URL of the form sqlite:///absolute/path or sqlite:relative/path; false for any other. The path
// stands as it is: nothing in it is escaped.
func SQLitePath(store string) (path string, ok bool) {
	path, ok = strings.CutPrefix(store, "sqlite:")
	if rest, found := strings.CutPrefix(path, "//"); found {
		// With two slashes a host would follow; only the empty one is allowed.
		path, ok = rest, ok && strings.HasPrefix(rest, "/")
	}
	return path, ok && path != ""
}
