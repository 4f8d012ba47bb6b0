package config

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// A setting that is added to a table is read with its position, checked, suggested, printed, and in
// the schema and the reference. Nothing else needs an edit.
func TestANewSettingNeedsOnlyItsTable(t *testing.T) {
	t.Parallel()
	type extended struct {
		Server

		Grace time.Duration
	}
	s := &section[extended]{
		name: "server", what: "server", noted: "server",
		settings: func(s *extended) []setting {
			grace := between(time.Second, time.Minute).to(&s.Grace)
			return append(s.settings(), setting{"grace", grace, "5s", "how long `drawgate` waits"})
		},
	}
	read := func(text string) (v extended, d *decoder) {
		d = &decoder{source: newSource("f.yaml", []byte(text)), config: newConfig()}
		root, ok := d.parse([]byte(text))
		if !ok {
			t.Fatal(d.problems)
		}
		s.read(d, entry{"server", spanOf(root), root}, &v)
		return v, d
	}
	v, d := read("admin: 'off'\ngrace: 20s\n")
	from := d.config.origins["server.grace"]
	if v.Grace != 20*time.Second || v.Admin != ListenOff || from != "f.yaml:2:8" {
		t.Errorf("got %v, %q from %s", v.Grace, v.Admin, from)
	}
	if text := settingsNode(s.settings(&v)).flow(0); text != `{admin: "off", grace: 20s}` {
		t.Errorf("printed as %s", text)
	}
	for text, want := range map[string]string{
		"grace: 2m":  "f.yaml:1:8: grace must be from 1s to 1m",
		"grave: 20s": `f.yaml:1:1: unknown key "grave" in server; did you mean "grace"?`,
	} {
		_, d := read(text)
		if got := d.problems.problems(d.source); len(got) != 1 || got[0].OneLine() != want {
			t.Errorf("%s: got %v, want %s", text, got, want)
		}
	}
	table := Table{{"server", s.to(&v), "", "about it"}}
	type property struct {
		Ref         string `json:"$ref"`
		Description string
	}
	var schema struct {
		Defs map[string]struct{ Properties map[string]property } `json:"$defs"`
	}
	if err := json.Unmarshal(table.JSONSchema(), &schema); err != nil {
		t.Fatal(err)
	}
	want := property{"#/$defs/duration", "How long drawgate waits. Bounds: 1s to 1m. Default: 5s."}
	if got := schema.Defs["server"].Properties["grace"]; got != want {
		t.Errorf("in the schema: got %+v, want %+v", got, want)
	}
	for _, mark := range []string{"server", "file"} { // a table of its own, and in the one around it
		page, err := table.Reference("<!-- generated: " + mark + ", key -->\n<!-- end -->\n")
		if err != nil || !strings.Contains(page, "grace` | how long `drawgate` waits | 1s to 1m | 5s |\n") {
			t.Errorf("got %s, %v", page, err)
		}
	}
}

// Every setting is described, once.
func TestTablesAreComplete(t *testing.T) {
	t.Parallel()
	tables := map[string]Table{"file": Settings()}
	tables["file"].collect(tables)
	if len(tables) < 30 {
		t.Errorf("%d tables", len(tables))
	}
	for name, list := range tables {
		var keys []string
		for _, s := range list {
			if s.value.schema != nil && (s.about == "" || strings.HasSuffix(s.about, ".")) {
				t.Errorf("%s of %s: is described by %q, want a text without a period", s.key, name, s.about)
			}
			if slices.Contains(keys, s.key) {
				t.Errorf("%s has %s twice", name, s.key)
			}
			keys = append(keys, s.key)
		}
	}
}

// Every variable is described once, and names a setting that there is if it sets one.
func TestVariablesAreComplete(t *testing.T) {
	t.Parallel()
	tables := map[string]Table{"file": Settings()}
	tables["file"].collect(tables)
	has := func(table, key string) bool {
		return slices.ContainsFunc(tables[table], func(s setting) bool { return s.key == key })
	}
	var names []string
	for _, v := range (&environment{}).variables(&Config{}) {
		if v.name == "" {
			continue
		}
		section, key, nested := strings.Cut(v.setting, ".")
		unknown := v.set != nil && !has("file", section) || nested && !has(section, key)
		if (v.set != nil) != (v.setting != "") || unknown {
			t.Errorf("%s sets %q", v.name, v.setting)
		}
		if v.about == "" && v.setting == "" || slices.Contains(names, v.name) {
			t.Errorf("%s is not described, or there twice", v.name)
		}
		names = append(names, v.name)
	}
	if len(names) < 40 || !slices.Equal(names, Variables()) {
		t.Errorf("%d variables", len(names))
	}
}
