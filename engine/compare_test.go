package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
)

// changes says what Compare finds, a line each.
func changes(before, after engine.Config) (list []string) {
	for _, c := range engine.Compare(before, after) {
		list = append(list, c.String())
	}
	return list
}

func expect(t *testing.T, before, after engine.Config, want ...string) {
	t.Helper()
	if got := changes(before, after); !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

func TestComparePolicies(t *testing.T) {
	t.Parallel()
	a := engine.Config{Policies: policies(perDay("p", 2), tokenBucket("b", 10, 5), perDay("gone", 1))}
	b := engine.Config{Policies: policies(perDay("new", 1), tokenBucket("b", 20, 5), perDay("p", 2))}
	b.Policies[2].Limits[0].Window = time.Hour
	b.Policies[2].Limits = append(b.Policies[2].Limits, drawgate.Limit{
		Name: "rpm", Kind: drawgate.Rolling,
		Window: time.Minute, Amount: 3,
	})
	b.Policies[2].Shadow, b.Policies[2].Wait.MaxWait = true, time.Minute
	b.Policies[1].Limits[0].Headroom, b.Policies[1].Limits[0].ReservedByPriority = drawgate.Share{Percent: 10},
		map[int]drawgate.Share{7: {Units: 2}}
	b.Policies[1].Fallback, b.Policies[1].Disabled = drawgate.FallbackClosed, true
	expect(t, a, b,
		`policy "p": changed: shadow false → true`,
		`policy "p": changed: wait.up_to 0s → 1m0s`,
		`policy "p", limit "day": restarts: window 24h0m0s → 1h0m0s (starts unused)`,
		`policy "p", limit "rpm": added (starts unused)`,
		`policy "b": changed: disabled false → true`,
		`policy "b": changed: fallback default → closed`,
		`policy "b", limit "minute": changed: amount 10 → 20`,
		`policy "b", limit "minute": changed: headroom 0 → 10%`,
		`policy "b", limit "minute": changed: keep none → 7: 2`,
		`policy "gone": removed`,
		`policy "new": added (starts unused)`,
	)
}

func TestCompareOverrides(t *testing.T) {
	t.Parallel()
	a, b := engine.Config{Policies: policies(perDay("p", 2))}, engine.Config{Policies: policies(perDay("p", 2))}
	a.Policies[0].Overrides = []engine.Override{
		{Key: "same", Amounts: map[string]int64{"day": 1}},
		{Key: "x", Amounts: map[string]int64{"day": 3}},
		{Key: "gone*", Tenant: "t", Amounts: map[string]int64{"day": 3}},
	}
	b.Policies[0].Overrides = []engine.Override{
		{Key: "x", Amounts: map[string]int64{"day": 4}},
		{Key: "same", Amounts: map[string]int64{"day": 1}},
		{Key: "x", Tenant: "t", Amounts: map[string]int64{"day": 5}},
	}
	expect(t, a, b,
		`policy "p", override of "x": changed: amounts "day":3 → "day":4`,
		`policy "p", override of "x" of tenant "t": added: "day":5`,
		`policy "p", override of "gone*" of tenant "t": removed: "day":3`,
	)
}

func TestCompareRules(t *testing.T) {
	t.Parallel()
	unnamed := by("", "p", "ip")
	a := engine.Config{Rules: []rules.Rule{
		by("first", "p", "ip"), by("second", "p", "user"), by("third", "q", "user"),
		unnamed, by("gone", "p", "path"),
	}}
	second := by("second", "p", "path")
	second.Match = rules.Match{Path: "/v1/*", Methods: []string{"GET"}, Headers: map[string]string{"X-A": "b"}}
	second.Schedule = &rules.Schedule{
		Days: []time.Weekday{time.Monday}, From: 9 * time.Hour, To: 17 * time.Hour,
		Zone: "Europe/Berlin",
	}
	third := by("third", "q", "user")
	third.When, third.Shadow, third.Apply[0].Amounts = "hour > 3", true, map[string]int64{"day": 5}
	exempt := rules.Rule{Match: rules.Match{User: "root"}, Exempt: true}
	b := engine.Config{Rules: []rules.Rule{exempt, third, by("first", "p", "ip"), second, unnamed}}
	expect(t, a, b,
		`rule "second": changed: match none → methods=[GET] path=/v1/* headers=map[X-A:b]`,
		`rule "second": changed: schedule none → 09:00–17:00 mon Europe/Berlin`,
		`rule "second": changed: apply p by user → p by path (starts unused)`,
		`rule "third": changed: when none → hour > 3`,
		`rule "third": changed: shadow false → true`,
		`rule "third": changed: apply q by user → q by user amounts "day":5 (starts unused)`,
		`rule "gone": removed: apply p by path`,
		`rule #1: added: match user=root, exempt`,
		`rule "third": moved: position 3 → 2`,
	)
	changed := by("", "p", "user")
	changed.Final = true
	expect(t, engine.Config{Rules: []rules.Rule{unnamed}}, engine.Config{Rules: []rules.Rule{changed}},
		`rule #1: changed: final false → true`,
		`rule #1: changed: apply p by ip → p by user (starts unused)`,
	)
}

// TestCompareNamesRulesAsTheyAre: for programs a name stands without quotes, and a rule without a
// name is told by its place.
func TestCompareNamesRulesAsTheyAre(t *testing.T) {
	t.Parallel()
	list := engine.Compare(engine.Config{}, engine.Config{Rules: []rules.Rule{
		by("all", "p", "ip"),
		by("", "p", "user"),
	}})
	if len(list) != 2 || list[0].Rule != "all" || list[1].Rule != "#2" {
		t.Errorf("%+v", list)
	}
}

// TestCompareFindsNothingInTheSame, and finds something in whatever differs in order.
func TestCompareFindsNothingInTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var c engine.Config
		for i := range rapid.IntRange(0, 6).Draw(t, "rules") {
			r := by("", "p", rapid.SampledFrom([]string{"ip", "user", "path"}).Draw(t, "key"))
			if rapid.Bool().Draw(t, "named") {
				r.Name = fmt.Sprint("r", i)
			}
			c.Rules = append(c.Rules, r)
		}
		c.Policies = policies(perDay("p", 3), slots("s", 2))
		if got := changes(c, c); len(got) != 0 {
			t.Fatalf("the same: %q", got)
		}
		other := c
		other.Rules = rapid.Permutation(c.Rules).Draw(t, "order")
		var before, after []string
		for i := range c.Rules {
			before, after = append(before, c.Rules[i].Name+c.Rules[i].Apply[0].Key),
				append(after, other.Rules[i].Name+other.Rules[i].Apply[0].Key)
		}
		if got := changes(c, other); (len(got) == 0) != slices.Equal(before, after) {
			t.Fatalf("%q → %q: %q", before, after, got)
		}
	})
}
