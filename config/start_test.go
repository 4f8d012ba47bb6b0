package config_test

import (
	"fmt"
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
		warned := 0
		for _, w := range got.Warnings {
			if strings.Contains(w.Message, "start full") {
				warned++
			}
		}
		if warned > 1 || (warned > 0) != c.warns {
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
		{strings.Replace(startPolicies, "start: cold", "start_full: true", 1), "", "no policy has it; write start: full"},
		{strings.Replace(startPolicies, "cold", "warm", 1), "", `start "warm" is not one of closed, cold, full`},
		{startPolicies, "DRAWGATE_START=warm", `DRAWGATE_START="warm" is none of closed, cold, full`},
	} {
		if _, err := resolveText(t, c.text, c.environ); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s%s: got %v, want %q", c.text, c.environ, err, c.want)
		}
	}
}

// A start that changes nothing, and parts whose size nobody has chosen, are warned about.
//
// req: A10, D4
func TestStartWithoutEffect(t *testing.T) {
	t.Parallel()
	const nothing, quarter = "start has no effect", "about a quarter of each limit"
	for _, c := range []struct{ top, policy, want string }{
		{"store: redis://h/0", "{start: cold, fallback: closed, LIMITS}", nothing + ` on policy "p"`},
		{"store: redis://h/0", "{start: cold, fallback: open, LIMITS}", nothing + ` on policy "p"`},
		{"store: redis://h/0\nstart: cold", "{fallback: closed, LIMITS}", ""},
		{`store: "memory:"`, "{start: cold, LIMITS}", nothing + " on the store memory:"},
		{"store: \"memory:\"\nstart: full", "{LIMITS}", nothing + " on the store memory:"},
		{`store: "memory:"`, "{start: closed, LIMITS}", ""},
		{"store: redis://h/0", "{start: cold, LIMITS}", quarter},
		{"store: redis://h/0\nstart: cold", "{LIMITS}", quarter},
		{"store: dynamodb://quotas\nstart: cold\ninstances: auto", "{LIMITS}", quarter},
		{"store: redis://h/0\nstart: cold\ninstances: {auto: true, at_least: 3}", "{LIMITS}", ""},
		{"store: redis://h/0\nstart: cold\ninstances: 3", "{LIMITS}", ""},
		{"store: sqlite:/a.db\nstart: cold", "{LIMITS}", ""},
		{"store: redis://h/0", "{LIMITS}", ""},
		{"store: dynamodb://quotas\nstore_timeout: 40ms", "{LIMITS}", "a take on DynamoDB may need 1s"},
		{"store: dynamodb://quotas\nstore_timeout: 1s", "{LIMITS}", ""},
	} {
		text := c.top + "\npolicies: {p: " + strings.Replace(c.policy, "LIMITS",
			"limits: [{name: l, rolling: 1m, amount: 10}]", 1) + "}\n"
		got, err := resolveText(t, text, "")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		said := ""
		for _, w := range got.Warnings {
			for _, part := range []string{nothing, quarter, "may need"} {
				if strings.Contains(w.Message, part) {
					said += w.Message
				}
			}
		}
		if (said == "") != (c.want == "") || !strings.Contains(said, c.want) {
			t.Errorf("%s: warned %q, want %q", text, said, c.want)
		}
	}
}

// Keys about outages in the wrong place, and variables that do not exist, say where they belong.
//
// req: D4
func TestOutageKeysElsewhere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"fallback: share\n" + startPolicies, `unknown key "fallback" in the file; "fallback" belongs in a policy`},
		{"at_least: 3\n" + startPolicies, `"at_least" belongs in instances: {auto: true, at_least: 3}`},
		{
			strings.Replace(startPolicies, "amount: 10}", "amount: 10, start: full}", 1),
			`"start" belongs in a policy, or at the top of the file`,
		},
		{
			strings.Replace(startPolicies, "start: cold", "store_mark: required", 1),
			`"store_mark" belongs at the top of the file`,
		},
	} {
		if _, err := resolveText(t, c.text, ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.text, err, c.want)
		}
	}
	for _, c := range []struct{ environ, want string }{
		{"DRAWGATE_FALLBACK=open", "DRAWGATE_FALLBACK is not known; set fallback of a policy in the file"},
		{"DRAWGATE_STORE_MARK=required", "DRAWGATE_STORE_MARK is not known; set store_mark in the file"},
		{"RATE_LIMIT_START=full", `RATE_LIMIT_START is not known; did you mean "DRAWGATE_START"?`},
	} {
		got, err := resolveText(t, "store: sqlite:/a.db\n"+startPolicies, c.environ)
		if err != nil || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0].Error(), c.want) {
			t.Errorf("%s: %v, %v, want %q", c.environ, got, err, c.want)
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

// Retired words are read as before, and written nowhere.
func TestRetiredWords(t *testing.T) {
	t.Parallel()
	text := startPolicies + "start_full: true\n" +
		"server: {listen: 'localhost:1', insecure: true, forward_auth: {allow_away: true}}\n"
	c, problems := config.Parse("old.yaml", []byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if !c.Server.ForwardAuth.AllowUnavailable || c.Start != drawgate.StartFull {
		t.Errorf("forward_auth %+v, start %v", c.Server.ForwardAuth, c.Start)
	}
	for name, written := range map[string]string{
		"validate": fmt.Sprint(c.Explain()), "the schema": string(config.Schema()),
	} {
		for _, word := range []string{"start_full", "allow_away"} {
			if strings.Contains(written, word) {
				t.Errorf("%s writes %s", name, word)
			}
		}
	}
}
