package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Problem is one mistake, or one warning.
type Problem struct {
	File    string // as given to [Parse]; "environment" for a variable
	Line    int    // from 1; 0 where there is no line
	Column  int    // in characters, from 1
	Message string
	Hint    string // what to do; may be empty
	Snippet string // the line, and a caret below the mistake; no secrets
}

// Error returns the problem with its hint and snippet, without a line end.
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	b.WriteString(": " + p.Message)
	if p.Hint != "" {
		b.WriteString("; " + p.Hint)
	}
	if p.Snippet != "" {
		b.WriteString("\n" + p.Snippet)
	}
	return b.String()
}

// Problems are all mistakes that were found.
type Problems []Problem

// Error returns one problem after the other.
func (p Problems) Error() string {
	texts := make([]string, len(p))
	for i := range p {
		texts[i] = p[i].Error()
	}
	return strings.Join(texts, "\n")
}

// Unwrap returns the problems as errors.
func (p Problems) Unwrap() []error {
	errs := make([]error, len(p))
	for i := range p {
		errs[i] = p[i]
	}
	return errs
}

// maxProblems is how many are worth reading. A hostile file could have hundreds of thousands.
const maxProblems = 100

// sorted returns the problems by position.
func (p Problems) sorted() []Problem {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return p
}

// span is a stretch of a line. Line and column count from 1, in characters.
type span struct{ line, column, width int }

// source is a file with its lines at hand.
type source struct {
	name  string
	lines []string
}

func newSource(name string, data []byte) source {
	if len(data) > MaxSize {
		return source{name: name}
	}
	lines := strings.Split(string(data), "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	return source{name, lines}
}

// problem describes what is wrong at a place. A place outside the file is moved to the nearest one inside.
func (s *source) problem(at span, message, hint string) Problem {
	at.line = max(1, min(at.line, len(s.lines)))
	p := Problem{File: s.name, Line: at.line, Column: 1, Message: message, Hint: hint}
	if len(s.lines) > 0 {
		line := s.lines[at.line-1]
		at.column = max(1, min(at.column, utf8.RuneCountInString(line)+1))
		p.Column, p.Snippet = at.column, snippet(line, at)
	}
	return p
}

// snippetWidth is the most characters that are shown of a line; a longer one is cut around the mistake.
const snippetWidth = 120

func snippet(line string, at span) string {
	line, at = redactLine(line, at)
	shown := []rune(strings.Map(func(r rune) rune {
		if r == '\t' || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, line))
	from := at.column - 1
	width := max(1, min(at.width, len(shown)-from))
	if len(shown) > snippetWidth {
		start := max(0, min(from-snippetWidth/2, len(shown)-snippetWidth))
		shown, from = shown[start:start+snippetWidth], from-start
		width = max(1, min(width, len(shown)-from))
	}
	number := fmt.Sprintf("%5d", at.line)
	return fmt.Sprintf("%s | %s\n%s | %s%s", number, strings.TrimRight(string(shown), " "),
		strings.Repeat(" ", len(number)), strings.Repeat(" ", from), strings.Repeat("^", width))
}
