// Package yamltext reads YAML that may be hostile, and reports positions in it.
//
// The parser is recursive; the bounds enforced here keep it shallow whatever the input.
package yamltext

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

// Bounds on any text. Indentation is nesting, hence those on a line.
const (
	maxLine    = 4096 // bytes
	maxIndent  = 256  // spaces before the first character of a line
	maxItems   = 64   // list items on a line
	maxNesting = 32   // brackets in brackets
	maxKeys    = 5000 // keys of one mapping in block style: the parser recurses over them, in quadratic time
)

// Bounds are the bounds that differ between readers.
type Bounds struct {
	Size    int  // bytes
	Aliases bool // allow anchors, aliases and merge keys; otherwise the reader reports them
	Extras  int  // anchors and aliases; if they are not allowed, also tags and complex keys
}

// Span is a part of a line.
type Span struct{ Line, Column, Width int } // from 1; in characters

// start is used if there is no better position.
var start = Span{1, 1, 1}

// Check returns why data cannot be parsed, and where; the message is empty if it can.
func (b Bounds) Check(data []byte) (Span, string) {
	if len(data) > b.Size {
		return start, fmt.Sprintf("the file is larger than %d bytes", b.Size)
	}
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		if column, message := checkLine(strings.TrimSuffix(line, "\n")); message != "" {
			return Span{number, column, 1}, message
		}
	}
	return Span{}, ""
}

func checkLine(line string) (column int, message string) {
	nul := strings.IndexByte(line, 0)
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
		return utf8.RuneCountInString(line[:good]) + 1, "the file is not UTF-8 text"
	case nul >= 0:
		return utf8.RuneCountInString(line[:nul]) + 1, "the file has a NUL character"
	case len(line) > maxLine:
		return 1, fmt.Sprintf("the line is longer than %d bytes", maxLine)
	case len(line)-len(strings.TrimLeft(line, " ")) > maxIndent:
		return 1, fmt.Sprintf("the line is indented by more than %d", maxIndent)
	case strings.Count(line, "- ")+strings.Count(line, "? ") > maxItems:
		return 1, fmt.Sprintf("the line has more than %d list items", maxItems)
	}
	return 0, ""
}

// Parse parses a text that passed Check. The message is empty if the text is well-formed and within
// the bounds.
func (b Bounds) Parse(text string) (file *ast.File, at Span, message string) {
	defer func() {
		// If the parser, which is not ours, panics on some text, that must not end a server that
		// reloads its configuration.
		if r := recover(); r != nil {
			file, at, message = nil, start, "the YAML parser gave up on this file"
		}
	}()
	tokens := lexer.Tokenize(text)
	if at, message := b.checkTokens(tokens); message != "" {
		return nil, at, message
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err == nil {
		return file, Span{}, ""
	}
	if syntax, ok := errors.AsType[*yaml.SyntaxError](err); ok && syntax.Token != nil {
		return nil, OfToken(syntax.Token), strings.ReplaceAll(syntax.Message, "\t", `\t`)
	}
	return nil, start, err.Error()
}

func (b Bounds) checkTokens(tokens token.Tokens) (Span, string) {
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
			if b.Aliases {
				return OfToken(t), "tags, directives and complex keys are not supported"
			}
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
			return OfToken(t), fmt.Sprintf("more than %d brackets are nested here", maxNesting)
		case extras > b.Extras && b.Aliases:
			return OfToken(t), fmt.Sprintf("more than %d anchors and aliases", b.Extras)
		case extras > b.Extras:
			return OfToken(t), "anchors, aliases, tags and complex keys are not supported"
		case blocks.most > maxKeys:
			return OfToken(t), fmt.Sprintf("one mapping has more than %d keys", maxKeys)
		}
	}
	return Span{}, ""
}

// blockKeys counts the keys of mappings in block style, which are identified by their column.
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

// Of returns where a node starts.
func Of(n ast.Node) Span {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return Of(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return Of(n.Key)
	}
	if n == nil || n.GetToken() == nil {
		return start
	}
	return OfToken(n.GetToken())
}

// OfToken returns where a token is.
func OfToken(t *token.Token) Span {
	if t.Position == nil {
		return start
	}
	width := utf8.RuneCountInString(strings.TrimSpace(t.Value))
	if t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType {
		width += 2
	}
	return Span{t.Position.Line, t.Position.Column, max(1, width)}
}

// Describe returns a name for a node, for messages; quote formats a text.
func Describe(n ast.Node, quote func(string) string) string {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode:
		return "the string " + quote(n.Value)
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

// Shorten cuts a text that is too long to help.
func Shorten(s string) string {
	const most = 60
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return s
}
