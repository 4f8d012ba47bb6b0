package engine_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/memstore"
	"github.com/drawgate/drawgate/rules"
)

// perDay is a policy whose count a test cannot outlast.
func perDay(name string, n int64) engine.Policy {
	return engine.Policy{Policy: drawgate.Policy{Name: name, Limits: []drawgate.Limit{
		{Name: "day", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: n, Precision: drawgate.Exact},
	}}}
}

// rule applies one policy by one key.
func rule(policy, key string) rules.Rule {
	return rules.Rule{Name: policy, Apply: []rules.Apply{{Policy: policy, Key: key}}}
}

func newEngine(t testing.TB, c engine.Config, opts *engine.Options) *engine.Engine {
	t.Helper()
	store := memstore.New(nil)
	e, err := engine.New(store, c, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.Close()
		store.Close()
	})
	return e
}

func take(t testing.TB, e *engine.Engine, r *engine.Request) engine.Result {
	t.Helper()
	res, err := e.Take(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// from is a request of a user.
func from(user string) *engine.Request {
	return &engine.Request{Attributes: &rules.Attributes{Method: "GET", Path: "/", User: user, IP: netip.MustParseAddr("192.0.2.1")}}
}

func TestRulesDecide(t *testing.T) {
	t.Parallel()
	e := newEngine(t, engine.Config{Policies: []engine.Policy{perDay("p", 2)}, Rules: []rules.Rule{rule("p", "user")}}, nil)
	for i, want := range []bool{true, true, false} {
		if res := take(t, e, from("a")); res.Decision.Allowed != want {
			t.Errorf("take %d: allowed %v, want %v", i, res.Decision.Allowed, want)
		}
	}
	if !take(t, e, from("b")).Decision.Allowed {
		t.Error("another user is refused")
	}
}
