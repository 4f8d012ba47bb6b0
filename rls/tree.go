package rls

import (
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// domain is the tree of one domain.
type domain struct {
	name string
	root node
}

// pair is an entry of a descriptor. Key and value stay separate, so that different pairs are never
// equal.
type pair struct{ key, value string }

// node is a descriptor of a file: what may follow it, and its rate.
type node struct {
	step  Step
	rule  *Rule   // nil: no rate here
	match pattern // pattern of the value, or of key, "_" and value if the key has a *; nil: no *
	exact map[pair]*node
	wild  []*node // in the order of the file
	any   map[string]*node
	seen  map[string]place // names as joined by envoyproxy/ratelimit, where duplicates are a mistake
}

// next returns the most specific descriptor for an entry: the exact value, then the first wildcard
// in the file, then the key alone.
func (n *node) next(key, value string) *node {
	if c := n.exact[pair{key, value}]; c != nil {
		return c
	}
	joined := ""
	for _, c := range n.wild {
		if !c.step.wildKey() {
			if c.step.Key == key && c.match.matches(value) {
				return c
			}
			continue
		}
		if joined == "" {
			joined = join(key, value)
		}
		if c.match.matches(joined) {
			return c
		}
	}
	return n.any[key]
}

// join returns the name of a pair in envoyproxy/ratelimit.
func join(key, value string) string { return key + "_" + value }

// find returns the rate of a descriptor, or nil if it has none. Every entry must lead one step
// down: a descriptor with more or fewer entries than a rate has steps does not match it.
func (d *domain) find(entries []*common.RateLimitDescriptor_Entry) *Rule {
	n := &d.root
	for _, e := range entries {
		if n = n.next(e.GetKey(), e.GetValue()); n == nil {
			return nil
		}
	}
	return n.rule
}

// add adds a descriptor below n.
func (n *node) add(c *node) {
	s := &c.step
	switch {
	case s.wildKey() && s.Value == "":
		c.match = newPattern(s.Key)
	case s.wildKey():
		c.match = newPattern(join(s.Key, s.Value))
	default:
		c.match = newPattern(s.Value)
	}
	if s.Wildcard {
		n.wild = append(n.wild, c)
	}
	switch {
	case s.Value == "":
		if n.any == nil {
			n.any = map[string]*node{}
		}
		n.any[s.Key] = c
	case !s.Wildcard:
		if n.exact == nil {
			n.exact = map[pair]*node{}
		}
		n.exact[pair{s.Key, s.Value}] = c
	}
}

// key returns the bucket's name for a descriptor that the rule matches: the keys and values that
// have their own buckets.
func (r *Rule) key(entries []*common.RateLimitDescriptor_Entry) string {
	found, single := 0, ""
	r.eachPart(entries, func(part string) { found, single = found+1, part })
	if found <= 1 {
		return single
	}
	var b strings.Builder
	first := true
	r.eachPart(entries, func(part string) {
		if !first {
			b.WriteByte('|')
		}
		first = false
		keyEscaper.WriteString(&b, part) //nolint:errcheck,gosec // a strings.Builder does not fail
	})
	return b.String()
}

// eachPart calls f with the keys and values of a descriptor that have their own buckets.
func (r *Rule) eachPart(entries []*common.RateLimitDescriptor_Entry, f func(part string)) {
	for i := range r.Path {
		if r.Path[i].wildKey() {
			f(entries[i].GetKey())
		}
		if r.Path[i].varies() {
			f(entries[i].GetValue())
		}
	}
}

// keyEscaper separates values: different lists of values never have the same key.
var keyEscaper = strings.NewReplacer(`\`, `\\`, `|`, `\|`)

// metric returns the rule's name for metrics, as in envoyproxy/ratelimit: with the values of steps
// that ask for it.
func (r *Rule) metric(entries []*common.RateLimitDescriptor_Entry) string {
	var b strings.Builder
	b.WriteString(r.Domain)
	for i := range r.Path {
		s, key, value := &r.Path[i], entries[i].GetKey(), entries[i].GetValue()
		b.WriteString("." + key)
		switch {
		case s.Wildcard && (s.Shared || !s.Metric && !r.Detailed):
			b.WriteString("_" + strings.TrimPrefix(s.joined(), join(key, "")))
		case s.Wildcard || s.Value != "" || s.Metric || r.Detailed:
			if value != "" {
				b.WriteString("_" + value)
			}
		}
	}
	return b.String()
}

// named reports whether [Rule.metric] depends on the values of a request.
func (r *Rule) named() bool {
	if r.Detailed {
		return true
	}
	for i := range r.Path {
		if r.Path[i].Metric {
			return true
		}
	}
	return false
}
