package rls

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a file. The YAML parser recurses; with these it stays shallow whatever it is given. Indentation is nesting, hence the bounds on a
// line.
const (
	maxSize    = 4 << 20 // bytes
	maxLine    = 4096    // bytes
	maxIndent  = 256     // spaces before the first character of a line
	maxNesting = 32      // brackets in brackets
	maxExtras  = 1000    // anchors, aliases and merge keys
	maxKeys    = 5000    // keys of one mapping in block style, over which the parser recurses, in quadratic time
	maxVisits  = 200_000 // nodes that are read, those behind aliases each time
	maxDepth   = 64      // nested lists and mappings, those behind aliases included
)

// reader reads one file. It goes on after a mistake, so that all of them are found.
type reader struct {
	name    string
	errs    ConfigErrors
	anchors map[string]ast.Node
	visits  int
	full    bool // more than maxVisits: what else was read is not complete
}

func (r *reader) problem(at place, format string, args ...any) {
	if len(r.errs) < maxProblems {
		r.errs = append(r.errs, &ConfigError{r.name, at.line, at.column, fmt.Sprintf(format, args...)})
	}
}

// parse returns the root of the only document; nil if there is none, which is reported.
func (r *reader) parse(data []byte) ast.Node {
	if at, message := unreadable(data); message != "" {
		r.problem(at, "%s", message)
		return nil
	}
	file, at, message := parseYAML(strings.TrimPrefix(string(data), "\ufeff"))
	if message != "" {
		r.problem(at, "%s", strings.ReplaceAll(message, "\t", `\t`))
		return nil
	}
	var root ast.Node
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.CommentType:
		case root == nil:
			root = doc.Body
		default:
			r.problem(placeOf(doc.Body), "a file holds one document, this is a second one")
		}
	}
	if root == nil {
		r.problem(place{1, 1}, "the file is empty: it needs a domain")
	}
	return root
}

func unreadable(data []byte) (place, string) {
	if len(data) > maxSize {
		return place{1, 1}, fmt.Sprintf("the file is larger than %d bytes", maxSize)
	}
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		switch {
		case !utf8.ValidString(line):
			return place{number, 1}, "the line is not UTF-8 text"
		case strings.IndexByte(line, 0) >= 0:
			return place{number, 1}, "the line has a NUL character"
		case len(line) > maxLine:
			return place{number, 1}, fmt.Sprintf("the line is longer than %d bytes", maxLine)
		case len(line)-len(strings.TrimLeft(line, " ")) > maxIndent:
			return place{number, 1}, fmt.Sprintf("the line is indented by more than %d", maxIndent)
		case strings.Count(line, "- ")+strings.Count(line, "? ") > maxDepth:
			return place{number, 1}, fmt.Sprintf("the line has more than %d list items", maxDepth)
		}
	}
	return place{}, ""
}

// parseYAML parses; message is empty if text is well-formed and within the bounds.
func parseYAML(text string) (file *ast.File, at place, message string) {
	defer func() {
		// The parser is not ours; that it panics on some text must not end a server that reloads its configuration.
		if p := recover(); p != nil {
			file, at, message = nil, place{1, 1}, "the YAML parser gave up on this file"
		}
	}()
	tokens := lexer.Tokenize(text)
	if at, message := checkTokens(tokens); message != "" {
		return nil, at, message
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err == nil {
		return file, place{}, ""
	}
	if syntax, ok := errors.AsType[*yaml.SyntaxError](err); ok && syntax.Token != nil {
		return nil, placeOfToken(syntax.Token), syntax.Message
	}
	return nil, place{1, 1}, err.Error()
}

func checkTokens(tokens token.Tokens) (place, string) {
	nesting, extras := 0, 0
	var blocks blockKeys
	for _, t := range tokens {
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			nesting++
		case token.MappingEndType, token.SequenceEndType:
			nesting--
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			extras++
		case token.TagType, token.MappingKeyType, token.DirectiveType:
			return placeOfToken(t), "tags, directives and complex keys are not supported"
		case token.SequenceEntryType:
			blocks.item(t)
		case token.MappingValueType:
			if nesting <= 0 {
				blocks.key(t)
			}
		default:
		}
		switch {
		case nesting > maxNesting:
			return placeOfToken(t), fmt.Sprintf("more than %d brackets are nested here", maxNesting)
		case extras > maxExtras:
			return placeOfToken(t), fmt.Sprintf("more than %d anchors and aliases", maxExtras)
		case blocks.most > maxKeys:
			return placeOfToken(t), fmt.Sprintf("one mapping has more than %d keys", maxKeys)
		}
	}
	return place{}, ""
}

// blockKeys counts the keys of mappings in block style, which their column tells apart.
type blockKeys struct {
	open []struct{ column, keys int }
	most int
}

// item ends the mappings inside the list item before t.
func (b *blockKeys) item(t *token.Token) {
	for len(b.open) > 0 && t.Position != nil && b.open[len(b.open)-1].column > t.Position.Column {
		b.open = b.open[:len(b.open)-1]
	}
}

// key counts the key before the colon t.
func (b *blockKeys) key(t *token.Token) {
	name := t.Prev
	if name == nil || name.Position == nil {
		return
	}
	b.item(name)
	if n := len(b.open); n == 0 || b.open[n-1].column < name.Position.Column {
		b.open = append(b.open, struct{ column, keys int }{column: name.Position.Column})
	}
	top := &b.open[len(b.open)-1]
	top.keys++
	b.most = max(b.most, top.keys)
}

func placeOf(n ast.Node) place {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return placeOf(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return placeOf(n.Key)
	}
	if n == nil || n.GetToken() == nil {
		return place{1, 1}
	}
	return placeOfToken(n.GetToken())
}

func placeOfToken(t *token.Token) place {
	if t.Position == nil {
		return place{1, 1}
	}
	return place{t.Position.Line, t.Position.Column}
}

// describe names what a node is, for messages.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode:
		return "the text " + shorten(n.Value)
	case *ast.LiteralNode:
		return "a block of text"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "the number " + n.GetToken().Value
	case *ast.BoolNode:
		return n.GetToken().Value
	case *ast.NullNode, nil:
		return "empty"
	default:
		return "a " + strings.ToLower(n.Type().String())
	}
}

// shorten quotes a text and cuts it where it is too long to help.
func shorten(s string) string {
	const most = 60
	if runes := []rune(s); len(runes) > most {
		s = string(runes[:most]) + "…"
	}
	return fmt.Sprintf("%q", s)
}
