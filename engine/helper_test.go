package engine_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/store/memstore"
)

// perDay is a policy whose count a test cannot outlast.
func perDay(name string, n int64) engine.Policy {
	return engine.Policy{Policy: drawgate.Policy{Name: name, Limits: []drawgate.Limit{
		{Name: "day", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: n, Precision: drawgate.Exact},
	}}}
}

// slots is a policy of n slots.
func slots(name string, n int64) engine.Policy {
	return engine.Policy{Policy: drawgate.Policy{
		Name:   name,
		Limits: []drawgate.Limit{{Name: "slots", Kind: drawgate.Concurrency, Amount: n}},
	}}
}

// tokenBucket is a policy of n a minute.
func tokenBucket(name string, n, burst int64) engine.Policy {
	return engine.Policy{Policy: drawgate.Policy{Name: name, Limits: []drawgate.Limit{
		{Name: "minute", Kind: drawgate.Bucket, Window: time.Minute, Amount: n, Burst: burst},
	}}}
}

// by is a rule that applies policies by keys, given in turn.
func by(name string, pairs ...string) rules.Rule {
	r := rules.Rule{Name: name}
	for i := 0; i < len(pairs); i += 2 {
		r.Apply = append(r.Apply, rules.Apply{Policy: pairs[i], Key: pairs[i+1]})
	}
	return r
}

func policies(list ...engine.Policy) []engine.Policy { return list }

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
	return &engine.Request{Attributes: &rules.Attributes{
		Method: "GET", Path: "/", User: user,
		IP: netip.MustParseAddr("192.0.2.1"),
	}}
}

// ask is a request that names a policy.
func ask(policy, key string, costs ...drawgate.Cost) *engine.Request {
	return &engine.Request{Asks: []engine.Ask{{Policy: policy, Key: key, Costs: costs}}}
}

// admitted counts how many of n takes are.
func admitted(t testing.TB, e *engine.Engine, r *engine.Request, n int) (count int) {
	t.Helper()
	for range n {
		if take(t, e, r).Decision.Allowed {
			count++
		}
	}
	return count
}

// left returns what a bucket has left.
func left(t testing.TB, e *engine.Engine, policy, key string) int64 {
	t.Helper()
	a, err := e.Ask(policy, "", key)
	if err != nil {
		t.Fatal(err)
	}
	s, err := a.Status(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return s.States[0].Max - s.States[0].Used
}
