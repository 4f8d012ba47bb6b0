package simulator_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/llm/simulator"
)

var fenced = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// rows returns the rows of the page's table about a preset.
func rows(t *testing.T, preset string) (list []string) {
	t.Helper()
	quotas, err := simulator.Preset(preset)
	if err != nil {
		t.Fatal(err)
	}
	for i := range quotas {
		q := &quotas[i]
		var limits []string
		for _, l := range q.Limits {
			limits = append(limits, fmt.Sprintf("`%s` %d %s", l.Name, l.Amount, l.Dimension))
		}
		list = append(list, fmt.Sprintf("| `%s` | `%s` | `%s` | %s |\n", preset, q.Name, strings.Join(q.Models, "`, `"), strings.Join(limits, ", ")))
	}
	return list
}

// TestPage: the examples of docs/simulator.md work.
func TestPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/simulator.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, m := range fenced.FindAllStringSubmatch(string(page), -1) {
		language, text := m[1], m[2]
		found[language]++
		switch {
		case language == "json" && strings.HasPrefix(text, "["):
			if _, err := simulator.ParseFaults([]byte(text)); err != nil {
				t.Errorf("%v in\n%s", err, text)
			}
		case language == "json":
			c, err := simulator.ParseConfig([]byte(text))
			if err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
			o, err := c.Options()
			if err != nil {
				t.Fatal(err)
			}
			newServer(t, o)
		case language == "go":
			if code := "\t" + strings.TrimSuffix(strings.ReplaceAll(text, "\n", "\n\t"), "\t"); !strings.Contains(string(example), code) {
				t.Errorf("example_test.go does not have\n%s", code)
			}
		}
	}
	if found["json"] != 2 || found["go"] != 1 {
		t.Errorf("the page has %v", found)
	}
	for _, name := range simulator.Presets() {
		for _, row := range rows(t, name) {
			if name != "free" && name != "paid" && !strings.Contains(string(page), row) {
				t.Errorf("the page has no row\n%s", row)
			}
		}
	}
	for _, k := range simulator.FaultKinds() {
		if !strings.Contains(string(page), "`"+string(k)+"`") {
			t.Errorf("the page does not name the fault %s", k)
		}
	}
}
