package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Table is a table of settings, for tests.
type Table []setting

// Settings returns the settings of the file.
func Settings() Table { return (&Config{}).settings() }

// JSONSchema returns the schema of a file with these settings.
func (t Table) JSONSchema() []byte {
	g := generator{definitions: map[string]schema{}}
	root := g.object(t)
	return encode(root.with(schema{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Drawgate", "$defs": g.definitions,
	}), "  ")
}

// encode writes a schema. The keys of its mappings are sorted, but those of files stay in order.
func encode(v any, indent string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return []byte(err.Error())
	}
	return b.Bytes()
}

// generator makes a schema. It collects the definitions on the way.
type generator struct{ definitions map[string]schema }

// object returns the schema of a mapping.
func (g *generator) object(list []setting) schema {
	var keys properties
	var needed []string
	for i := range list {
		s := &list[i]
		if s.value.schema == nil {
			continue
		}
		p := g.schema(s.value.schema).with(schema{"description": s.description()})
		if usual := s.plainDefault(); usual != nil {
			p["default"] = usual
		}
		keys = append(keys, property{s.key, p})
		if s.usual == required {
			needed = append(needed, s.key)
		}
	}
	o := schema{"type": "object", "properties": keys, "additionalProperties": false}
	if needed != nil {
		o["required"] = needed
	}
	return o
}

// schema returns a schema without definitions in it.
func (g *generator) schema(s schema) schema {
	resolved := schema{}
	for key, v := range s {
		switch v := v.(type) {
		case definition:
			g.define(v)
			resolved[key] = "#/$defs/" + v.name
		case schema:
			resolved[key] = g.schema(v)
		case []schema:
			var list []schema
			for _, one := range v {
				list = append(list, g.schema(one))
			}
			resolved[key] = list
		default:
			resolved[key] = v
		}
	}
	return resolved
}

func (g *generator) define(d definition) {
	if _, done := g.definitions[d.name]; done {
		return
	}
	g.definitions[d.name] = nil // it may contain itself
	s := g.schema(d.schema)
	if d.settings != nil {
		s = g.object(d.settings()).with(s)
	}
	g.definitions[d.name] = s
}

type property struct {
	key    string
	schema schema
}

type properties []property

func (p properties) MarshalJSON() ([]byte, error) {
	var parts []string
	for _, one := range p {
		parts = append(parts, strconv.Quote(one.key)+":"+string(encode(one.schema, "")))
	}
	return []byte("{" + strings.Join(parts, ",") + "}"), nil
}

// plainDefault returns the default as the schema has it; nil if only words can say it.
func (s *setting) plainDefault() any {
	code, begins := strings.CutPrefix(s.usual, "`")
	code, ends := strings.CutSuffix(code, "`")
	switch whole := begins && ends && !strings.Contains(code, "`"); s.value.schema["type"] {
	case "boolean":
		if whole {
			return code == "true"
		}
	case "string":
		if whole {
			return code
		}
	case "integer", "number":
		number, unit, _ := strings.Cut(strings.ReplaceAll(s.usual, ",", ""), " ")
		n, err := strconv.Atoi(number)
		size, known := map[string]int{"": 1, "MiB": 1 << 20, "GiB": 1 << 30}[unit]
		if err == nil && known {
			return n * size
		}
	}
	return nil
}

var (
	asides = regexp.MustCompile(` ?\(\[(below|above|more)\]\([^)]*\)\)|[.;] \[More\]\([^)]*\)`)
	links  = regexp.MustCompile(`\[([^\]]+)\]\([^)]*\)`)
)

// plainText returns Markdown without marks.
func plainText(s string) string {
	return strings.ReplaceAll(links.ReplaceAllString(asides.ReplaceAllString(s, ""), "$1"), "`", "")
}

// description returns what the schema says about the setting.
func (s *setting) description() string {
	text := plainText(s.about)
	if first, size := utf8.DecodeRuneInString(text); !strings.HasPrefix(s.about, "`") {
		text = string(unicode.ToUpper(first)) + text[size:]
	}
	if t := s.value.schema["type"]; s.value.bounds != "" && t != "integer" && t != "number" {
		text += ". Bounds: " + plainText(s.value.bounds)
	}
	if s.usual != "" && s.usual != required && s.plainDefault() == nil {
		text += ". Default: " + plainText(s.usual)
	}
	return text + "."
}

var generated = regexp.MustCompile(`(?s)<!-- generated: (\w+), ([^\n]*) -->\n(.*?)<!-- end -->\n`)

// Reference returns the page with new tables between its marks. Each mark names a mapping by its
// definition in the schema, and how the table is headed. Mappings without a mark are in the table
// of the one around them.
func (t Table) Reference(page string) (string, error) {
	tables := map[string]Table{"file": t, "variables": {}}
	t.collect(tables)
	marked := map[string]bool{}
	for _, m := range generated.FindAllStringSubmatch(page, -1) {
		marked[m[1]] = true
		if tables[m[1]] == nil {
			return "", fmt.Errorf("the page has a table of %s, which no setting is", m[1])
		}
	}
	if len(marked) > 1 && (!marked["file"] || !marked["variables"]) {
		return "", errors.New("the page has no table of the file's keys, or none of the variables")
	}
	return generated.ReplaceAllStringFunc(page, func(old string) string {
		m := generated.FindStringSubmatch(old)
		rows := tables[m[1]].rows("", marked)
		if m[1] == "variables" {
			rows = variableRows()
		}
		const end = "<!-- end -->\n"
		return strings.TrimSuffix(old, m[3]+end) + table(m[2], rows) + end
	}), nil
}

// nested returns the mappings in a schema, with what their keys have in front.
func nested(s schema, prefix string, f func(d definition, prefix string)) {
	for _, key := range slices.Sorted(maps.Keys(s)) {
		within := prefix + map[string]string{"items": "[]", "additionalProperties": ".NAME"}[key]
		switch v := s[key].(type) {
		case definition:
			if v.settings != nil {
				f(v, prefix)
			}
		case schema:
			nested(v, within, f)
		case []schema:
			for _, one := range v {
				nested(one, prefix, f)
			}
		}
	}
}

func (t Table) collect(tables map[string]Table) {
	for _, s := range t {
		nested(s.value.schema, "", func(d definition, _ string) {
			if _, done := tables[d.name]; !done {
				tables[d.name] = d.settings()
				tables[d.name].collect(tables)
			}
		})
	}
}

// rows returns key, meaning, bounds and default of each setting.
func (t Table) rows(prefix string, marked map[string]bool) (rows [][4]string) {
	for i := range t {
		s := &t[i]
		if s.value.schema == nil {
			continue
		}
		rows = append(rows, [4]string{"`" + prefix + s.key + "`", s.about, s.words(), s.usual})
		nested(s.value.schema, prefix+s.key, func(d definition, within string) {
			if !marked[d.name] {
				rows = append(rows, Table(d.settings()).rows(within+".", marked)...)
			}
		})
	}
	return rows
}

// variableRows returns the rows of the environment variables.
func variableRows() (rows [][4]string) {
	for _, v := range (&environment{}).variables(&Config{}) {
		row := [4]string{"`" + v.name + "`", cmp.Or(v.about, "`"+v.setting+"`"), "", v.usual}
		if v.name == "" {
			row = [4]string{"**" + v.usual + "**", cmp.Or(v.about, " "), "", " "}
		}
		rows = append(rows, row)
	}
	return rows
}

// words returns the bounds in words: for a choice, those of its words that its meaning does not
// explain.
func (s *setting) words() string {
	list, _ := s.value.schema["enum"].([]string)
	explained := true
	for _, w := range list {
		explained = explained && strings.Contains(s.about, "`"+w+"`")
	}
	if explained {
		return s.value.bounds
	}
	return "`" + strings.Join(list, "`, `") + "`"
}

// table returns a table in Markdown, without columns in which nothing is.
func table(heading string, rows [][4]string) string {
	var b strings.Builder
	for _, row := range slices.Concat([][4]string{{heading, "meaning", "bounds", "default"}, {}}, rows) {
		for column, text := range row {
			switch used := func(r [4]string) bool { return r[column] != "" }; {
			case !slices.ContainsFunc(rows, used):
			case row == [4]string{}:
				b.WriteString("|---")
			default:
				b.WriteString("| " + strings.ReplaceAll(cmp.Or(text, "–"), "|", `\|`) + " ")
			}
		}
		b.WriteString("|\n")
	}
	return b.String()
}
