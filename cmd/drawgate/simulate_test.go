package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/llm/simulator"
)

// TestSimulatorPage: the commands of docs/simulator.md, and those of the help, are accepted.
func TestSimulatorPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/simulator.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(page) + (&app{}).simulateCmd().Example
	lines := regexp.MustCompile(`(?m)^(?:\$| ) drawgate simulate (.*)$`).FindAllStringSubmatch(text, -1)
	if len(lines) < 6 {
		t.Fatalf("only %d commands were found", len(lines))
	}
	for _, m := range lines {
		cmd := (&app{}).simulateCmd()
		var f simulateFlags
		if err := cmd.ParseFlags(strings.Fields(m[1])); err != nil {
			t.Errorf("%s: %v", m[1], err)
			continue
		}
		for name, v := range map[string]*string{
			"preset": &f.preset, "windows": &f.windows, "zone": &f.zone,
			"faults": &f.faults,
		} {
			*v = cmd.Flags().Lookup(name).Value.String()
		}
		if f.limits, err = cmd.Flags().GetStringArray("limit"); err != nil {
			t.Fatal(err)
		}
		o, err := f.options()
		if err != nil {
			t.Errorf("%s: %v", m[1], err)
			continue
		}
		if _, err := simulator.New(o); err != nil {
			t.Errorf("%s: %v", m[1], err)
		}
	}
}
