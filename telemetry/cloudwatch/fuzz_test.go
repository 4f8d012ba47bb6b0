package cloudwatch_test

import (
	"testing"

	"github.com/drawgate/drawgate"
)

// Whatever a policy is called, its lines are as the specification says.
func FuzzPolicyName(f *testing.F) {
	for _, name := range []string{"p", "a\nb", `"}`, "\u2028", "\xff\x00", " ", `\`} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		p := gemini(name)
		if _, err := p.Compile(); err != nil {
			t.Skip()
		}
		w := &lines{}
		m := newMetrics(t, w)
		l := limiter(t, p, m.Observer())
		if _, err := l.Allow(t.Context(), "a", drawgate.Tokens(1)); err != nil {
			t.Fatal(err)
		}
		if got := flush(t, m, w); len(got) != 1+4*4*2 {
			t.Errorf("%q: got %v", name, got)
		}
	})
}
