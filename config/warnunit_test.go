package config_test

import (
	"strings"
	"testing"

	"github.com/drawgate/drawgate/config"
)

// A policy that counts nothing of the calls for what is stored is warned about: these would pass
// without any bound.
func TestWarningsAboutStoredThatNothingCounts(t *testing.T) {
	t.Parallel()
	for limits, warned := range map[string]bool{
		`{name: tpm, unit: tokens, rolling: 1m, amount: 5}`:                                                    true,
		`{name: rpm, rolling: 1m, amount: 5}`:                                                                  false,
		`{name: rpm, unit: requests, rolling: 1m, amount: 5}`:                                                  false,
		`{name: bytes, unit: bytes, rolling: 1m, amount: 5}`:                                                   false,
		`{name: tpm, unit: tokens, rolling: 1m, amount: 5}, {name: ipm, unit: images, rolling: 1m, amount: 5}`: true,
	} {
		c, problems := config.Parse("a.yaml", []byte(`
policies:
  a: {limits: [{name: rpm, rolling: 1m, amount: 5}]}
  kept: {limits: [`+limits+`]}
gateway:
  upstreams:
    openai: {api_key_env: KEY, models: [{model: "*", policy: a}], stored: {by: key, policy: kept}}
  keys: [{name: a, sha256: "`+strings.Repeat("1", 64)+`"}]
`))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		got := 0
		for _, w := range c.Warnings {
			if strings.Contains(w.Error(), `policy "kept" has no limit of requests or bytes`) {
				got++
			}
		}
		if got > 1 || (got == 1) != warned {
			t.Errorf("%s: got %d warnings: %v", limits, got, c.Warnings)
		}
	}
}
