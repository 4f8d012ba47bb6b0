package guard_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/guard"
)

// req: D10
func TestBound(t *testing.T) {
	t.Parallel()
	minute, day, burst, small := rolling(60, time.Minute), daily(1000), leaky(100, time.Minute, 20), slots(2)
	minute.Name, day.Name, burst.Name, small.Name = "rpm", "rpd", "rate", "slots"
	day.Fallback, minute.Headroom = drawgate.FallbackOpen, drawgate.Share{Percent: 10}
	p := []drawgate.Policy{
		{Name: "api", Limits: []drawgate.Limit{minute, day, burst, small}},
		{Name: "free", Fallback: drawgate.FallbackClosed, Limits: []drawgate.Limit{minute}},
	}
	for _, c := range []struct {
		instances int
		want      []guard.Line
		says      []string
	}{
		{3, []guard.Line{
			{Mode: drawgate.FallbackShare, Most: 54, Share: 18, Extra: 36, Partly: 36},
			{
				Mode: drawgate.FallbackOpen, Most: 1000, Share: guard.Unbounded, Extra: guard.Unbounded,
				After: guard.Unbounded, Partly: guard.Unbounded,
			},
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
		}, []string{"never exceeded", "no bound", "never exceeded", "never exceeded", "never exceeded"}},
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
			l.Policy, l.Limit, l.Unit, l.Instances, l.Start, l.Cold = "", "", "", 0, 0, 0
			if l != c.want[i] {
				t.Errorf("%d instances, line %d: %+v, want %+v", c.instances, i, l, c.want[i])
			}
		}
	}
	if _, err := guard.Bound([]drawgate.Policy{{Name: "p"}}, 1); err == nil {
		t.Error("a policy without limits has a bound")
	}
}

// TestBoundOfSeveralAmounts: the bound is the worst case. For a bucket limit whose amounts are used
// in turn, that is the largest share, and the fastest rate among those that admit anything.
//
// req: D10, E7
func TestBoundOfSeveralAmounts(t *testing.T) {
	t.Parallel()
	with := func(l drawgate.Limit) drawgate.Policy {
		l.Name = "l"
		return drawgate.Policy{Name: "p", Limits: []drawgate.Limit{l}, Fallback: drawgate.FallbackShare}
	}
	figures := func(policies ...drawgate.Policy) [4]int64 {
		lines, err := guard.Bound(policies, 3)
		if err != nil || len(lines) != 1 {
			t.Fatalf("%d lines, %v", len(lines), err)
		}
		return [4]int64{lines[0].Most, lines[0].Share, lines[0].Extra, lines[0].Partly}
	}
	fast, deep, tiny := with(leaky(600, time.Minute, 6)), with(leaky(6, time.Minute, 300)),
		with(leaky(9000, time.Minute, 2))
	for _, c := range []struct {
		got, want [4]int64
	}{
		{
			figures(with(rolling(18, time.Minute)), with(rolling(57, time.Minute)), with(rolling(3, time.Minute))),
			[4]int64{57, 19, 38, 38},
		},
		{figures(fast), [4]int64{6, 2, 4, 4 + 400}},
		{figures(deep), [4]int64{300, 100, 200, 200 + 4}},
		{figures(fast, deep, tiny), [4]int64{300, 100, 200, 200 + 400}}, // tiny has a share of less than one unit
	} {
		if c.got != c.want {
			t.Errorf("%v, want %v", c.got, c.want)
		}
	}
	one, _ := guard.Bound([]drawgate.Policy{fast}, 3)
	other, _ := guard.Bound([]drawgate.Policy{deep}, 3)
	if w := guard.Worst(append(one, other...)); len(w) != 1 || w[0].Most != 300 || w[0].Extra != 200 ||
		w[0].Partly != 404 {
		t.Errorf("two buckets of different amounts: %+v", w)
	}
}

// TestBoundOfInstancesThatAreCounted: if all are cut off at once they have their shares; if one by
// one, in the worst case, each has a share of the least number.
//
// req: A10
func TestBoundOfInstancesThatAreCounted(t *testing.T) {
	t.Parallel()
	minute, burst, small := rolling(60, time.Minute), leaky(100, time.Minute, 20), slots(2)
	minute.Name, burst.Name, small.Name = "rpm", "rate", "slots"
	p := []drawgate.Policy{{Name: "api", Limits: []drawgate.Limit{minute, burst, small}}}
	for _, c := range []struct {
		n, atLeast int
		want       [3][3]int64 // share, extra, partly
	}{
		{3, 0, [3][3]int64{{20, 40, 120}, {6, 12, 40 + 200}, {0, 0, 4}}},
		{3, 2, [3][3]int64{{20, 40, 60}, {6, 12, 20 + 100}, {0, 0, 2}}},
		{3, 3, [3][3]int64{{20, 40, 40}, {6, 12, 12 + 66}, {0, 0, 0}}},
		{1, 0, [3][3]int64{{60, 0, 0}, {20, 0, 0}, {2, 0, 0}}},
		{2, 3, [3][3]int64{{20, 40, 40}, {6, 12, 12 + 66}, {0, 0, 0}}},
	} {
		lines, err := guard.BoundCounted(p, c.n, c.atLeast)
		if err != nil || len(lines) != 3 {
			t.Fatalf("%d lines, %v", len(lines), err)
		}
		for i, l := range lines {
			if got := [3]int64{l.Share, l.Extra, l.Partly}; got != c.want[i] || l.After != 0 ||
				l.AtLeast != max(1, c.atLeast) {
				t.Errorf("%d instances, at least %d, line %d: %v %+v, want %v", c.n, c.atLeast, i, got, l, c.want[i])
			}
			if says := strings.Contains(l.String(), "counted processes"); says != (l.Partly > 0) {
				t.Errorf("%d instances, at least %d, line %d: %s", c.n, c.atLeast, i, l)
			}
		}
	}
}

// TestBoundSaysHowManyStart checks the sentence about processes that start during an outage.
func TestBoundSaysHowManyStart(t *testing.T) {
	t.Parallel()
	l := guard.Line{
		Mode: drawgate.FallbackShare, Start: drawgate.StartFull, Most: 20, Share: 20, Instances: 1,
		Cold: 20, Extra: 20, After: 20, Starts: 1,
	}
	if s := l.String(); !strings.Contains(s, "If a process starts meanwhile (full: it admits 20 without") {
		t.Error(s)
	}
	l.Starts, l.Extra, l.After = 2, 40, 40
	if s := l.String(); !strings.Contains(s,
		"If 2 processes start meanwhile (full: each admits 20 without knowing what was used), at most 40 beyond") {
		t.Error(s)
	}
}

// TestLossesAddTheLimitOnce: what a store forgets is at most what the limit admits, for every
// fallback, as often as it forgets.
func TestLossesAddTheLimitOnce(t *testing.T) {
	t.Parallel()
	for _, mode := range []drawgate.Fallback{drawgate.FallbackClosed, drawgate.FallbackShare, drawgate.FallbackOpen} {
		lines, err := guard.Bound([]drawgate.Policy{{Name: "p", Fallback: mode, Limits: []drawgate.Limit{
			{Name: "l", Kind: drawgate.Rolling, Window: time.Minute, Amount: 60, Headroom: drawgate.Share{Units: 6}},
			{Name: "b", Kind: drawgate.Bucket, Window: time.Minute, Amount: 60, Burst: 30},
		}}}, 3)
		if err != nil {
			t.Fatal(err)
		}
		for i, most := range []int64{54, 30} {
			before := lines[i].String()
			for n, want := range map[int]string{
				0: "",
				1: fmt.Sprintf(". If the store forgets its last answers, what it forgot may be admitted again: at most %d units", most),
				2: fmt.Sprintf(". If the store 2 times forgets its last answers, what it forgot may be admitted again: at most %d units", 2*most),
			} {
				l := lines[i].AfterLosses(n)
				if l.Forgotten != int64(n)*most || l.String() != before+want {
					t.Errorf("%v, limit %s, %d losses: got %d, %s", mode, l.Limit, n, l.Forgotten, l.String())
				}
			}
		}
	}
}
