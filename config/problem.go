package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/drawgate/drawgate/internal/yamltext"
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

// OneLine is Error without the snippet, for output in which the caret would not be below its line.
func (p Problem) OneLine() string {
	p.Snippet = ""
	return p.Error()
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

// maxProblems bounds how many problems are printed, because a hostile file could have hundreds of
// thousands.
const maxProblems = 100

// sorted returns the problems file by file, and in each by position.
func (p Problems) sorted() []Problem {
	files := map[string]int{}
	for i := range p {
		if _, ok := files[p[i].File]; !ok {
			files[p[i].File] = len(files)
		}
	}
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(files[a.File], files[b.File]), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column))
	})
	return p
}

// span is the position of a part of a line.
type span = yamltext.Span

// source is a file, split into lines.
type source struct {
	name  string
	lines []string
	hide  []span // secrets: nothing of them is ever shown
}

func newSource(name string, data []byte) *source {
	if len(data) > MaxSize {
		return &source{name: name}
	}
	lines := strings.Split(string(data), "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	return &source{name: name, lines: lines}
}

// problem makes a problem at a position. A position outside the file is moved to the nearest one
// inside.
func (s *source) problem(at span, message, hint string) Problem {
	at.Line = max(1, min(at.Line, len(s.lines)))
	p := Problem{File: s.name, Line: at.Line, Column: 1, Message: message, Hint: hint}
	if len(s.lines) > 0 {
		line := s.lines[at.Line-1]
		at.Column = max(1, min(at.Column, utf8.RuneCountInString(line)+1))
		p.Column, p.Snippet = at.Column, snippet(s.without(line, at.Line), at)
	}
	return p
}

// without returns a line in which secrets are replaced character by character, so that positions
// stay the same.
func (s *source) without(line string, number int) string {
	var shown []rune
	for _, h := range s.hide {
		if h.Line != number {
			continue
		}
		if shown == nil {
			shown = []rune(line)
		}
		for i := h.Column - 1; i < min(len(shown), h.Column-1+h.Width); i++ {
			shown[i] = 'x'
		}
	}
	if shown == nil {
		return line
	}
	return string(shown)
}

// place is a place in a file.
type place struct {
	*source

	at span
}

func (p place) String() string { return fmt.Sprintf("%s:%d:%d", p.name, p.at.Line, p.at.Column) }

// draft collects the problems of a file while it is read. They are formatted at the end, when all
// secrets of the file are known.
type draft []struct {
	at            span
	message, hint string
}

func (l *draft) add(at span, message, hint string) {
	if len(*l) < maxProblems {
		*l = append(*l, struct {
			at            span
			message, hint string
		}{at, message, hint})
	}
}

// at reports whether there is already a problem at a position.
func (l draft) at(place span) bool {
	for _, p := range l {
		if p.at.Line == place.Line && p.at.Column == place.Column {
			return true
		}
	}
	return false
}

// problems returns the list by position.
func (l draft) problems(s *source) Problems {
	var list Problems
	for _, p := range l {
		list = append(list, s.problem(p.at, p.message, p.hint))
	}
	return list.sorted()
}

// snippetWidth is the most characters that are shown of a line; a longer one is cut around the
// mistake.
const snippetWidth = 120

func snippet(line string, at span) string {
	line, at = redactLine(line, at)
	shown := []rune(strings.Map(func(r rune) rune {
		if r == '\t' || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, line))
	from := at.Column - 1
	width := max(1, min(at.Width, len(shown)-from))
	if len(shown) > snippetWidth {
		start := max(0, min(from-snippetWidth/2, len(shown)-snippetWidth))
		shown, from = shown[start:start+snippetWidth], from-start
		width = max(1, min(width, len(shown)-from))
	}
	number := fmt.Sprintf("%5d", at.Line)
	return fmt.Sprintf("%s | %s\n%s | %s%s", number, strings.TrimRight(string(shown), " "),
		strings.Repeat(" ", len(number)), strings.Repeat(" ", from), strings.Repeat("^", width))
}
