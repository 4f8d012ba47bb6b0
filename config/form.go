package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/drawgate/drawgate"
)

// form is how a file writes a T: what reads and prints it, and its schema.
type form[T any] struct {
	read   func(*decoder, entry) T
	node   func(T) node
	schema schema
	bounds string // in Markdown
}

// to returns the value of a setting that is written in this form. It is not
// inlined, because hundreds of copies take seconds to compile.
//
//go:noinline
func (f form[T]) to(p *T) value {
	return value{
		read:   func(d *decoder, e entry) { *p = f.read(d, e) },
		node:   func() node { return f.node(*p) },
		schema: f.schema, bounds: f.bounds,
	}
}

// readBy returns a form with another reader. This and the next are no methods, because of methods
// each T has a copy, used or not.
func readBy[T any](f form[T], read func(*decoder, entry) T) form[T] {
	f.read = read
	return f
}

// bounded returns a form with other bounds.
func bounded[T any](f form[T], bounds string) form[T] {
	f.bounds = bounds
	return f
}

// schema is a JSON Schema. Where it has a schema it may have a [definition].
type schema map[string]any

// definition is a schema that has a name. That of a mapping has its settings.
type definition struct {
	name     string
	schema   schema
	settings func() []setting
}

// define gives a schema a name.
func define(name string, s schema, settings func() []setting) schema {
	return schema{"$ref": definition{name, s, settings}}
}

// listOf is the schema of a list of 1 to most values.
func listOf(items schema, most int) schema {
	return schema{"type": "array", "items": items, "minItems": 1, "maxItems": most}
}

// mapOf is the schema of a mapping whose keys are names.
func mapOf(values schema) schema {
	return schema{"type": "object", "minProperties": 1, "additionalProperties": values}
}

// need returns schemas of which each needs a key.
func need(keys ...string) (list []schema) {
	for _, key := range keys {
		list = append(list, schema{"required": []string{key}})
	}
	return list
}

// with returns a schema that says more.
func (s schema) with(more schema) schema {
	s = maps.Clone(s)
	maps.Copy(s, more)
	return s
}

// matching is the schema of texts that a pattern matches.
func matching(p func() *regexp.Regexp) schema { return schema{"pattern": expression(p)} }

// expression is a regular expression in a schema. It is compiled only when it is written.
type expression func() *regexp.Regexp

// MarshalText implements [encoding.TextMarshaler].
func (p expression) MarshalText() ([]byte, error) { return []byte(p().String()), nil }

// textBy is the form of texts that a func reads. more is what their schema says about them.
func textBy(read func(*decoder, entry) string, more schema) form[string] {
	return form[string]{read: read, node: textNode[string], schema: schema{"type": "string", "minLength": 1}.with(more)}
}

var (
	asText     = textBy((*decoder).anyText, nil)
	asShort    = textBy((*decoder).short, schema{"maxLength": maxPattern})
	asName     = textBy((*decoder).ruleName, schema{"maxLength": maxName})
	asPattern  = textBy((*decoder).pattern, schema{"maxLength": maxPattern, "pattern": `^[^*]*\*?$`})
	asHeader   = textBy((*decoder).header, matching(headers))
	asAddress  = textBy((*decoder).address, nil)
	asVariable = textBy((*decoder).variableName, matching(variableNames))

	asSecretFile = textBy((*decoder).secretFile, nil)
	httpURL      = schema{"pattern": "^https?://"}
)

// asFlag is true or false; asOff is the opposite, for what is switched off.
var (
	asFlag = form[bool]{read: (*decoder).boolean, node: flagNode, schema: schema{"type": "boolean"}}
	asOff  = form[bool]{
		read:   func(d *decoder, e entry) bool { return !d.boolean(e) },
		node:   func(off bool) node { return wordNode(off, "false") },
		schema: asFlag.schema,
	}
)

// either is the form of a bool that two words stand for.
func either(off, on string) form[bool] {
	return form[bool]{
		read:   func(d *decoder, e entry) bool { return d.oneOf(e, off, on) == on },
		node:   func(is bool) node { return wordNode(is, on) },
		schema: enum(off, on),
	}
}

// words is the form of a word that is one of a few.
func words[T ~string](words ...T) form[T] {
	var list []string
	for _, w := range words {
		list = append(list, string(w))
	}
	return form[T]{
		read:   func(d *decoder, e entry) T { return T(d.oneOf(e, list...)) },
		node:   textNode[T],
		schema: enum(list...),
	}
}

// numbered is the form of constants from 1 that each have a word; 0 means none.
func numbered[T ~uint8](list ...string) form[T] {
	return form[T]{
		read: func(d *decoder, e entry) T { return T(1 + slices.Index(list, d.oneOf(e, list...))) },
		node: func(t T) (n node) {
			if t != 0 {
				n.scalar = list[t-1]
			}
			return n
		},
		schema: enum(list...),
	}
}

func enum(list ...string) schema { return schema{"type": "string", "enum": list} }

// number is the form of a whole number.
func number[T ~int | ~int64](least, most int64) form[T] {
	return form[T]{
		read:   func(d *decoder, e entry) T { return T(d.integer(e, least, most)) },
		node:   numberNode[T],
		schema: schema{"type": "integer", "minimum": least, "maximum": most},
		bounds: showNumber(least) + " to " + showNumber(most),
	}
}

// showNumber returns a number as people read it: 10,000, 10¹², 1 GiB.
func showNumber(n int64) string {
	for i, unit := range []string{"TiB", "GiB", "MiB"} {
		if size := int64(1) << (40 - 10*i); n >= size && n%size == 0 {
			return fmt.Sprintf("%d %s", n/size, unit)
		}
	}
	switch n {
	case 1e9:
		return "10⁹"
	case 1e12:
		return "10¹²"
	}
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// units is the form of a number of units. Editors that follow YAML 1.2 strictly read 250_000 as a
// text.
func units(name string, least int64) form[int64] {
	f := number[int64](least, drawgate.MaxAmount)
	if least == 0 {
		f.node = func(n int64) node { return node{scalar: strconv.FormatInt(n, 10)} }
	}
	f.schema = define(name, schema{"anyOf": []schema{f.schema, grouped}}, nil)
	return f
}

var (
	grouped  = schema{"type": "string", "pattern": `^[1-9][0-9]*(_[0-9]+)+$`}
	asAmount = units("count0", 0)
	asCount  = units("count", 1)
)

// asDuration is the form of any duration.
var asDuration = form[time.Duration]{
	read: (*decoder).duration, node: durationNode,
	schema: define("duration", schema{"anyOf": []schema{
		{"type": "string", "pattern": durations().String(), "examples": []string{"90s", "1m", "12h", "7d"}},
		{"const": 0},
	}}, nil),
}

// between is the form of a duration from least to most.
func between(least, most time.Duration) form[time.Duration] {
	f := bounded(asDuration, formatDuration(least)+" to "+formatDuration(most))
	return readBy(f, func(d *decoder, e entry) time.Duration { return d.between(e, least, most) })
}

// asInstant is the form of an instant.
var asInstant = form[time.Time]{
	read: (*decoder).instant, node: instantNode,
	schema: schema{
		"type": "string", "pattern": instants().String(), "examples": []string{"2027-01-31T00:00:00Z"},
	},
}

var asShare = form[drawgate.Share]{
	read: (*decoder).share, node: shareNode,
	schema: define("share", schema{"anyOf": []schema{
		number[int64](0, drawgate.MaxAmount).schema, grouped,
		{"type": "string", "pattern": `^([0-9]|[1-9][0-9])(\.[0-9]{1,4})?%$`, "examples": []string{"20%", "12.5%"}},
	}}, nil),
}

// oneOrMore is the form of one text or a list of texts. Those that were refused are left out.
func oneOrMore[T ~string](one form[T], most int) form[[]T] {
	return manyOf(one, most, func(t T) bool { return t != "" }, texts[T])
}

// manyOf is the form of one value or a list of values. Those that are not kept are left out.
func manyOf[T any](one form[T], most int, keep func(T) bool, node func([]T) node) form[[]T] {
	return form[[]T]{
		read: func(d *decoder, e entry) (list []T) {
			d.texts(e, most, func(e entry) {
				if t := one.read(d, e); keep(t) {
					list = append(list, t)
				}
			})
			return list
		},
		node:   node,
		schema: oneOrList(one.schema, most),
	}
}

func oneOrList(one schema, most int) schema {
	return schema{"anyOf": []schema{one, listOf(one, most)}}
}

// once is a form of a list without those that it has twice.
func once[T comparable](f form[[]T]) form[[]T] {
	read := f.read
	f.read = func(d *decoder, e entry) (list []T) {
		for _, t := range read(d, e) {
			if !slices.Contains(list, t) {
				list = append(list, t)
			}
		}
		return list
	}
	return f
}
