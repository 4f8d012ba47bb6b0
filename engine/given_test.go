package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
)

// giveKey gives one key an amount of the limit "day" of the policy "p"; 0 takes it back.
func giveKey(e *engine.Engine, key string, n int64) {
	amounts := engine.Amounts{"p": {"day": n}}
	if n == 0 {
		amounts = nil
	}
	e.GiveAmounts(map[string]engine.Amounts{key: amounts})
}

// TestGivenAmounts: they count at once, for this key alone, and what was used stays used. An
// override of the key itself decides before them, and they before one of a prefix, and before a
// rule. A Replace keeps them.
func TestGivenAmounts(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	p := perDay("p", 2)
	p.Overrides = []engine.Override{
		{Key: "fixed", Amounts: map[string]int64{"day": 3}},
		{Key: "v*", Amounts: map[string]int64{"day": 4}},
	}
	rule := by("r", "p", "user")
	rule.Apply[0].Amounts = map[string]int64{"day": 1}
	c := engine.Config{Policies: policies(p), Rules: []rules.Rule{rule}}
	e := newEngine(t, c, &engine.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	want := func(what, user string, more int) {
		t.Helper()
		if got := admitted(t, e, from(user), 12); got != more {
			t.Errorf("%s: %d more of %s admitted, want %d", what, got, user, more)
		}
	}
	giveKey(e, "u", 5)
	giveKey(e, "vu", 6)
	giveKey(e, "fixed", 9)
	want("given", "u", 5)
	want("given to none", "other", 1)
	want("before a prefix", "vu", 6)
	want("after an override", "fixed", 3)
	giveKey(e, "u", 4)
	want("lowered", "u", 0)
	giveKey(e, "u", 7)
	want("raised", "u", 2)
	if err := e.Replace(c); err != nil {
		t.Fatal(err)
	}
	giveKey(e, "u", 8)
	want("after a Replace", "u", 1)
	if p := e.Plan("p", "", "vu"); p.Policy().Limits[0].Amount != 6 {
		t.Errorf("after a Replace another key has %d", p.Policy().Limits[0].Amount)
	}
	giveKey(e, "vu", 0)
	if p := e.Plan("p", "", "vu"); p.Policy().Limits[0].Amount != 4 {
		t.Errorf("taken back, the key has %d", p.Policy().Limits[0].Amount)
	}
	if log.Len() > 0 {
		t.Errorf("the log: %s", &log)
	}
	other := c
	other.Policies = policies(tokenBucket("p", 60, 2))
	other.Rules = []rules.Rule{by("r", "p", "user")}
	if err := e.Replace(other); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "policy=p limit=day keys=2") {
		t.Errorf("the log does not say what is left out: %s", &log)
	}
	want("a limit that is gone", "u", 2)
	if err := e.Replace(c); err != nil {
		t.Fatal(err)
	}
	giveKey(e, "u", 10)
	want("a limit that is back", "u", 2)
}

// TestGivenAmountsReachWhoWaits: a caller who waits passes when its key is given more.
func TestGivenAmountsReachWhoWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, engine.Config{Policies: policies(perDay("p", 1)), Rules: []rules.Rule{by("r", "p", "user")}},
			nil)
		admitted(t, e, from("u"), 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var passed atomic.Bool
		var group sync.WaitGroup
		group.Go(func() {
			r := from("u")
			r.Wait = true
			res, err := e.Take(ctx, r)
			passed.Store(err == nil && res.Decision.Allowed)
		})
		synctest.Wait()
		giveKey(e, "u", 2)
		synctest.Wait()
		if !passed.Load() {
			t.Error("it waits on")
		}
		cancel()
		group.Wait()
	})
}

// TestChangingAmountsNeverAdmitMore than the highest of them, while many callers take.
func TestChangingAmountsNeverAdmitMore(t *testing.T) {
	t.Parallel()
	const most = 50
	e := newEngine(t, engine.Config{Policies: policies(perDay("p", 5)), Rules: []rules.Rule{by("r", "p", "user")}}, nil)
	var allowed atomic.Int64
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 100 {
				res, err := e.Take(t.Context(), from("u"))
				if err != nil {
					t.Error(err)
				}
				if res.Decision.Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	for i := range int64(20) {
		giveKey(e, "u", []int64{most, 10, 30}[i%3])
	}
	giveKey(e, "u", most)
	group.Wait()
	if got := allowed.Load() + int64(admitted(t, e, from("u"), 2*most)); got != most {
		t.Errorf("%d were admitted, want %d", got, most)
	}
}

// TestAmountsThatCannotBeGiven are refused by their names.
func TestAmountsThatCannotBeGiven(t *testing.T) {
	t.Parallel()
	prepaid := engine.Policy{Policy: drawgate.Policy{Name: "prepaid", Limits: []drawgate.Limit{
		{Name: "credit", Kind: drawgate.Calendar, Every: drawgate.Total, Amount: 1},
		{Name: "day", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: 1},
	}}}
	p := perDay("p", 2)
	p.Overrides = []engine.Override{{Key: "fixed", Amounts: map[string]int64{"day": 3}}}
	const by1, by2 = `attr("key")`, ` attr( 'key' ) `
	c := engine.Config{
		Policies: policies(p, perDay("upstream", 2), prepaid, tokenBucket("rate", 6, 2)),
		Rules:    []rules.Rule{by("r", "p", by1, "prepaid", by2, "rate", by1, "upstream", "user")},
	}
	for want, given := range map[string]struct {
		key     string
		amounts engine.Amounts
	}{
		"": {"u", engine.Amounts{
			"p": {"day": 1}, "prepaid": {"day": drawgate.MaxAmount}, "rate": {"minute": 5, "minute.burst": 9},
		}},
		`unknown policy "pp"`:                           {"u", engine.Amounts{"pp": {"day": 1}}},
		`policy "p" has no limit "dat"`:                 {"u", engine.Amounts{"p": {"dat": 1}}},
		`limit "day" of policy "p": amount 0 is not`:    {"u", engine.Amounts{"p": {"day": 0}}},
		`limit "day" of policy "p": amount -1 is not`:   {"u", engine.Amounts{"p": {"day": -1}}},
		`limit "day" of policy "p": amount 10000000000`: {"u", engine.Amounts{"p": {"day": drawgate.MaxAmount + 1}}},
		`only a bucket has a burst`:                     {"u", engine.Amounts{"p": {"day.burst": 1}}},
		`no rule applies policy "upstream" by attr(`:    {"u", engine.Amounts{"upstream": {"day": 1}}},
		`limit "credit" of policy "prepaid" is a prep`:  {"u", engine.Amounts{"prepaid": {"credit": 1}}},
		`has an override of key "fixed"`:                {"fixed", engine.Amounts{"p": {"day": 1}}},
	} {
		err := c.CheckAmounts(given.key, by1, given.amounts)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v: %v, want %q", given.amounts, err, want)
		}
	}
}
