package config_test

import (
	"strings"
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
)

const startPolicies = `policies:
  one: {start: cold, limits: [{name: l, rolling: 1m, amount: 10}]}
  other: {limits: [{name: l, rolling: 1m, amount: 10}]}
`

// A policy says how a process starts during an outage, or the file does for all, or a variable
// whatever they say. Full needs a file that one process uses.
//
// req: A10, D10
func TestStart(t *testing.T) {
	t.Parallel()
	const closed, cold, full = drawgate.StartClosed, drawgate.StartCold, drawgate.StartFull
	for _, c := range []struct {
		top, environ string
		one, other   drawgate.Start
		warns        bool
	}{
		{"store: sqlite:/a.db\n", "", cold, closed, false},
		{"store: sqlite:/a.db\nstart: full\n", "", cold, full, true},
		{"store: sqlite:/a.db\nstart_full: true\n", "", cold, full, true},
		{"store: sqlite:/a.db\nstart_full: true\nstart: full\n", "", cold, full, true},
		{"store: sqlite:/a.db\nstart_full: false\n", "", cold, closed, false},
		{"store: sqlite:/a.db\n", "DRAWGATE_START=closed", closed, closed, false},
		{"store: sqlite:/a.db\n", "DRAWGATE_START=Full", full, full, false},
		{"store: sqlite:/a.db\ninstances: 2\nstart: full\n", "", cold, cold, true},
		{"store: redis://h/0\ninstances: 1\nstart: full\n", "", cold, cold, true},
		{"store: redis://h/0\n", "DRAWGATE_START=full", cold, cold, true},
		{"store: redis://h/0\nstart: cold\n", "", cold, cold, false},
	} {
		got, err := resolveText(t, c.top+startPolicies, c.environ)
		if err != nil {
			t.Errorf("%s%s: %v", c.top, c.environ, err)
			continue
		}
		for i, want := range []drawgate.Start{c.one, c.other} {
			if start := got.StartOf(&got.Policies[i]); start != want {
				t.Errorf("%s%s: policy %s starts %v, want %v", c.top, c.environ, got.Policies[i].Name, start, want)
			}
		}
		warns := false
		for _, w := range got.Warnings {
			warns = warns || strings.Contains(w.Message, "start full")
		}
		if warns != c.warns {
			t.Errorf("%s%s: warnings %v, want one about starting full: %v", c.top, c.environ, got.Warnings, c.warns)
		}
	}
}

// A mistyped start is a clear error.
//
// req: D4
func TestMistypedStart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, environ, want string }{
		{"start: colld\n" + startPolicies, "", `start "colld" is not one of closed, cold, full`},
		{"start: true\n" + startPolicies, "", "start must be one of closed, cold, full"},
		{"start: cold\nstart_full: true\n" + startPolicies, "", "leave start_full out"},
		{strings.Replace(startPolicies, "cold", "warm", 1), "", `start "warm" is not one of closed, cold, full`},
		{startPolicies, "DRAWGATE_START=warm", `DRAWGATE_START="warm" is none of closed, cold, full`},
	} {
		if _, err := resolveText(t, c.text, c.environ); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s%s: got %v, want %q", c.text, c.environ, err, c.want)
		}
	}
}

// The presets of documents A and D choose how they start.
//
// req: A10, D10
func TestPresetsStart(t *testing.T) {
	t.Parallel()
	c, err := config.FromEnv([]string{"RATE_LIMIT_PER_HOUR=50", "XDG_STATE_HOME=/state"})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.StartOf(&c.Policies[0]); got != drawgate.StartFull {
		t.Errorf("multi-tier from variables starts %v, want full", got)
	}
	for name, want := range map[string]drawgate.Start{
		config.MultiTier:               drawgate.StartFull,
		config.GeminiTranslation:       drawgate.StartCold,
		config.GeminiTranslationBucket: drawgate.StartCold,
	} {
		text, err := config.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		c, err := resolveText(t, string(text), "")
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Policies[0].Start; got != want {
			t.Errorf("preset %s starts %v, want %v", name, got, want)
		}
	}
}

// resolveText resolves a file with one variable.
func resolveText(t *testing.T, text, environ string) (*config.Config, error) {
	t.Helper()
	return config.Resolve([]string{environ, "XDG_STATE_HOME=/state"}, config.Flags{Config: writeFile(t, text)})
}
