package config_test

import (
	"strings"
	"testing"

	"github.com/drawgate/drawgate/config"
)

const leasedFile = `store: redis://localhost
policies:
  site:
    leased: true
    limits:
      - {name: minute, rolling: 1m, amount: 600000}
`

// A policy of a file may be leased; what cannot be, or has no effect, is reported.
func TestLeased(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ old, new, problem, warning string }{
		"good":          {},
		"concurrency":   {"rolling: 1m, amount: 600000", "concurrency: 9000", "leave leased out", ""},
		"a short one":   {"rolling: 1m", "rolling: 500ms", "leave leased out", ""},
		"a small one":   {"600000", "5000", "", "leased has no effect on policy"},
		"not shared":    {"redis://localhost", `"memory:"`, "", "leased has no effect on the store"},
		"not a boolean": {"leased: true", "leased: 7", "leased", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, problems := config.Parse("file.yaml", []byte(strings.Replace(leasedFile, c.old, c.new, 1)))
			switch {
			case c.problem != "":
				if len(problems) != 1 || !strings.Contains(problems[0].OneLine(), c.problem) {
					t.Errorf("the problems are %v, want %q", problems, c.problem)
				}
				return
			case len(problems) > 0:
				t.Fatal(problems)
			}
			if p, ok := got.Policy("site"); !ok || !p.Leased {
				t.Errorf("the policy is %+v", p)
			}
			var warnings strings.Builder
			for _, w := range got.Warnings {
				warnings.WriteString(w.OneLine())
			}
			if warns := strings.Contains(warnings.String(), "leased"); warns != (c.warning != "") ||
				!strings.Contains(warnings.String(), c.warning) {
				t.Errorf("warnings %q, want %q", warnings.String(), c.warning)
			}
		})
	}
}
