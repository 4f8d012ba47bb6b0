package rls

import "strings"

// pattern is a text in which each * matches any text, including none. It holds what is between
// them.
type pattern []string

// newPattern returns nil for a text without *.
func newPattern(text string) pattern {
	if !strings.Contains(text, "*") {
		return nil
	}
	return strings.Split(text, "*")
}

// matches reports whether text has the parts of p in order: the first at its start, the last at its
// end. The first occurrence of a part leaves the most text for later parts, so no other occurrence
// need be tried.
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
