package rls

import "strings"

// pattern is a text in which each * stands for any text, also none: what is between them.
type pattern []string

// newPattern returns nil for a text without *.
func newPattern(text string) pattern {
	if !strings.Contains(text, "*") {
		return nil
	}
	return strings.Split(text, "*")
}

// matches reports whether text has the parts of p in their order: the first one at its start, the
// last one at its end. The place where a part is found first leaves the most text to those after
// it, so no other one need be tried.
func (p pattern) matches(text string) bool {
	first, last := p[0], p[len(p)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range p[1 : len(p)-1] {
		var found bool
		if _, text, found = strings.Cut(text, part); !found {
			return false
		}
	}
	return true
}
