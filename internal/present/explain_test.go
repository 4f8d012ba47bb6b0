package present_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/store/memstore"
)

// perDay is a policy of n requests a day.
func perDay(name string, n int64) engine.Policy {
	limit := drawgate.Limit{
		Name: "day", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: n,
		Precision: drawgate.Exact,
	}
	return engine.Policy{Policy: drawgate.Policy{Name: name, Limits: []drawgate.Limit{limit}}}
}

// apply applies policy p by a key, with another amount per day.
func apply(key string, amount int64) rules.Apply {
	return rules.Apply{Policy: "p", Key: key, Amounts: map[string]int64{"day": amount}}
}

func newEngine(t *testing.T, c engine.Config) *engine.Engine {
	t.Helper()
	store := memstore.New(nil)
	e, err := engine.New(store, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = e.Close()
		_ = store.Close()
	})
	return e
}

// explained returns, for each bucket, its amount, what is left, and whether the take is allowed, or
// can never be.
func explained(t *testing.T, e *engine.Engine, r *engine.Request) map[string]string {
	t.Helper()
	w, err := present.Explain(t.Context(), e, r, 0, present.Problem)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, x := range w.Applied {
		if x.Error != nil {
			t.Fatal(x.Error)
		}
		l := x.Status.Limits[0]
		got[fmt.Sprint(x.Policy, " ", x.Key, " ", x.Shadow)] = fmt.Sprint(l.Amount, " ", l.Remaining, " ",
			x.Status.Take.Allowed, " ", x.Status.Take.NeverFits)
	}
	return got
}

// TestExplainHasTheAmountsOfEachKey: a rule may apply one policy under several keys, with amounts
// of their own, enforced and in shadow.
func TestExplainHasTheAmountsOfEachKey(t *testing.T) {
	t.Parallel()
	hidden := []rules.Apply{apply(`"all"`, 8), apply("user", 4)}
	hidden[0].Shadow, hidden[1].Shadow = true, true
	list := []rules.Rule{{Apply: append(hidden, apply(`"all"`, 7), apply("user", 3))}}
	e := newEngine(t, engine.Config{Policies: []engine.Policy{perDay("p", 60)}, Rules: list})
	r := &engine.Request{Attributes: &rules.Attributes{User: "u"}}
	want := map[string]string{
		"p all true": "8 8 true false", "p u true": "4 4 true false",
		"p all false": "7 7 true false", "p u false": "3 3 true false",
	}
	if got := explained(t, e, r); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := e.Take(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	list[0].Apply[2].Amounts["day"] = 0
	if err := e.Replace(engine.Config{Policies: []engine.Policy{perDay("p", 60)}, Rules: list}); err != nil {
		t.Fatal(err)
	}
	want = map[string]string{
		"p all true": "8 7 true false", "p u true": "4 3 true false",
		"p all false": "0 0 false true", "p u false": "3 2 true false",
	}
	if got := explained(t, e, r); !maps.Equal(got, want) {
		t.Errorf("with an amount of 0: got %v, want %v", got, want)
	}
}

// TestExplainNamesAndRulesTogether: the costs of an ask by name are its own, wherever rules choose
// buckets as well.
func TestExplainNamesAndRulesTogether(t *testing.T) {
	t.Parallel()
	rule := rules.Rule{Apply: []rules.Apply{
		{Policy: "p", Key: "user", Costs: map[string]int64{"requests": 2}},
		{Policy: "r", Key: "user"},
	}}
	e := newEngine(t, engine.Config{
		Policies: []engine.Policy{perDay("p", 2), perDay("q", 3), perDay("r", 1)},
		Rules:    []rules.Rule{rule},
	})
	r := &engine.Request{
		Attributes: &rules.Attributes{User: "u"},
		Asks:       []engine.Ask{{Policy: "q", Key: "k", Costs: []drawgate.Cost{drawgate.Requests(4)}}},
	}
	want := map[string]string{
		"p u false": "2 2 true false", "q k false": "3 3 false true",
		"r u false": "1 1 true false",
	}
	if got := explained(t, e, r); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	r.Asks[0].Costs[0].N = 3
	if res, err := e.Take(t.Context(), r); err != nil || !res.Decision.Allowed {
		t.Fatalf("%v: %+v", err, res.Decision.Err())
	}
	want = map[string]string{
		"p u false": "2 0 false false", "q k false": "3 0 false false",
		"r u false": "1 0 false false",
	}
	if got := explained(t, e, r); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
