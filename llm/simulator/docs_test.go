package simulator_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/llm/simulator"
)

var fenced = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

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
	for _, k := range simulator.FaultKinds() {
		if !strings.Contains(string(page), "`"+string(k)+"`") {
			t.Errorf("the page does not name the fault %s", k)
		}
	}
}
