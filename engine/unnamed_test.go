package engine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/store/memstore"
)

// tokens is a policy that counts no requests.
func tokens(name string) engine.Policy {
	return engine.Policy{Policy: drawgate.Policy{Name: name, Limits: []drawgate.Limit{
		{Name: "tpd", Unit: "tokens", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: 100},
	}}}
}

func wantUnnamed(t *testing.T, e *engine.Engine, r *engine.Request) {
	t.Helper()
	if res, err := e.Take(t.Context(), r); !errors.Is(err, drawgate.ErrUnknownUnit) ||
		!strings.Contains(err.Error(), "name a cost in tokens") || res.Decision.Allowed {
		t.Errorf("%v, allowed %v, want an error that names the units", err, res.Decision.Allowed)
	}
}

// TestATakeThatNamesNoUnit is an error, by name and by rules, in one set or several; what a caller
// names, or a rule, is none, though it be 0.
//
// req: B2
func TestATakeThatNamesNoUnit(t *testing.T) {
	t.Parallel()
	free := where("free", "p")
	free.Apply[0].Costs = map[string]int64{"tokens": 0}
	other := where("other", "p")
	other.Apply = append([]rules.Apply{{Policy: "q", Key: `"all"`}}, other.Apply...)
	e := newEngine(t, engine.Config{
		Policies: policies(tokens("p"), perDay("q", 100)),
		Rules:    []rules.Rule{free, other},
	}, nil)
	wantUnnamed(t, e, ask("p", "k"))
	wantUnnamed(t, e, &engine.Request{Asks: []engine.Ask{{Policy: "p", Key: "k"}, {Policy: "p", Key: "l"}}})
	wantUnnamed(t, e, &engine.Request{Asks: []engine.Ask{{Policy: "p", Key: "k"}}, Hold: time.Minute})
	for _, r := range []*engine.Request{
		ask("p", "k", drawgate.Cost{Unit: "tokens"}),
		{Asks: []engine.Ask{{Policy: "p", Key: "k"}, {Policy: "q", Key: "k"}}},
		{Sets: []engine.Set{set("free=x")}},
		{Sets: []engine.Set{set("other=x")}},
		{Sets: []engine.Set{set("free=x"), set("free=x")}},
		{Sets: []engine.Set{set("free=x", drawgate.Cost{Unit: "tokens", N: 3})}},
	} {
		if res := take(t, e, r); !res.Decision.Allowed {
			t.Errorf("%+v is refused", r)
		}
	}
}

// TestADisabledPolicyLetsTakesPass that name no unit, and passed by it before: to switch it off
// must not make them fail.
func TestADisabledPolicyLetsTakesPass(t *testing.T) {
	t.Parallel()
	both := where("user", "q")
	both.Apply = append(both.Apply, rules.Apply{Policy: "p", Key: `attr("user")`})
	e := newEngine(t, engine.Config{Policies: policies(tokens("p"), perDay("q", 2)), Rules: []rules.Rule{both}}, nil)
	named := &engine.Request{Asks: []engine.Ask{{Policy: "p", Key: "k"}, {Policy: "q", Key: "k"}}}
	matched := &engine.Request{Sets: []engine.Set{set("user=u")}}
	if err := e.Disable("q", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if res := take(t, e, named); !res.Decision.Allowed || res.Decision.Buckets() != 1 {
			t.Errorf("by name: %+v", res.Decision)
		}
		if res := take(t, e, matched); !res.Decision.Allowed || res.Decision.Buckets() != 1 {
			t.Errorf("by a rule: %+v", res.Decision)
		}
	}
	wantUnnamed(t, e, ask("p", "k")) // which never counted requests
}

// TestAShadowThatNamesNoUnit never fails what is enforced, and is evaluated if it would pass beside
// it.
//
// req: E9
func TestAShadowThatNamesNoUnit(t *testing.T) {
	t.Parallel()
	p := tokens("p")
	p.Shadow = true
	e := newEngine(t, engine.Config{Policies: policies(p, perDay("q", 100), tokens("r"))}, nil)
	res := take(t, e, &engine.Request{Asks: []engine.Ask{{Policy: "q", Key: "k"}, {Policy: "p", Key: "k"}}})
	if s := res.Shadow; !res.Decision.Allowed || len(s) != 1 || !s[0].Allowed || s[0].Err != nil ||
		s[0].Divergence != engine.Same {
		t.Errorf("beside a policy that counts requests: %+v", res)
	}
	alone := take(t, e, ask("p", "k"))
	if s := alone.Shadow; !alone.Decision.Allowed || len(s) != 1 || !errors.Is(s[0].Err, drawgate.ErrUnknownUnit) {
		t.Errorf("alone: %+v", alone)
	}
	wantUnnamed(t, e, ask("r", "k"))
}

// TestARuleThatTakesNothing cannot be loaded: it names no costs, and no policy that it applies
// counts requests.
//
// req: B11
func TestARuleThatTakesNothing(t *testing.T) {
	t.Parallel()
	hidden := tokens("hidden")
	hidden.Shadow = true
	apply := func(list ...rules.Apply) []rules.Rule { return []rules.Rule{{Name: "r", Apply: list}} }
	p, q := rules.Apply{Policy: "p", Key: "ip"}, rules.Apply{Policy: "q", Key: "ip"}
	costs, shadow := rules.Apply{Policy: "p", Key: "ip", Costs: map[string]int64{"tokens": 0}},
		rules.Apply{Policy: "q", Key: "ip", Shadow: true}
	for i, c := range []struct {
		rules []rules.Rule
		bad   bool
	}{
		{apply(p), true},
		{apply(p, rules.Apply{Policy: "p2", Key: "ip"}), true},
		{apply(p, shadow), true},
		{apply(rules.Apply{Policy: "hidden", Key: "ip"}), true},
		{apply(rules.Apply{Policy: "p", Key: "ip", Shadow: true}), true},
		{apply(p, q), false},
		{apply(costs), false},
		{apply(q, rules.Apply{Policy: "hidden", Key: "ip"}), false},
		{apply(q), false},
		{[]rules.Rule{{Name: "r", Exempt: true}}, false},
	} {
		store := memstore.New(nil)
		defer store.Close()
		e, err := engine.New(store, engine.Config{
			Policies: policies(tokens("p"), tokens("p2"), perDay("q", 9), hidden),
			Rules:    c.rules,
		}, nil)
		if err == nil {
			e.Close()
		}
		if bad := err != nil && strings.Contains(err.Error(),
			`rule 1 ("r"): apply: it takes nothing: it names no costs, and its policies do not count requests, only tokens: add costs`); bad != c.bad || !bad && err != nil {
			t.Errorf("%d: %v, want an error: %v", i, err, c.bad)
		}
	}
}

// TestSpareIgnoresUnits: a cost that only some policies count passes with Spare, whatever the rules
// apply.
func TestSpareIgnoresUnits(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	defer store.Close()
	e, err := engine.New(store, engine.Config{
		Policies: []engine.Policy{{Policy: drawgate.PerMinute("caller", 2)}},
		Rules:    []rules.Rule{{Apply: []rules.Apply{{Policy: "caller", Key: "user"}}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	r := &engine.Request{
		Attributes: &rules.Attributes{User: "u"},
		Costs:      []drawgate.Cost{drawgate.Requests(2), drawgate.Tokens(5)},
	}
	if _, err := e.Take(t.Context(), r); !errors.Is(err, drawgate.ErrUnknownUnit) {
		t.Errorf("got %v, want ErrUnknownUnit", err)
	}
	r.Spare = true
	for _, want := range []bool{true, false} {
		if res, err := e.Take(t.Context(), r); err != nil || res.Decision.Allowed != want {
			t.Errorf("got %v, %v; want allowed %v: two of two requests, and no tokens", res.Decision.Allowed, err, want)
		}
	}
}
