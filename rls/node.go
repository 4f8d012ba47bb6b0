package rls

import (
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/drawgate/drawgate/internal/yamltext"
)

// resolve returns what an anchor names or an alias refers to, or nil, after reporting it, if that
// does not exist. Each call counts towards the bound of a file, so that nested aliases cannot
// expand without limit.
func (r *reader) resolve(n ast.Node, depth int) ast.Node {
	if r.visits++; r.visits > maxVisits || depth > maxDepth {
		if !r.full {
			r.problem(placeOf(n), "the file is too large: more than %d values, or %d levels", maxVisits, maxDepth)
		}
		r.full = true
		return nil
	}
	for range maxDepth {
		switch v := n.(type) {
		case *ast.AnchorNode:
			n = v.Value
		case *ast.AliasNode:
			name := v.Value.GetToken().Value
			target, ok := r.anchors[name]
			if !ok {
				r.problem(placeOf(v), "there is no anchor %s before this", shorten(name))
				return nil
			}
			n = target
		default:
			return n
		}
	}
	r.problem(placeOf(n), "an alias refers to itself")
	return nil
}

// anchorsOf collects every anchor of a tree by its name.
type anchorsOf struct{ found map[string]ast.Node }

// Visit implements [ast.Visitor].
func (a anchorsOf) Visit(n ast.Node) ast.Visitor {
	if anchor, ok := n.(*ast.AnchorNode); ok && anchor.Name != nil {
		a.found[anchor.Name.GetToken().Value] = anchor.Value
	}
	return a
}

// entry is one key of a mapping and its value.
type entry struct {
	key   string
	at    place // position of the key
	value ast.Node
	depth int
}

// entries returns the entries of a mapping, each key once, merged ones last.
func (r *reader) entries(n ast.Node, what string, depth int) []entry {
	if n = r.resolve(n, depth); n == nil {
		return nil
	}
	pairs, ok := yamltext.Pairs(n, false)
	if !ok {
		r.problem(placeOf(n), "%s must be a mapping (key: value), not %s", what, describe(n))
	}
	given := map[string]bool{}
	var found, merged []entry
	for _, p := range pairs {
		switch {
		case p.Merge:
			merged = append(merged, r.merged(p.Value, what, depth+1)...)
		case !p.Plain:
			r.problem(p.At, "a key of %s must be plain text", what)
		case p.First != 0:
			r.problem(p.At, "%q is given twice in %s; the first one is on line %d", p.Key, what, p.First)
		default:
			given[p.Key] = true
			found = append(found, entry{p.Key, p.At, p.Value, depth + 1})
		}
	}
	for _, e := range merged {
		if !given[e.key] {
			given[e.key] = true
			found = append(found, e)
		}
	}
	return found
}

// merged returns the entries of a merge key: a mapping, or a list of mappings.
func (r *reader) merged(n ast.Node, what string, depth int) []entry {
	list, ok := r.resolve(n, depth).(*ast.SequenceNode)
	if !ok {
		return r.entries(n, what, depth)
	}
	var all []entry
	for _, v := range list.Values {
		all = append(all, r.entries(v, what, depth+1)...)
	}
	return all
}

// list reads a list. An empty value is an empty list.
func (r *reader) list(e entry) []ast.Node {
	switch n := r.resolve(e.value, e.depth).(type) {
	case *ast.SequenceNode:
		return n.Values
	case *ast.NullNode, nil:
	default:
		r.problem(placeOf(n), "%s must be a list, not %s", e.key, describe(n))
	}
	return nil
}

// text reads a text. Integers and booleans are taken as written, and an empty value is "", as in
// the format's original reader.
func (r *reader) text(e entry) string {
	switch n := r.resolve(e.value, e.depth).(type) {
	case *ast.StringNode:
		return n.Value
	case *ast.LiteralNode:
		return n.Value.Value
	case *ast.IntegerNode, *ast.BoolNode:
		return n.GetToken().Value
	case *ast.FloatNode:
		r.problem(placeOf(n), "%s must be a string; put it in quotes: %q", e.key, n.GetToken().Value)
	case *ast.NullNode, nil:
	default:
		r.problem(placeOf(n), "%s must be a string, not %s", e.key, describe(n))
	}
	return ""
}

// boolean reads true or false, in any spelling of YAML 1.1.
func (r *reader) boolean(e entry) bool {
	n := r.resolve(e.value, e.depth)
	switch n := n.(type) {
	case *ast.BoolNode:
		return n.Value
	case *ast.NullNode, nil:
		return false
	case *ast.StringNode:
		if n.Token.Value == n.Value && !strings.ContainsAny(n.Token.Origin, `"'`) {
			switch strings.ToLower(n.Value) {
			case "y", "yes", "on":
				return true
			case "n", "no", "off":
				return false
			}
		}
	}
	r.problem(placeOf(n), "%s must be true or false, not %s", e.key, describe(n))
	return false
}

// number reads an integer from least to 2^32 - 1.
func (r *reader) number(e entry, least uint32) uint32 {
	n := r.resolve(e.value, e.depth)
	switch n := n.(type) {
	case *ast.IntegerNode:
		i, err := strconv.ParseUint(strings.ReplaceAll(n.GetToken().Value, "_", ""), 10, 32)
		if err == nil && i >= uint64(least) {
			return uint32(i)
		}
		r.problem(placeOf(n), "%s %s is not a whole number from %d to 4294967295", e.key, n.GetToken().Value, least)
	case *ast.NullNode, nil:
		return least
	default:
		r.problem(placeOf(n), "%s must be a whole number from %d to 4294967295, not %s", e.key, least, describe(n))
	}
	return least
}
