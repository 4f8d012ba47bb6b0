package config

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"unicode"
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

func (m *mapping) text(key, value string) {
	if value != "" {
		m.add(key, quote(value))
	}
}

func (m *mapping) number(key string, n int64) {
	if n != 0 {
		m.add(key, strconv.FormatInt(n, 10))
	}
}

func (m *mapping) flag(key string, on bool) {
	if on {
		m.add(key, "true")
	}
}

func (m *mapping) node(key string, n node) {
	if len(n.list) > 0 || len(n.pairs) > 0 || n.scalar != "" {
		*m = append(*m, pair{key, n})
	}
}

// String returns the mapping on one line.
func (m mapping) String() string { return node{pairs: m}.flow(0) }

func texts[T ~string](list []T) (n node) {
	for _, t := range list {
		n.list = append(n.list, node{scalar: quote(string(t))})
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

// longest is the most bytes of a list or mapping that is written on one line.
const longest = 140

// write writes what follows "key:" or "-": a short value on the same line, a long one on lines of
// its own.
func (n node) write(b *bytes.Buffer, indent int) {
	if flow := n.flow(0); n.list == nil && n.pairs == nil || len(flow) <= longest {
		b.WriteString(" " + flow + "\n")
		return
	}
	b.WriteString("\n")
	n.writeBlock(b, indent)
}

// writeItem writes what follows "-". The first key of a long mapping is on the same line.
func (n node) writeItem(b *bytes.Buffer, indent int) {
	if len(n.pairs) == 0 || len(n.flow(0)) <= longest {
		n.write(b, indent)
		return
	}
	b.WriteString(" " + n.pairs[0].key + ":")
	n.pairs[0].value.write(b, indent+2)
	node{pairs: n.pairs[1:]}.writeBlock(b, indent)
}

// writeBlock writes a list or a mapping on lines of its own.
func (n node) writeBlock(b *bytes.Buffer, indent int) {
	space := strings.Repeat(" ", indent)
	for _, v := range n.list {
		b.WriteString(space + "-")
		v.writeItem(b, indent+2)
	}
	for _, p := range n.pairs {
		b.WriteString(space + p.key + ":")
		p.value.write(b, indent+2)
	}
}

var (
	bare     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._/-]*$`)
	reserved = regexp.MustCompile(`(?i)^(true|false|null|yes|no|on|off|y|n)$`)
)

// quote returns s as a YAML scalar.
func quote(s string) string {
	if bare.MatchString(s) && !reserved.MatchString(s) {
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
