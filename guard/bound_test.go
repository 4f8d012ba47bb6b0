package guard_test

import (
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/guard"
)

// req: D10
func TestBound(t *testing.T) {
	t.Parallel()
	minute, day, burst, small := rolling(60, time.Minute), daily(1000), leaky(100, time.Minute, 20), slots(2)
	minute.Name, day.Name, burst.Name, small.Name = "rpm", "rpd", "rate", "slots"
	day.Fallback, minute.Headroom = drawgate.FallbackOpen, drawgate.Share{Percent: 10}
	p := []drawgate.Policy{{Name: "api", Limits: []drawgate.Limit{minute, day, burst, small}}, {Name: "free", Fallback: drawgate.FallbackClosed, Limits: []drawgate.Limit{minute}}}
	for _, c := range []struct {
		instances int
		want      []guard.Line
		says      []string
	}{
		{3, []guard.Line{
			{Mode: drawgate.FallbackShare, Most: 54, Share: 18, Extra: 36, Partly: 36},
			{Mode: drawgate.FallbackOpen, Most: 1000, Share: guard.Unbounded, Extra: guard.Unbounded, After: guard.Unbounded, Partly: guard.Unbounded},
			{Mode: drawgate.FallbackShare, Most: 20, Share: 6, Extra: 12, Partly: 12 + 2*33},
			{Mode: drawgate.FallbackShare, Most: 2},
			{Mode: drawgate.FallbackClosed, Most: 54},
		}, []string{"at most 36", "no bound", "at most 12", "less than one unit", "nothing is admitted"}},
		{1, []guard.Line{
			{Mode: drawgate.FallbackShare, Most: 54, Share: 54},
			{Mode: drawgate.FallbackOpen, Most: 1000, Share: -1, Extra: -1, After: -1, Partly: -1},
			{Mode: drawgate.FallbackShare, Most: 20, Share: 20},
			{Mode: drawgate.FallbackShare, Most: 2, Share: 2},
			{Mode: drawgate.FallbackClosed, Most: 54},
		}, []string{"never over", "no bound", "never over", "never over", "never over"}},
		{0, []guard.Line{
			{Mode: drawgate.FallbackClosed, Most: 54},
			{Mode: drawgate.FallbackOpen, Most: 1000, Share: -1, Extra: -1, After: -1, Partly: -1},
			{Mode: drawgate.FallbackClosed, Most: 20},
			{Mode: drawgate.FallbackClosed, Most: 2},
			{Mode: drawgate.FallbackClosed, Most: 54},
		}, []string{"nothing", "no bound", "nothing", "nothing", "nothing"}},
	} {
		got, err := guard.Bound(p, c.instances)
		if err != nil || len(got) != len(c.want) {
			t.Fatalf("%d lines, %v", len(got), err)
		}
		for i, l := range got {
			if s := l.String(); !strings.Contains(s, c.says[i]) || !strings.Contains(s, "limit "+l.Limit) {
				t.Errorf("%d instances, line %d: %q does not say %q", c.instances, i, s, c.says[i])
			}
			l.Policy, l.Limit, l.Unit, l.Instances = "", "", "", 0
			if l != c.want[i] {
				t.Errorf("%d instances, line %d: %+v, want %+v", c.instances, i, l, c.want[i])
			}
		}
	}
	if _, err := guard.Bound([]drawgate.Policy{{Name: "p"}}, 1); err == nil {
		t.Error("a policy without limits has a bound")
	}
}
