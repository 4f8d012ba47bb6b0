package rls

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/drawgate/drawgate/internal/yamltext"
)

// bounds apply to a file.
var bounds = yamltext.Bounds{Size: 4 << 20, Aliases: true, Extras: 1000}

const (
	maxVisits = 200_000 // nodes that are read, counting those behind aliases each time
	maxDepth  = 64      // nested lists and mappings, those behind aliases included
)

// reader reads one file. It continues after a mistake, to find all of them.
type reader struct {
	name    string
	errs    ConfigErrors
	anchors map[string]ast.Node
	visits  int
	full    bool // more than maxVisits: the result is not complete
}

func (r *reader) problem(at place, format string, args ...any) {
	if len(r.errs) < maxProblems {
		r.errs = append(r.errs, &ConfigError{r.name, at.Line, at.Column, fmt.Sprintf(format, args...)})
	}
}

// parse returns the root of the only document, or nil, after reporting it, if there is none.
func (r *reader) parse(data []byte) ast.Node {
	if at, message := bounds.Check(data); message != "" {
		r.problem(at, "%s", message)
		return nil
	}
	file, at, message := bounds.Parse(strings.TrimPrefix(string(data), "\ufeff"))
	if message != "" {
		r.problem(at, "%s", message)
		return nil
	}
	root := yamltext.Document(file, func(at place, message string) { r.problem(at, "%s", message) })
	if root == nil {
		r.problem(place{Line: 1, Column: 1}, "the file is empty: it needs a domain")
	}
	return root
}

// place is a position in a file.
type place = yamltext.Span

func placeOf(n ast.Node) place { return yamltext.Of(n) }

// describe returns a name for a node, for messages.
func describe(n ast.Node) string { return yamltext.Describe(n, shorten) }

// shorten quotes a text, and cuts one that is too long to help.
func shorten(s string) string { return fmt.Sprintf("%q", yamltext.Shorten(s)) }
