package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// mutant is one change of a file that a test must notice, or a reason why none can.
type mutant struct {
	file     string   // below the repository's root
	old, new []string // whole lines: old is in the file exactly once
	at       int      // the first line of old that changes
	places   []string // packages or, for Python, files of tests
	tests    []string // those that notice it; all tests of the places if empty
	same     string   // why the change changes nothing
}

// parse reads a list of mutants. Empty lines separate them, and lines that begin with # are
// comments.
//
//	internal/record/codec.go         the file
//	 	x := 1                       after one space, a line that says which place is meant
//	-	if n > 0 {                   a line that changes or goes, as in a patch
//	+	if n >= 0 {                  what it becomes
//	test ./internal/record TestName  which tests must fail: any of the package's if none is named
//	same Why nothing changes.        instead of test
func parse(text string) ([]mutant, error) {
	var list []mutant
	for i, block := range strings.Split(text, "\n\n") {
		var m mutant
		for line := range strings.Lines(block) {
			if err := m.read(strings.TrimRight(line, "\n")); err != nil {
				return nil, fmt.Errorf("block %d (%s): %w", i+1, m.file, err)
			}
		}
		if m.file == "" {
			continue // a comment
		}
		if slices.Equal(m.old, m.new) || (len(m.places) == 0) == (m.same == "") {
			return nil, fmt.Errorf("block %d (%s): it needs a change, and either test or same", i+1, m.file)
		}
		list = append(list, m)
	}
	return list, nil
}

func (m *mutant) read(line string) error {
	kind, rest, _ := strings.Cut(line, " ")
	switch {
	case line == "" || line[0] == '#':
	case m.file == "":
		m.file = line
	case kind == "test":
		for _, word := range strings.Fields(rest) {
			if strings.Contains(word, ".") {
				m.places = append(m.places, word)
			} else {
				m.tests = append(m.tests, word)
			}
		}
	case kind == "same":
		m.same = rest
	case line[0] == ' ':
		if len(m.new) == len(m.old) && slices.Equal(m.old, m.new) {
			m.at++
		}
		m.old, m.new = append(m.old, line[1:]), append(m.new, line[1:])
	case line[0] == '-':
		m.old = append(m.old, line[1:])
	case line[0] == '+':
		m.new = append(m.new, line[1:])
	default:
		return fmt.Errorf("unknown line %q", line)
	}
	return nil
}

var errPlace = errors.New("the lines are not there exactly once")

// apply returns the changed text of the mutant's file, and the number of the first line that
// changes.
func (m *mutant) apply(text string) (changed string, line int, err error) {
	lines, found := strings.Split(text, "\n"), -1
	for i := range len(lines) - len(m.old) + 1 {
		if slices.Equal(lines[i:i+len(m.old)], m.old) {
			if found >= 0 {
				return "", 0, errPlace
			}
			found = i
		}
	}
	if found < 0 {
		return "", 0, errPlace
	}
	return strings.Join(slices.Replace(lines, found, found+len(m.old), m.new...), "\n"), found + m.at + 1, nil
}

var word = regexp.MustCompile(`\w+|[<>=!~&|]+|.`)

// String shows the change within its line.
func (m *mutant) String() string {
	old, now := strings.TrimSpace(m.old[m.at]), ""
	if m.at < len(m.new) {
		now = strings.TrimSpace(m.new[m.at])
	}
	if now == "" || len(m.new) < len(m.old) {
		return "without " + old
	}
	a, b := word.FindAllString(old, -1), word.FindAllString(now, -1)
	from, to := 0, 0
	for from < min(len(a), len(b)) && a[from] == b[from] {
		from++
	}
	for to < min(len(a), len(b))-from && a[len(a)-1-to] == b[len(b)-1-to] {
		to++
	}
	join := func(words []string) string { return strings.Join(words, "") }
	return join(a[:from]) + "[" + join(a[from:len(a)-to]) + " → " + join(b[from:len(b)-to]) + "]" + join(a[len(a)-to:])
}
