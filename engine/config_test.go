package engine_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/store/memstore"
)

// TestMistakesAreReported, all of them at once, with what was meant.
// req: B11.
func TestMistakesAreReported(t *testing.T) {
	t.Parallel()
	p := tokenBucket("per-user", 10, 5)
	p.Overrides = []engine.Override{
		{Key: "a", Amounts: map[string]int64{"minutes": 5}},
		{Key: "b", Amounts: map[string]int64{"minute": -1}},
		{Key: "c"},
		{Key: "d", Amounts: map[string]int64{"minute.burst": 3}},
		{Key: "d", Amounts: map[string]int64{"minute": 3}},
		{Key: "e", Amounts: map[string]int64{"minute.burst": 0}},
	}
	bad := perDay("day", 5)
	bad.Limits[0].Kind = 0
	r := rules.Rule{Name: "r", Apply: []rules.Apply{
		{Policy: "per-usr", Key: "user"},
		{Policy: "per-user", Key: "usr"},
		{Policy: "slow", Key: "ip", Amounts: map[string]int64{"day.burst": 3}},
		{Policy: "slow", Key: "ip", Costs: map[string]int64{"tokens": 3}},
		{Policy: "slow", Key: "ip", Costs: map[string]int64{"requests": 6}},
	}}
	c := engine.Config{Policies: []engine.Policy{
		p, bad, perDay("slow", 5), perDay("slow", 5), perDay("x~shadow", 1),
		perDay("drawgate:instances", 1),
	}, Rules: []rules.Rule{r}}
	_, err := engine.New(memstore.New(nil), c, nil)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`policy "per-user": overrides[0].amounts: policy "per-user" has no limit "minutes"; did you mean "minute"?`,
		`overrides[1].amounts: `, `overrides[2].amounts: amounts is empty`,
		`overrides[4].key: the same key and tenant have two overrides`,
		`overrides[5].amounts: minute.burst: 0 is less than 1`, `policy "day", limit 1 ("day"): the kind is missing`,
		`policy "slow": name: another policy has the same name`,
		`names that end with ~shadow`, `names that begin with drawgate:`,
		`apply[0].policy: unknown policy "per-usr"; did you mean "per-user"?`, `apply[1].key: line 1`,
		`apply[2].amounts: limit "day" of policy "slow" is a rolling limit: only a bucket has a burst`,
		`apply[3].costs: drawgate: unknown unit`,
		`apply[4].costs: 6 can never fit limit "day" of policy "slow"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
	if e, ok := errors.AsType[*engine.Error](err); !ok || e.Policy != "per-user" || e.Index != 0 ||
		e.Field != "overrides[0].amounts" {
		t.Errorf("the first is %+v", e)
	}
	if _, ok := errors.AsType[*drawgate.LimitError](err); !ok {
		t.Error("no LimitError")
	}
}

func TestSuggestions(t *testing.T) {
	t.Parallel()
	names := []string{"per-user", "per-ip", "api"}
	for name, want := range map[string]string{
		"per-usr": `mean "per-user"?`, "Per-IP": `mean "per-ip"?`,
		"zzzzzz": "have: api, per-ip, per-user",
	} {
		c := engine.Config{Rules: []rules.Rule{by("r", name, "ip")}}
		for _, n := range names {
			c.Policies = append(c.Policies, perDay(n, 1))
		}
		if _, err := engine.New(memstore.New(nil), c, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := engine.New(memstore.New(nil), engine.Config{Rules: []rules.Rule{by("r", "p", "ip")}},
		nil); err == nil || !strings.Contains(err.Error(), "there are none") {
		t.Errorf("error %v", err)
	}
}
