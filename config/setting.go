package config

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// setting is a key of a mapping. From the tables of settings come the decoding of a file, what
// [Config.Explain] prints, schema.json, and the tables of docs/configuration.md: a new setting
// needs a line in its table and no other edit.
type setting struct {
	key   string
	value value
	usual string // the default, in Markdown: [required] if there is none, "" if there is nothing to say
	about string // in Markdown, with no period at the end; the schema has it without the marks
}

const (
	required = "required"
	no, yes  = "`false`", "`true`"
	none     = "none"

	oneOfTwo   = "exactly one of the two"
	oneOfThree = "exactly one of the three"
	oneOfFour  = "exactly one of the four"
)

// value is the value of a setting.
type value struct {
	read   func(*decoder, entry)
	node   func() node // empty if it is not set
	schema schema      // nil for a key that is only read: a retired word, or one that explains what to write instead
	bounds string      // in Markdown
}

// by returns the value with another reader.
func (v value) by(read func(*decoder, entry)) value {
	v.read = read
	return v
}

// section is a mapping with known keys, as which a file has a T.
type section[T any] struct {
	name     string // of its definition in the schema
	what     string // its name in messages
	noted    string // the name under which the positions of its settings are recorded, if anybody asks for them
	settings func(*T) []setting
	more     schema // what the schema says beyond the keys

	// lacks is what is wrong if a key that is required is missing, and hint what to write.
	lacks, hint string
	// check, if there is one, looks at the mapping as a whole. wrong means that there is a mistake
	// in one of the values.
	check func(d *decoder, e entry, to *T, seen map[string]bool, wrong bool)
}

func (s *section[T]) read(d *decoder, e entry, to *T) {
	before, list := len(d.problems), s.settings(to)
	seen := d.object(e.value, s.what, list, d.noted(s.noted))
	wrong := len(d.problems) > before
	if s.check != nil {
		s.check(d, e, to, seen, wrong)
	}
	missing := slices.IndexFunc(list, func(k setting) bool { return k.usual == required && !seen[k.key] })
	if missing >= 0 && !wrong && s.lacks != "" {
		d.missing(spanOf(e.value), s.hint, "%s", strings.ReplaceAll(s.lacks, "KEY", list[missing].key))
	}
}

func (s *section[T]) node(t T) node { return settingsNode(s.settings(&t)) }

// to returns the value of a setting that is such a mapping. It is not inlined: see
// [form.to].
//
//go:noinline
func (s *section[T]) to(p *T) value {
	return value{
		read:   func(d *decoder, e entry) { s.read(d, e, p) },
		node:   func() node { return s.node(*p) },
		schema: s.schema(),
	}
}

func (s *section[T]) schema() schema {
	return define(s.name, s.more, func() []setting { return s.settings(new(T)) })
}

// many is the form of a list of such mappings.
func many[T any](s *section[T], most int) form[[]T] {
	return manyBy(s, most, func(d *decoder, e entry, _ int) (t T) {
		s.read(d, e, &t)
		return t
	})
}

// manyBy is many with a func that reads the value at an index.
func manyBy[T any](s *section[T], most int, read func(d *decoder, e entry, i int) T) form[[]T] {
	return form[[]T]{
		read: func(d *decoder, e entry) (list []T) {
			items, _ := d.list(e, most)
			for i, n := range items {
				list = append(list, read(d, entry{e.key, spanOf(n), n}, i))
			}
			return list
		},
		node: func(list []T) (n node) {
			for i := range list {
				n.list = append(n.list, s.node(list[i]))
			}
			return n
		},
		schema: listOf(s.schema(), most),
	}
}

// object reads a mapping with known keys. It returns the keys that are present or were probably
// meant. around, if it is not nil, reads the value of each.
func (d *decoder) object(n ast.Node, what string, list []setting, around func(*setting, entry)) (seen map[string]bool) {
	seen = map[string]bool{}
	entries, _ := d.entries(n, what)
	for _, e := range entries {
		var known []string
		found := false
		for i := range list {
			s := &list[i]
			if s.value.schema != nil {
				known = append(known, s.key)
			}
			if s.key != e.key {
				continue
			}
			found, seen[s.key] = true, true
			if around != nil {
				around(s, e)
			} else {
				s.value.read(d, e)
			}
		}
		if !found {
			d.unknown(e, what, known, entries, seen)
		}
	}
	return seen
}

// noted returns a func that reads a setting and records the position of its value. section is what
// the setting is a part of: "" for the file. It is nil if nobody asks for the positions.
func (d *decoder) noted(section string) func(*setting, entry) {
	if section == "" {
		return nil
	}
	return func(s *setting, e entry) {
		d.origin(section+"."+s.key, spanOf(e.value))
		s.value.read(d, e) // which may record a better one
	}
}

// settingsNode returns what is set in a mapping.
// retired makes v one that is read as before, and not written: in no list, schema or document.
func (v value) retired() value { return value{read: v.read, node: func() node { return node{} }} }

func settingsNode(list []setting) node { return node{pairs: set(list)} }

func set(list []setting) (b mapping) {
	for i := range list {
		b.node(list[i].key, list[i].value.node())
	}
	return b
}

// general returns the settings at the top that are not of store or policies.
func (c *Config) general() mapping {
	return slices.DeleteFunc(set(c.top()), func(p pair) bool { return p.key == "store" || p.key == "prefix" })
}

// sections returns the settings that have their own mappings, without what may be a secret.
func (c *Config) sections() mapping {
	return slices.DeleteFunc(set(c.parts()), func(p pair) bool { return p.key == "policies" || p.key == "rules" })
}
