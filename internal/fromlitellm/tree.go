package fromlitellm

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/drawgate/drawgate/internal/yamltext"
)

// bounds are those of a configuration.
var bounds = yamltext.Bounds{Size: 1 << 20, Aliases: true, Extras: 1000}

const (
	maxVisits = 200_000 // values of a file, counting those behind aliases each time
	maxDepth  = 64      // nested lists and mappings
)

// kind says what a value is.
type kind uint8

const (
	isNull kind = iota
	isText      // a text, or a number or a truth value as it is written
	isList
	isTable
)

// value is a value of a file, in YAML or JSON.
type value struct {
	file string
	line int // 0 in JSON
	kind kind
	text string
	list []*value
	keys []pair // of a table, each key once
}

// pair is a key and its value, whose line is that of the key.
type pair struct {
	key string
	*value
}

// get returns the value of a key; nil if there is none, or it is null.
func (v *value) get(key string) *value {
	if v == nil {
		return nil
	}
	for _, p := range v.keys {
		if p.key == key && p.kind != isNull {
			return p.value
		}
	}
	return nil
}

// empty reports whether a value says nothing: null, "", {} or [].
func (v *value) empty() bool {
	return v == nil || v.kind == isNull || v.kind == isText && v.text == "" || v.kind == isList && len(v.list) == 0 ||
		v.kind == isTable && len(v.keys) == 0
}

// yes reports whether a value is true, in any spelling of YAML 1.1.
func (v *value) yes() bool {
	if v == nil || v.kind != isText {
		return false
	}
	switch strings.ToLower(v.text) {
	case "true", "yes", "on", "y":
		return true
	}
	return false
}

// builder makes values of YAML's nodes.
type builder struct {
	file    string
	anchors map[string]ast.Node
	visits  int
	err     *Error
}

// parse reads a file of YAML.
func parse(s Source) (*value, error) {
	b := &builder{file: s.Name, anchors: map[string]ast.Node{}}
	if at, message := bounds.Check(s.Text); message != "" {
		return nil, b.wrong(at, "%s", message)
	}
	file, at, message := bounds.Parse(strings.TrimPrefix(string(s.Text), "\ufeff"))
	if message != "" {
		// What the parser says may quote the text, and the text may be a secret.
		return nil, b.wrong(at, "this is not YAML, or not in a form that is read here")
	}
	root := yamltext.Document(file, func(at yamltext.Span, message string) { _ = b.wrong(at, "%s", message) })
	if root == nil {
		return nil, b.wrong(yamltext.Span{}, notLiteLLM)
	}
	ast.Walk(b, root)
	v := b.build(root, 0)
	if b.err != nil {
		return nil, b.err
	}
	return v, nil
}

// wrong keeps the first mistake.
func (b *builder) wrong(at yamltext.Span, message string, args ...any) error {
	if b.err == nil {
		b.err = &Error{b.file, at.Line, at.Column, fmt.Sprintf(message, args...)}
	}
	return b.err
}

// Visit implements [ast.Visitor]: it collects the anchors.
func (b *builder) Visit(n ast.Node) ast.Visitor {
	if anchor, ok := n.(*ast.AnchorNode); ok && anchor.Name != nil {
		b.anchors[anchor.Name.GetToken().Value] = anchor.Value
	}
	return b
}

// build returns the value of a node. After a mistake it returns null.
func (b *builder) build(n ast.Node, depth int) *value {
	v := &value{file: b.file, line: yamltext.Of(n).Line}
	n = b.resolve(n, depth)
	if b.err != nil {
		return v
	}
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		v.kind, v.keys = isTable, b.table(n, depth)
	case *ast.SequenceNode:
		v.kind = isList
		for _, item := range n.Values {
			v.list = append(v.list, b.build(item, depth+1))
		}
	case *ast.StringNode:
		v.kind, v.text = isText, n.Value
	case *ast.LiteralNode:
		v.kind, v.text = isText, n.Value.Value
	case *ast.NullNode, nil:
	default:
		v.kind, v.text = isText, n.GetToken().Value
	}
	return v
}

// resolve returns what an anchor names or an alias refers to. Each call counts towards the bound of
// a file, so that nested aliases cannot expand without limit.
func (b *builder) resolve(n ast.Node, depth int) ast.Node {
	if b.visits++; b.visits > maxVisits || depth > maxDepth {
		_ = b.wrong(yamltext.Of(n), "the file is too large: more than %d values, or %d levels", maxVisits, maxDepth)
		return nil
	}
	for range maxDepth {
		switch v := n.(type) {
		case *ast.AnchorNode:
			n = v.Value
		case *ast.AliasNode:
			target, ok := b.anchors[v.Value.GetToken().Value]
			if !ok {
				_ = b.wrong(yamltext.Of(v), "an alias refers to an anchor that is not there")
				return nil
			}
			n = target
		default:
			return n
		}
	}
	_ = b.wrong(yamltext.Of(n), "an alias refers to itself")
	return nil
}

// table returns the pairs of a mapping. What is merged comes last, and does not replace anything.
func (b *builder) table(n ast.Node, depth int) (found []pair) {
	pairs, _ := yamltext.Pairs(n, true)
	given := map[string]bool{}
	var merged []pair
	for _, p := range pairs {
		switch {
		case p.Merge:
			merged = append(merged, b.merged(p.Value, depth+1)...)
		case !p.Plain:
			_ = b.wrong(p.At, "a key of a mapping is not plain text")
		case p.First != 0:
			_ = b.wrong(p.At, "the key is given twice; the first one is on line %d", p.First)
		default:
			v := b.build(p.Value, depth+1)
			v.line = p.At.Line
			given[p.Key] = true
			found = append(found, pair{p.Key, v})
		}
	}
	for _, p := range merged {
		if !given[p.key] {
			given[p.key] = true
			found = append(found, p)
		}
	}
	return found
}

// merged returns the pairs of a merge key: a mapping, or a list of mappings.
func (b *builder) merged(n ast.Node, depth int) (all []pair) {
	switch n := b.resolve(n, depth).(type) {
	case *ast.SequenceNode:
		for _, item := range n.Values {
			all = append(all, b.merged(item, depth+1)...)
		}
	case *ast.MappingNode, *ast.MappingValueNode:
		all = b.table(n, depth+1)
	default:
		if b.err == nil {
			_ = b.wrong(yamltext.Of(n), "what is merged is not a mapping")
		}
	}
	return all
}
