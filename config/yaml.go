package config

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

// Bounds of a file. The YAML parser recurses; with these it stays shallow whatever it is given. Indentation is nesting, hence the bound
// on a line.
const (
	maxLine    = 4096 // characters
	maxNesting = 32   // brackets in brackets
	maxKeys    = 5000 // keys of one mapping in block style, over which the parser recurses, in quadratic time
	maxExtras  = 100  // anchors, aliases, tags and complex keys: all errors, but the parser sees them first
	maxSyntax  = 8    // syntax errors after which reading stops
)

// parse returns the root of the file; false if there is nothing to decode. After a syntax error the block in which it is is left out, so
// that the rest can be checked too.
func (d *decoder) parse(data []byte) (ast.Node, bool) {
	if at, message := unreadable(data, d.lines); message != "" {
		d.problem(at, "", "%s", message)
		return nil, false
	}
	text := strings.TrimPrefix(string(data), "\ufeff")
	for range maxSyntax {
		file, at, message := parseYAML(text)
		if message == "" {
			return d.document(file)
		}
		d.partial = true
		open := at.line
		if strings.Contains(message, "']'") || strings.Contains(message, "'}'") {
			open = openBracket(text, at)
		}
		d.problem(at, syntaxHint(message, at.line, open), "%s", strings.ReplaceAll(message, "\t", `\t`))
		rest, ok := withoutBlock(text, open)
		if !ok {
			break
		}
		text = rest
	}
	return nil, false
}

func unreadable(data []byte, lines []string) (span, string) {
	if len(data) > MaxSize {
		return span{1, 1, 1}, fmt.Sprintf("the file is larger than %d bytes", MaxSize)
	}
	for i, line := range lines {
		switch {
		case !utf8.ValidString(line):
			good := 0
			for good < len(line) {
				r, n := utf8.DecodeRuneInString(line[good:])
				if r == utf8.RuneError && n == 1 {
					break
				}
				good += n
			}
			return span{i + 1, utf8.RuneCountInString(line[:good]) + 1, 1}, "the file is not UTF-8 text"
		case strings.IndexByte(line, 0) >= 0:
			return span{i + 1, utf8.RuneCountInString(line[:strings.IndexByte(line, 0)]) + 1, 1}, "the file has a NUL character"
		case len(line) > maxLine:
			return span{i + 1, 1, 1}, fmt.Sprintf("the line is longer than %d bytes", maxLine)
		}
	}
	return span{}, ""
}

// parseYAML parses; message is empty if text is well-formed and within the bounds.
func parseYAML(text string) (file *ast.File, at span, message string) {
	defer func() {
		// The parser is not ours; that it panics on some text must not end a server that reloads its configuration.
		if r := recover(); r != nil {
			file, at, message = nil, span{1, 1, 1}, "the YAML parser gave up on this file"
		}
	}()
	tokens := lexer.Tokenize(text)
	if at, message := checkTokens(tokens); message != "" {
		return nil, at, message
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err == nil {
		return file, span{}, ""
	}
	if syntax, ok := errors.AsType[*yaml.SyntaxError](err); ok && syntax.Token != nil {
		return nil, spanOfToken(syntax.Token), syntax.Message
	}
	return nil, span{1, 1, 1}, err.Error()
}

func checkTokens(tokens token.Tokens) (span, string) {
	nesting, extras := 0, 0
	var blocks blockKeys
	for _, t := range tokens {
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			nesting++
		case token.MappingEndType, token.SequenceEndType:
			nesting--
		case token.AnchorType, token.AliasType, token.TagType, token.MappingKeyType, token.MergeKeyType, token.DirectiveType:
			extras++
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
			return spanOfToken(t), fmt.Sprintf("more than %d brackets are nested here", maxNesting)
		case extras > maxExtras:
			return spanOfToken(t), "anchors, aliases, tags and complex keys are not supported"
		case blocks.most > maxKeys:
			return spanOfToken(t), fmt.Sprintf("one mapping has more than %d keys", maxKeys)
		}
	}
	return span{}, ""
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

// openBracket returns the line on which the outermost bracket opens that is still open at a place; the place's line if none is.
func openBracket(text string, at span) int {
	var open []int
	for _, t := range lexer.Tokenize(text) {
		if t.Position == nil || t.Position.Line > at.line || t.Position.Line == at.line && t.Position.Column >= at.column {
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
		return at.line
	}
	return open[0]
}

func syntaxHint(message string, line, open int) string {
	switch {
	case strings.Contains(message, "'\t'"):
		return "indent with spaces, not with tabs"
	case open < line:
		return fmt.Sprintf("a bracket is open since line %d", open)
	case strings.Contains(message, "mapping value is not allowed"):
		return "if this is a text, put it in quotes; otherwise look at the indentation"
	case strings.Contains(message, "value is not allowed in this context"):
		return "look at the indentation: it must be that of the entries above"
	}
	return ""
}

// withoutBlock blanks a line, the lines below it that are indented deeper, and a closing bracket that ends them; false if that changes
// nothing.
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
	var root ast.Node
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.CommentType:
		case root == nil:
			root = doc.Body
		default:
			d.problem(spanOf(doc.Body), "", "a file holds one document, this is a second one")
		}
	}
	if root == nil && !d.partial {
		d.warn(span{1, 1, 1}, "", "the file is empty: nothing will be limited")
	}
	return root, root != nil
}

// spanOf returns where a node starts.
func spanOf(n ast.Node) span {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return spanOf(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return spanOf(n.Key)
	}
	if n == nil || n.GetToken() == nil {
		return span{1, 1, 1}
	}
	return spanOfToken(n.GetToken())
}

func spanOfToken(t *token.Token) span {
	if t.Position == nil {
		return span{1, 1, 1}
	}
	width := utf8.RuneCountInString(strings.TrimSpace(t.Value))
	if t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType {
		width += 2
	}
	return span{t.Position.Line, t.Position.Column, max(1, width)}
}

// describe names the type of a node, for messages.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode:
		return fmt.Sprintf("the text %s", shorten(n.Value))
	case *ast.LiteralNode:
		return "a block of text"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "the number " + n.GetToken().Value
	case *ast.BoolNode:
		return n.GetToken().Value
	case *ast.NullNode, nil:
		return "empty"
	case *ast.AnchorNode, *ast.AliasNode:
		return "an anchor or alias, which are not supported: repeat the value"
	case *ast.TagNode:
		return "a tag, which is not supported"
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
	return fmt.Sprintf("%q", RedactURL(s))
}
