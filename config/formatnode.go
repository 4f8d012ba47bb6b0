package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/drawgate/drawgate/internal/pattern"
)

// node is a value to be written into a file: a scalar, a list, or a mapping.
type node struct {
	scalar string
	list   []node
	pairs  []pair
}

type pair struct {
	key   string
	value node
}

// mapping collects the pairs of a mapping. Empty values are left out.
type mapping []pair

func (m *mapping) add(key, scalar string) {
	if scalar != "" {
		*m = append(*m, pair{key, node{scalar: scalar}})
	}
}

func (m *mapping) node(key string, n node) {
	if len(n.list) > 0 || len(n.pairs) > 0 || n.scalar != "" {
		*m = append(*m, pair{key, n})
	}
}

// String returns the mapping on one line.
func (m mapping) String() string { return node{pairs: m}.flow(0) }

// The nodes of values; empty for what says nothing.

func textNode[T ~string](text T) (n node) {
	if text != "" {
		n.scalar = quote(string(text))
	}
	return n
}

func numberNode[T ~int | ~int64](number T) (n node) {
	if number != 0 {
		n.scalar = strconv.FormatInt(int64(number), 10)
	}
	return n
}

func durationNode(d time.Duration) (n node) {
	if d != 0 {
		n.scalar = formatDuration(d)
	}
	return n
}

func instantNode(t time.Time) (n node) {
	if !t.IsZero() {
		n.scalar = quote(t.Format(time.RFC3339Nano))
	}
	return n
}

func flagNode(on bool) node { return wordNode(on, "true") }

// wordNode is a word that stands for true.
func wordNode(on bool, word string) (n node) {
	if on {
		n.scalar = word
	}
	return n
}

func texts[T ~string](list []T) (n node) {
	for _, t := range list {
		n.list = append(n.list, node{scalar: quote(string(t))})
	}
	return n
}

func mapNode[T any](list map[string]T, value func(T) node) (n node) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		n.pairs = append(n.pairs, pair{quote(name), value(list[name])})
	}
	return n
}

// flow returns a node on one line. most is how many values of a list are shown; 0 means all.
func (n node) flow(most int) string {
	switch {
	case n.list != nil:
		var parts []string
		for i, v := range n.list {
			if most > 0 && i == most {
				parts = append(parts, "… "+strconv.Itoa(len(n.list)-most)+" more")
				break
			}
			parts = append(parts, v.flow(most))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case n.pairs != nil:
		parts := make([]string, len(n.pairs))
		for i, p := range n.pairs {
			parts[i] = p.key + ": " + p.value.flow(most)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return n.scalar
}

var (
	bare     = pattern.New(`^[A-Za-z][A-Za-z0-9._/-]*$`)
	reserved = pattern.New(`(?i)^(true|false|null|yes|no|on|off|y|n)$`)
)

// quote returns s as a YAML scalar.
func quote(s string) string {
	if bare().MatchString(s) && !reserved().MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}

// quoteExpression is quote for text with quotes in it.
func quoteExpression(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) || !strings.Contains(s, `"`) {
		return quote(s)
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}
