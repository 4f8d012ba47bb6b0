package config_test

import (
	"strings"
	"testing"

	"github.com/drawgate/drawgate/config"
)

// The number of processes that share the limits comes from a file, the environment, or the default
// of the store.
//
// req: A10, B11
func TestInstancesComeFromFileEnvironmentOrStore(t *testing.T) {
	t.Parallel()
	counted := config.Instances{Auto: true}
	for _, c := range []struct {
		file, environ string
		want          config.Instances
		warns         string
	}{
		{"store: redis://h", "", counted, ""},
		{"store: dynamodb://quotas", "", counted, ""},
		{"{store: dynamodb://quotas, instances: 3}", "", config.Instances{Number: 3}, ""},
		{"store: 'memory:'", "", config.Instances{Number: 1}, ""},
		{"store: sqlite:x.db", "", config.Instances{Number: 1}, ""},
		{"{store: redis://h, instances: auto}", "", counted, ""},
		{"{store: redis://h, instances: 3}", "", config.Instances{Number: 3}, ""},
		{"{store: redis://h, instances: {auto: true}}", "", counted, ""},
		{"{store: redis://h, instances: {auto: true, at_least: 3}}", "", config.Instances{Auto: true, Number: 3}, ""},
		{"{store: sqlite:x.db, instances: auto}", "", counted, ""},
		{"{store: sqlite:x.db, instances: 3}", "", config.Instances{Number: 3}, "instances is 3, but the store"},
		{"{store: 'memory:', instances: auto}", "", counted, "cannot be counted"},
		{"{store: redis://h, instances: 3}", "DRAWGATE_INSTANCES=auto", counted, ""},
		{
			"{store: redis://h, instances: {auto: true, at_least: 3}}", "DRAWGATE_INSTANCES=4",
			config.Instances{Number: 4},
			"",
		},
		{
			"{store: redis://h, policies: {p: {limits: [{name: a, rolling: 1m, amount: 2}], fallback: share}}, instances: {auto: true, at_least: 3}}", "",
			config.Instances{Auto: true, Number: 3},
			"3 instances share an amount of 2, so each share is less than one unit",
		},
		{
			"{store: redis://h, policies: {p: {limits: [{name: a, rolling: 1m, amount: 2}], fallback: share}}}", "",
			counted, "",
		},
	} {
		path := newFile(t)
		write(t, path, c.file)
		var environ []string
		if c.environ != "" {
			environ = append(environ, c.environ)
		}
		got := mustResolve(t, environ, config.Flags{Config: path})
		if got.SharedBy() != c.want {
			t.Errorf("%s %s: %+v, want %+v", c.file, c.environ, got.SharedBy(), c.want)
		}
		warnings := ""
		for _, w := range got.Warnings {
			if strings.Contains(w.Message, "instances") {
				warnings += w.Message
			}
		}
		if (warnings == "") != (c.warns == "") || !strings.Contains(warnings, c.warns) {
			t.Errorf("%s %s: warns %q, want %q", c.file, c.environ, warnings, c.warns)
		}
		again, problems := config.Parse("again.yaml", got.YAML())
		if len(problems) > 0 || again.Instances != got.Instances {
			t.Errorf("%s: written and read again %+v (%v), want %+v", c.file, again.Instances, problems, got.Instances)
		}
	}
}

// Mistakes in instances, and policies with the reserved name, are reported.
func TestMistakesOfInstances(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"instances: 0":                         "instances 0 is not between 1 and 100000",
		"instances: many":                      `instances "many" is neither a number nor auto`,
		"instances: atuo":                      `did you mean "auto"?`,
		"instances: '3'":                       "write it without quotes",
		"instances: [3]":                       "must be a whole number",
		"instances: {at_least: 3}":             "without auto: true",
		"instances: {auto: false}":             "without auto: true",
		"instances: {auto: true, x: 1}":        `unknown key "x"`,
		"instances: {auto: true, at_least: 0}": "is not between 1 and 100000",
		"policies: {'drawgate:instances': {limits: [{name: a, rolling: 1m, amount: 2}]}}": `names of policies that begin with "drawgate:" are reserved`,
	} {
		if _, problems := config.Parse("f.yaml", []byte(file)); !strings.Contains(config.Problems(problems).Error(),
			want) {
			t.Errorf("%s: got %v, want %q", file, problems, want)
		}
	}
	if _, err := config.Resolve([]string{"DRAWGATE_INSTANCES=some"}, config.Flags{}); err == nil ||
		!strings.Contains(err.Error(), "neither a whole number nor auto") {
		t.Errorf("got %v", err)
	}
}
