package config

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/internal/pattern"
)

// compileRules reports the errors of package rules about the rules of this file, each at its
// position. The policies are not known yet.
func (d *decoder) compileRules() {
	_, err := rules.Compile(d.config.Rules, nil)
	for _, e := range ruleErrors(err) {
		if e.Rule < 0 || e.Rule >= len(d.config.places) {
			d.problem(span{Line: 1, Column: 1, Width: 1}, "", "%s", e.Err)
			continue
		}
		p := &d.config.places[e.Rule]
		part := fileName(e.Field)
		if p.bad[part] || part == "apply" && p.bad["apply"] {
			continue // reported already, with a better position
		}
		at, message := p.expressionPlace(part, e.Err.Error())
		d.problem(at, "", "%s: %s", lastName(part), message)
	}
}

// fileName returns the name of a rule's field in a file.
func fileName(field string) string { return strings.Replace(field, "].amounts", "].limits", 1) }

// lastName returns the last name of a part: apply[0].key → key, apply[0] → apply.
func lastName(part string) string {
	part = part[strings.LastIndexByte(part, '.')+1:]
	name, _, _ := strings.Cut(part, "[")
	return name
}

// ruleErrors returns all the mistakes that an error joins.
func ruleErrors(err error) (list []*rules.Error) {
	switch e := err.(type) { //nolint:errorlint // a joined error is split
	case nil:
	case *rules.Error:
		list = append(list, e)
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			list = append(list, ruleErrors(one)...)
		}
	default:
		list = append(list, &rules.Error{Rule: -1, Err: errors.New(strings.TrimPrefix(err.Error(), "rules: "))})
	}
	return list
}

var expressionError = pattern.New(`^line ([0-9]+), column ([0-9]+): `)

// expressionPlace returns the position of a mistake in an expression, if the message has one, and
// the message without it.
func (p *rulePlace) expressionPlace(part, message string) (span, string) {
	at := p.place(part)
	m := expressionError().FindStringSubmatch(message)
	if m == nil {
		return at, message
	}
	line, _ := strconv.Atoi(m[1])
	column, _ := strconv.Atoi(m[2])
	if inner, ok := p.inside(p.nodes[part], line, column); ok {
		at = inner
	}
	return at, message[len(m[0]):]
}

// inside converts a line and column (from 1) of a text to a position in the file. It returns false
// if that is impossible.
func (s *source) inside(n ast.Node, line, column int) (span, bool) {
	at := spanOf(n)
	switch n := n.(type) {
	case *ast.LiteralNode:
		return s.insideBlock(n, line, column)
	case *ast.StringNode:
		if line != 1 || at.Line > len(s.lines) {
			return span{}, false
		}
		text := []rune(s.lines[at.Line-1])
		i := at.Column - 1
		switch n.Token.Type {
		case token.SingleQuoteType:
			i = afterQuoted(text, i+1, column-1, '\'')
		case token.DoubleQuoteType:
			i = afterQuoted(text, i+1, column-1, '\\')
		default:
			i += column - 1
		}
		return wordAt(text, at.Line, i)
	}
	return span{}, false
}

func (s *source) insideBlock(n *ast.LiteralNode, line, column int) (span, bool) {
	if n.Start == nil || n.Start.Position == nil || !strings.HasPrefix(n.Start.Value, "|") {
		return span{}, false // a folded block changes the lines
	}
	first := n.Start.Position.Line // from 1, so it is the index of the first line of the block
	if first+line-1 >= len(s.lines) {
		return span{}, false
	}
	return wordAt([]rune(s.lines[first+line-1]), first+line, indent(s.lines[first])+column-1)
}

// afterQuoted returns the index that is n characters of the value after i. escape is the character
// that begins an escape sequence of two.
func afterQuoted(text []rune, i, n int, escape rune) int {
	for ; n > 0 && i < len(text); n-- {
		if text[i] != escape {
			i++
			continue
		}
		switch {
		case escape == '\\' && i+1 < len(text) && strings.ContainsRune("xuU", text[i+1]):
			i += map[rune]int{'x': 4, 'u': 6, 'U': 10}[text[i+1]]
		default:
			i += 2
		}
	}
	return i
}

// wordAt returns the span of the word that begins at index i of a line.
func wordAt(text []rune, line, i int) (span, bool) {
	if i < 0 || i >= len(text) {
		return span{}, false
	}
	width := 0
	for i+width < len(text) && isWord(text[i+width]) {
		width++
	}
	return span{Line: line, Column: i + 1, Width: max(1, width)}, true
}

func isWord(r rune) bool {
	return r == '_' || r < utf8.RuneSelf && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9')
}
