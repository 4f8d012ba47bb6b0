package config

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"

	"github.com/drawgate/drawgate/internal/yamltext"
)

// bounds are those of a file. Anchors, aliases, tags and complex keys are all mistakes, but the
// parser sees them first.
var bounds = yamltext.Bounds{Size: MaxSize, Extras: 100}

const maxSyntax = 8 // syntax errors after which reading stops

// parse returns the root of the file; false if there is nothing to decode. After a syntax error the
// block in which it is is left out, so that the rest can be checked too.
func (d *decoder) parse(data []byte) (ast.Node, bool) {
	if at, message := bounds.Check(data); message != "" {
		d.problem(at, "", "%s", message)
		return nil, false
	}
	text := strings.TrimPrefix(string(data), "\ufeff")
	for range maxSyntax {
		file, at, message := bounds.Parse(text)
		if message == "" {
			return d.document(file)
		}
		d.partial = true
		open := at.Line
		if strings.Contains(message, "']'") || strings.Contains(message, "'}'") {
			open = openBracket(text, at)
		}
		message, _ = redactLine(message, span{}) // it may quote the text
		d.problem(at, syntaxHint(message, at.Line, open), "%s", message)
		rest, ok := withoutBlock(text, open)
		if !ok {
			break
		}
		text = rest
	}
	return nil, false
}

// openBracket returns the line on which the outermost bracket opens that is still open at a place;
// the place's line if none is.
func openBracket(text string, at span) int {
	var open []int
	for _, t := range lexer.Tokenize(text) {
		if t.Position == nil || t.Position.Line > at.Line ||
			t.Position.Line == at.Line && t.Position.Column >= at.Column {
			continue
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			open = append(open, t.Position.Line)
		case token.MappingEndType, token.SequenceEndType:
			open = open[:max(0, len(open)-1)]
		default:
		}
	}
	if len(open) == 0 {
		return at.Line
	}
	return open[0]
}

func syntaxHint(message string, line, open int) string {
	switch {
	case strings.Contains(message, `'\t'`):
		return "indent with spaces, not with tabs"
	case open < line:
		return fmt.Sprintf("the bracket that was opened on line %d is not closed", open)
	case strings.Contains(message, "mapping value is not allowed"):
		return "if this is a string, put it in quotes; otherwise check the indentation"
	case strings.Contains(message, "value is not allowed in this context"):
		return "check the indentation: it must match that of the entries above"
	}
	return ""
}

// withoutBlock blanks a line, the lines below it that are indented deeper, and a closing bracket
// that ends them; false if that changes nothing.
func withoutBlock(text string, line int) (string, bool) {
	lines := strings.Split(text, "\n")
	if line < 1 || line > len(lines) {
		return "", false
	}
	outer := indent(lines[line-1])
	changed := false
	for i := line - 1; i < len(lines); i++ {
		content := strings.TrimSpace(lines[i])
		if i >= line && content != "" && indent(lines[i]) <= outer {
			if content[0] == ']' || content[0] == '}' {
				lines[i] = ""
			}
			break
		}
		changed = changed || content != ""
		lines[i] = ""
	}
	return strings.Join(lines, "\n"), changed
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " \t")) }

// document returns the root of the only document; false if the file has nothing but comments.
func (d *decoder) document(file *ast.File) (ast.Node, bool) {
	root := yamltext.Document(file, func(at span, message string) { d.problem(at, "", "%s", message) })
	if root == nil && !d.partial {
		d.warn(span{Line: 1, Column: 1, Width: 1}, "", "the file is empty: nothing will be limited")
	}
	return root, root != nil
}

// spanOf returns where a node starts.
func spanOf(n ast.Node) span { return yamltext.Of(n) }

// describe names what a node is, for messages.
func describe(n ast.Node) string { return yamltext.Describe(n, shorten) }

// shorten quotes a text and cuts it where it is too long to help.
func shorten(s string) string { return fmt.Sprintf("%q", yamltext.Shorten(RedactURL(s))) }
