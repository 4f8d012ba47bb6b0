package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// field indexes the conditions on one attribute.
type field struct {
	host   bool   // a condition may begin with "*"
	free   bitset // the rules without a condition on it
	rules  int
	exact  map[string]*members
	starts map[string]*members // by the prefix of the value; "" for any value that is not empty
	ends   map[string]*members // by its suffix
	start  []int               // lengths of the prefixes
	end    []int               // lengths of the suffixes
}

func newField(rules int) *field {
	return &field{
		free: newBitset(rules), rules: rules, exact: map[string]*members{}, starts: map[string]*members{},
		ends: map[string]*members{},
	}
}

// add adds a rule's condition.
func (f *field) add(rule int, cond string) {
	switch {
	case cond == "":
		f.free.add(rule)
	case strings.HasSuffix(cond, "*"):
		put(f.starts, &f.start, cond[:len(cond)-1], rule, f.rules)
	case f.host && strings.HasPrefix(cond, "*"):
		put(f.ends, &f.end, cond[1:], rule, f.rules)
	default:
		put(f.exact, nil, cond, rule, f.rules)
	}
}

func put(in map[string]*members, lengths *[]int, key string, rule, rules int) {
	m := in[key]
	if m == nil {
		m = &members{}
		in[key] = m
	}
	m.add(rule, rules)
	if lengths != nil && !slices.Contains(*lengths, len(key)) {
		*lengths = append(*lengths, len(key))
	}
}

// holding sets b to the rules whose condition holds for a value.
func (f *field) holding(v string, b bitset) {
	copy(b, f.free)
	if v == "" {
		return
	}
	f.exact[v].into(b)
	for _, n := range f.start {
		if n <= len(v) {
			f.starts[v[:n]].into(b)
		}
	}
	for _, n := range f.end {
		if n <= len(v) {
			f.ends[v[len(v)-n:]].into(b)
		}
	}
}

// holds reports whether a single condition holds. [field] does the same for many.
func holds(cond, v string) bool {
	switch {
	case cond == "":
		return true
	case v == "":
		return false
	case strings.HasSuffix(cond, "*"):
		return strings.HasPrefix(v, cond[:len(cond)-1])
	}
	return cond == v
}

// checkValue refuses a condition that would not do what it suggests.
func checkValue(cond string) error {
	if len(cond) > MaxPattern {
		return fmt.Errorf("%d bytes, but at most %d are allowed", len(cond), MaxPattern)
	}
	if i := strings.IndexByte(cond, '*'); i >= 0 && i != len(cond)-1 {
		return errors.New(`"*" is only allowed at the end: for anything else use when`)
	}
	return nil
}

// checkHost is checkValue for a host, which may begin with "*" instead.
func checkHost(cond string) error {
	if strings.Contains(cond, ":") && !strings.HasSuffix(cond, "]") {
		return errors.New("a host must not have a port: every port matches")
	}
	if rest, ok := strings.CutPrefix(cond, "*"); ok && rest != "" {
		if strings.Contains(rest, "*") {
			return errors.New(`only one "*" is allowed, at the beginning or at the end`)
		}
		return nil
	}
	return checkValue(cond)
}

// checkRoute is checkValue for a route. A router may have put a "*" anywhere in it; at the end it
// has the same meaning as here.
func checkRoute(cond string) error {
	if len(cond) > MaxPattern {
		return fmt.Errorf("%d bytes, but at most %d are allowed", len(cond), MaxPattern)
	}
	return nil
}
