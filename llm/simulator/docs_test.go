package simulator_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/llm/simulator"
)

var fenced = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

var update = flag.Bool("update", false, "write the table of presets into docs/simulator.md")

// presets returns the page's table of presets.
func presets(t *testing.T) string {
	t.Helper()
	var table strings.Builder
	table.WriteString("| preset | quota | models | limits |\n|---|---|---|---|\n")
	for _, name := range simulator.Presets() {
		if name == "free" || name == "paid" {
			continue // the page says what they consist of
		}
		quotas, err := simulator.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range quotas {
			q := &quotas[i]
			var limits []string
			for _, l := range q.Limits {
				limits = append(limits, fmt.Sprintf("`%s` %d %s", l.Name, l.Amount, l.Dimension))
			}
			models, all := strings.Join(q.Models, "`, `"), strings.Join(limits, ", ")
			fmt.Fprintf(&table, "| `%s` | `%s` | `%s` | %s |\n", name, q.Name, models, all)
		}
	}
	return table.String()
}

// TestPresetTable: the table on the page is that of the code. With -update it is written.
func TestPresetTable(t *testing.T) {
	const (
		path  = "../../docs/simulator.md"
		begin = "<!-- begin presets: go test ./llm/simulator -run PresetTable -update -->\n"
		end   = "<!-- end presets -->\n"
	)
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("docs/simulator.md has no lines %q and %q", begin, end)
	}
	switch want := before + begin + presets(t) + end + after; {
	case want == string(page):
	case *update:
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("docs/simulator.md shows other presets than the code has: %s", strings.TrimSpace(begin))
	}
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
			if code := "\t" + strings.TrimSuffix(strings.ReplaceAll(text, "\n", "\n\t"),
				"\t"); !strings.Contains(string(example), code) {
				t.Errorf("example_test.go does not have\n%s", code)
			}
		}
	}
	if found["json"] != 2 || found["go"] != 1 {
		t.Errorf("the page has %v", found)
	}
	for _, k := range simulator.FaultKinds() {
		if !strings.Contains(string(page), "`"+string(k)+"`") {
			t.Errorf("the page does not name the fault %s", k)
		}
	}
}
