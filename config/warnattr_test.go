package config_test

import (
	"strings"
	"testing"

	"github.com/drawgate/drawgate/config"
)

// A rule that no call of the gateway can match switches its limit off: the file says so.
func TestWarningsAboutAttributesOfTheGateway(t *testing.T) {
	t.Parallel()
	const gateway = `policies: {all: {limits: [{name: rpm, rolling: 1m, amount: 5}]}, budget: {limits: [{name: rpm, rolling: 1m, amount: 5}]}}
gateway:
  upstreams: {openai: {models: [{model: "*", policy: all}]}}
  keys: [{name: dashboard, team: red, sha256: "SUM"}]
`
	const rule = "rules: [{match: {attrs: {%}}, apply: [{policy: budget, key: user}]}]\n"
	for match, want := range map[string]string{
		"team: red":       "",
		"team: r*":        "",
		"key: dashboard":  "",
		"model: gpt-4.1":  "",
		"tenant: acme":    "", // perhaps of a caller of the server
		"team: rad":       `no call of the gateway has the team "rad" (did you mean "red"?)`,
		"tema: red":       `a call of the gateway has no attribute "tema" (did you mean "team"?)`,
		"upstream: opena": `no call of the gateway has the upstream "opena" (did you mean "openai"?)`,
	} {
		text := strings.NewReplacer("SUM", strings.Repeat("ab", 32), "%", match).Replace(gateway + rule)
		c, problems := config.Parse("a.yaml", []byte(text))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		var got string
		for _, w := range c.Warnings {
			if strings.Contains(w.Message, "of the gateway has") {
				got = w.Message + " (" + w.Hint + ")"
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", match, got, want)
		}
	}
}
