package config

import "github.com/goccy/go-yaml/ast"

// list reads a list of 1 to most values.
func (d *decoder) list(e entry, most int) ([]ast.Node, bool) {
	n, ok := e.value.(*ast.SequenceNode)
	switch {
	case !ok:
		d.problem(spanOf(e.value), "", "%s must be a list, not %s", e.key, describe(e.value))
	case len(n.Values) == 0:
		d.missing(spanOf(n), "leave it out", "%s is empty", e.key)
	case len(n.Values) > most:
		d.problem(spanOf(n), "", "%s has %d values, more than %d", e.key, len(n.Values), most)
	default:
		return n.Values, true
	}
	return nil, false
}

// texts reads a text, or a list of texts.
func (d *decoder) texts(e entry, most int, read func(entry)) {
	if _, ok := e.value.(*ast.SequenceNode); !ok {
		read(e)
		return
	}
	items, _ := d.list(e, most)
	for _, n := range items {
		read(entry{e.key, spanOf(n), n})
	}
}
