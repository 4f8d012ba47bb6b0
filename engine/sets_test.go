package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

// set is a part of a request: attributes by name, and costs.
func set(text string, costs ...drawgate.Cost) engine.Set {
	a := &rules.Attributes{Extra: map[string]string{}}
	for entry := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(entry, "=")
		a.Extra[key] = value
	}
	return engine.Set{Attributes: a, Costs: costs}
}

// where is a rule for sets that have an attribute: it applies a policy by it.
func where(attr, policy string) rules.Rule {
	r := by(attr, policy, fmt.Sprintf("attr(%q)", attr))
	r.Match.Attrs = map[string]string{attr: "*"}
	return r
}

// counting counts the takes that reach a store, and fails from one on.
type counting struct {
	drawgate.Store
	takes  atomic.Int64
	failAt int64
}

func (c *counting) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if n := c.takes.Add(1); c.failAt > 0 && n >= c.failAt {
		return &drawgate.StoreError{Store: "test", Op: "take", Err: errors.New("away")}
	}
	return c.Store.Take(ctx, batch, out)
}

// over returns an engine over a store that counts.
func over(t *testing.T, c engine.Config) (*engine.Engine, *counting) {
	t.Helper()
	store := &counting{Store: memstore.New(nil)}
	e, err := engine.New(store, c, &engine.Options{StoreTimeout: time.Minute, ShadowGrace: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(); store.Close() })
	return e, store
}

// TestSetsAreOneTake: one store call decides all sets, and what one refuses spends nothing of the
// others.
// req: B2.
func TestSetsAreOneTake(t *testing.T) {
	t.Parallel()
	free := rules.Rule{Match: rules.Match{Attrs: map[string]string{"internal": "*"}}, Exempt: true}
	e, store := over(t, engine.Config{
		Policies: policies(perDay("user", 2), perDay("all", 10), perDay("ip", 9)),
		Rules:    []rules.Rule{free, where("all", "all"), where("user", "user"), where("ip", "ip")},
	})
	r := &engine.Request{Sets: []engine.Set{set("all=x"), set("user=ann"), set("unknown=x"), set("internal=x,ip=1")}}
	res := take(t, e, r)
	if !res.Decision.Allowed || res.Decision.Buckets() != 2 || res.Exempt || res.Unmatched || store.takes.Load() != 1 {
		t.Fatalf("%d store calls: %+v", store.takes.Load(), res)
	}
	if a := res.Applied; len(a) != 2 || a[0].Set != 0 || a[0].Policy != "all" || a[0].Bucket != 0 || a[1].Set != 1 ||
		a[1].Key != "ann" || a[1].Bucket != 1 {
		t.Errorf("applied %+v", a)
	}
	if got := admitted(t, e, r, 5); got != 1 || left(t, e, "all", "x") != 8 {
		t.Errorf("%d more of 1 passed, %d left for all, want 8: refusals are free", got, left(t, e, "all", "x"))
	}
	store.failAt = store.takes.Load() + 1
	if _, err := e.Take(t.Context(), &engine.Request{Sets: []engine.Set{
		set("all=x"),
		set("user=bob"),
	}}); !errors.Is(err, drawgate.ErrStoreUnavailable) {
		t.Errorf("the store is unavailable: %v", err)
	}
	if all, bob := left(t, e, "all", "x"), left(t, e, "user", "bob"); all != 8 || bob != 2 ||
		store.takes.Load() != store.failAt {
		t.Errorf("%d and %d left, want 8 and 2; %d store calls", all, bob, store.takes.Load())
	}
	for text, want := range map[string][2]bool{"internal=x": {true, false}, "unknown=x": {false, true}} {
		if res := take(t, e, &engine.Request{Sets: []engine.Set{set(text), set(text)}}); res.Exempt != want[0] ||
			res.Unmatched != want[1] || !res.Decision.Allowed {
			t.Errorf("%s: exempt %v, unmatched %v, want %v", text, res.Exempt, res.Unmatched, want)
		}
	}
}

// TestSetsOfOneBucketAddUp: the request costs what its parts cost together.
// req: B2.
func TestSetsOfOneBucketAddUp(t *testing.T) {
	t.Parallel()
	p := engine.Policy{Policy: drawgate.Policy{Name: "p", Limits: []drawgate.Limit{
		{Name: "day", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: 10},
		{Name: "tokens", Unit: "tokens", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: 1000},
		{Name: "hour", Kind: drawgate.Rolling, Window: 48 * time.Hour, Amount: 100},
	}}}
	twice := by("r", "p", `attr("user")`, "p", `attr("other")`)
	twice.Apply[0].Costs = map[string]int64{"tokens": 100}
	e, store := over(t, engine.Config{Policies: policies(p), Rules: []rules.Rule{twice}})
	long := strings.Repeat("x", 70_000)
	for i, text := range []string{"user=ann,other=ann", "user=" + long + ",other=" + long} {
		r := &engine.Request{Sets: []engine.Set{
			set(text), set(text, drawgate.Cost{N: 3}),
			set(text, drawgate.Cost{Unit: "tokens", N: 7}),
		}}
		res := take(t, e, r)
		if !res.Decision.Allowed || res.Decision.Buckets() != 1 || len(res.Applied) != 3 ||
			store.takes.Load() != int64(i+1) {
			t.Fatalf("%d store calls: %+v", store.takes.Load(), res.Applied)
		}
		for k, a := range res.Applied {
			if a.Set != k || a.Bucket != 0 {
				t.Errorf("applied %d: %+v", k, a)
			}
		}
		want := []int64{10 - 5, 1000 - 207, 100 - 5}
		for l := range res.Decision.Limits() {
			if l.Remaining != want[0] {
				t.Errorf("%s: %d left, want %d", l.Limit.Name, l.Remaining, want[0])
			}
			want = want[1:]
		}
	}
	both := &engine.Request{Sets: []engine.Set{
		set("user=bob,other=x", drawgate.Cost{N: 6}),
		set("user=bob,other=y", drawgate.Cost{N: 6}),
	}}
	res, err := e.Take(t.Context(), both)
	if !errors.Is(err, drawgate.ErrNeverFits) || len(res.Applied) != 4 || !res.Applied[0].NeverFits ||
		res.Applied[1].NeverFits || !res.Applied[2].NeverFits {
		t.Errorf("6 and 6 of 10: %v, %+v", err, res.Applied)
	}
	if _, err := e.Take(t.Context(), &engine.Request{Sets: []engine.Set{
		set("user=bob", drawgate.Cost{N: 6}),
		set("user=bob", drawgate.Cost{N: -5}),
	}}); !errors.Is(err, drawgate.ErrInvalid) {
		t.Errorf("6 and -5: %v", err)
	}
	if _, err := e.Take(t.Context(), &engine.Request{Sets: []engine.Set{
		set("user=bob"),
		set("user=bob", drawgate.Cost{Unit: "tokenz", N: 1}),
	}}); !errors.Is(err, drawgate.ErrUnknownUnit) {
		t.Errorf("a unit that nobody counts: %v", err)
	}
	named := &engine.Request{
		Asks: []engine.Ask{{Policy: "p", Key: "bob"}},
		Sets: []engine.Set{set("user=bob,other=cid"), set("user=bob,other=cid")},
	}
	if res := take(t, e, named); len(res.Applied) != 3 || left(t, e, "p", "bob") != 9 || left(t, e, "p", "cid") != 8 {
		t.Errorf("a bucket that is named is not asked for by rules: %+v", res.Applied)
	}
}

// TestSetsPassTheLowerAmounts of a bucket, limit by limit.
func TestSetsPassTheLowerAmounts(t *testing.T) {
	t.Parallel()
	p := engine.Policy{Policy: drawgate.Policy{Name: "p", Limits: []drawgate.Limit{
		{Name: "wide", Kind: drawgate.Rolling, Window: 48 * time.Hour, Amount: 100},
		{Name: "tight", Kind: drawgate.Bucket, Window: 24 * time.Hour, Amount: 50},
	}}}
	with := func(attr string, hourly, burst int64) rules.Rule {
		r := where(attr, "p")
		r.Apply[0].Key, r.Apply[0].Amounts = `attr("user")`, map[string]int64{"wide": hourly, "tight.burst": burst}
		return r
	}
	for _, sets := range [][]engine.Set{
		{set("user=ann,a=1"), set("user=ann,b=1")},
		{set("user=bob,b=1"), set("user=bob,a=1")},
		{set("user=cid,b=1"), set("user=cid,c=1")},
		{set("user=dan,a=1"), set("user=dan,c=1")},
		{set("user=eve,b=1"), set("user=eve,a=1"), set("user=eve,c=1")},
	} {
		e := newEngine(t, engine.Config{
			Policies: policies(p),
			Rules:    []rules.Rule{with("a", 8, 40), with("b", 90, 12), with("c", 5, 6)},
		}, nil)
		want := map[string]int{"ann": 4, "bob": 4, "cid": 2, "dan": 2, "eve": 1}[sets[0].Attributes.Extra["user"]]
		if got := admitted(t, e, &engine.Request{Sets: sets}, 9); got != want {
			t.Errorf("%v: %d passed, want %d", sets[0].Attributes.Extra, got, want)
		}
	}
}

// TestSetsThatWait keep waiting by the lower of the amounts that are in force by then.
func TestSetsThatWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		config := func(own, n int64) engine.Config {
			more := where("more", "p")
			more.Apply[0].Key, more.Apply[0].Amounts = `attr("user")`, map[string]int64{"day": n}
			return engine.Config{Policies: policies(perDay("p", own)), Rules: []rules.Rule{more, where("user", "p")}}
		}
		e := newEngine(t, config(2, 2), nil)
		take(t, e, ask("p", "u"))
		done := make(chan error)
		go func() {
			r := &engine.Request{Sets: []engine.Set{set("user=u,more=1"), set("user=u")}, Wait: true}
			_, err := e.Take(t.Context(), r)
			done <- err
		}()
		synctest.Wait()
		for _, c := range []engine.Config{config(2, 9), config(9, 2)} {
			if err := e.Replace(c); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatalf("two more of 2 with one used: %v", err)
			default:
			}
		}
		if err := e.Replace(config(3, 3)); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil || left(t, e, "p", "u") != 0 {
			t.Errorf("%v, %d left", err, left(t, e, "p", "u"))
		}
	})
}

// TestSetsInShadow are one take beside the enforced one.
func TestSetsInShadow(t *testing.T) {
	t.Parallel()
	try := where("user", "p")
	try.Name, try.Shadow = "try", true
	divergences := 0
	e := newEngine(t, engine.Config{
		Policies: policies(perDay("p", 3), perDay("q", 9), slots("s", 1)),
		Rules: []rules.Rule{
			try, where("all", "q"), {Name: "slots", Shadow: true, Apply: []rules.Apply{{Policy: "s", Key: `"global"`}}},
		},
	}, &engine.Options{Diverged: func(d *engine.Divergence) { divergences++ }})
	r := &engine.Request{Sets: []engine.Set{set("user=ann"), set("user=ann"), set("all=x,user=bob")}}
	for i := range 2 {
		res := take(t, e, r)
		if !res.Decision.Allowed || res.Decision.Buckets() != 1 || len(res.Shadow) != 5 || divergences != i {
			t.Fatalf("%d told: %+v", divergences, res)
		}
		if s := res.Shadow[0]; s.Allowed != (i == 0) || s.Decision.Buckets() != 2 ||
			i == 1 && s.Divergence != engine.WouldRefuse {
			t.Errorf("shadow %+v", s)
		}
	}
}

func TestSetsThatCannotBe(t *testing.T) {
	t.Parallel()
	e := newEngine(t, engine.Config{Policies: policies(perDay("p", 100)), Rules: []rules.Rule{where("user", "p")}}, nil)
	many := &engine.Request{}
	for i := range store.MaxBuckets + 1 {
		many.Sets = append(many.Sets, set(fmt.Sprint("user=", i)), set(fmt.Sprint("user=", i)))
	}
	if _, err := e.Take(t.Context(), many); !errors.Is(err, engine.ErrTooMany) ||
		!strings.Contains(err.Error(), "more than 64: ") {
		t.Errorf("too many: %v", err)
	}
	many.Sets = many.Sets[2:]
	if res := take(t, e, many); !res.Decision.Allowed || res.Decision.Buckets() != store.MaxBuckets {
		t.Errorf("just as many as there may be: %+v", res)
	}
	for name, r := range map[string]*engine.Request{
		"both":  {Attributes: from("u").Attributes, Sets: []engine.Set{set("user=u")}},
		"empty": {Sets: make([]engine.Set, 1)},
		"costs": {Costs: []drawgate.Cost{{N: 1}}, Sets: []engine.Set{set("user=u")}},
	} {
		if _, err := e.Take(t.Context(), r); !errors.Is(err, drawgate.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSetsThatAskTooMuchTogether: what two sets ask of one bucket never passes a limit that could
// grant each, were they capped to what can be counted.
// req: B2.
func TestSetsThatAskTooMuchTogether(t *testing.T) {
	t.Parallel()
	all := func(name string) engine.Policy {
		return engine.Policy{Policy: drawgate.Policy{Name: name, Limits: []drawgate.Limit{
			{
				Name: "tokens", Unit: "tokens", Kind: drawgate.Rolling, Window: 24 * time.Hour,
				Amount: drawgate.MaxAmount,
			},
		}}}
	}
	try, key := where("user", "try"), where("key", "p")
	try.Shadow = true
	// callers name them
	try.Apply[0].Costs, key.Apply[0].Costs = map[string]int64{"tokens": 0}, map[string]int64{"tokens": 0}
	shadowed := all("beside")
	shadowed.Shadow = true
	e, store := over(t, engine.Config{
		Policies: policies(all("p"), all("try"), shadowed, perDay("q", 5)),
		Rules:    []rules.Rule{key, try, where("all", "q")},
	})
	c := drawgate.Cost{Unit: "tokens", N: drawgate.MaxAmount}
	r := &engine.Request{Sets: []engine.Set{set("all=x"), set("key=a", c), set("key=a", c), set("key=a", c)}}
	res, err := e.Take(t.Context(), r)
	if never, ok := errors.AsType[*drawgate.NeverFitsError](err); !ok || res.Decision.Allowed ||
		store.takes.Load() != 0 || never.N != 2*c.N || never.Max != c.N || never.Limit != "tokens" {
		t.Fatalf("%v, after %d store calls: %+v", err, store.takes.Load(), res.Decision)
	}
	if a := res.Applied; len(a) != 4 || a[0].NeverFits || !a[1].NeverFits || !a[2].NeverFits || !a[3].NeverFits {
		t.Errorf("applied %+v", a)
	}
	r.Priority = drawgate.MaxPriority + 1
	if _, err := e.Take(t.Context(), r); !errors.Is(err, drawgate.ErrInvalid) {
		t.Errorf("priority 10: %v", err)
	}
	named := &engine.Request{Asks: []engine.Ask{{Policy: "p", Key: "a", Costs: []drawgate.Cost{c, c}}}}
	if _, err := e.Take(t.Context(), named); !errors.Is(err, drawgate.ErrInvalid) ||
		!strings.Contains(err.Error(), "more than 1000000000000 tokens") || store.takes.Load() != 0 {
		t.Errorf("one ask names the unit twice: %v", err)
	}
	lease := &engine.Request{Sets: []engine.Set{set("key=a", c), set("key=a", c)}, Hold: time.Minute, Lease: true}
	if res := take(t, e, lease); !res.Decision.Allowed || left(t, e, "p", "a") != 0 {
		t.Errorf("of a lease any part is welcome: %+v", res.Decision)
	}
	for i, wrong := range []drawgate.Cost{c, {Unit: "tokens", N: -1}} {
		res := take(t, e, &engine.Request{Sets: []engine.Set{set("all=x"), set("user=u", c), set("user=u", wrong)}})
		if s := res.Shadow; !res.Decision.Allowed || res.Decision.Buckets() != 1 || len(s) != 1 || s[0].Allowed ||
			(s[0].Divergence == engine.WouldRefuse) != (i == 0) ||
			errors.Is(s[0].Err, drawgate.ErrInvalid) != (i == 1) {
			t.Errorf("in shadow, with %+v: %+v", wrong, res)
		}
	}
	named = &engine.Request{Asks: []engine.Ask{
		{Policy: "q", Key: "x"},
		{Policy: "beside", Key: "a", Costs: []drawgate.Cost{c, c}},
	}}
	if res := take(t, e, named); !res.Decision.Allowed || len(res.Shadow) != 1 ||
		!errors.Is(res.Shadow[0].Err, drawgate.ErrInvalid) {
		t.Errorf("in shadow, by name: %+v", res)
	}
	if got := left(t, e, "q", "x"); got != 2 {
		t.Errorf("%d left, want 2", got)
	}
}

// TestManySetsAreNotGathered beyond what a take can hold. Those of one bucket are one take, however
// many they are.
func TestManySetsAreNotGathered(t *testing.T) {
	t.Parallel()
	try := where("try", "p")
	try.Shadow = true
	e := newEngine(t, engine.Config{
		Policies: policies(perDay("p", 30_000)),
		Rules:    []rules.Rule{where("user", "p"), try},
	}, nil)
	for _, attr := range []string{"user", "try"} {
		r := &engine.Request{}
		for i := range 20_000 {
			r.Sets = append(r.Sets, set(fmt.Sprint(attr, "=", i)))
		}
		res, err := e.Take(t.Context(), r)
		if !errors.Is(err, engine.ErrTooMany) || len(res.Applied) != store.MaxBuckets+1 || len(err.Error()) > 1000 {
			t.Errorf("%s: %d applied, %v", attr, len(res.Applied), err)
		}
	}
	r := &engine.Request{Sets: slices.Repeat([]engine.Set{set("user=u")}, 20_000)}
	if res := take(t, e, r); !res.Decision.Allowed || left(t, e, "p", "u") != 10_000 {
		t.Errorf("20,000 sets of one bucket: %+v", res.Decision)
	}
}

// TestWithinOneTenant: a request that may not leave a tenant takes nothing if a rule, or an ask by
// name, counts it for another one.
func TestWithinOneTenant(t *testing.T) {
	t.Parallel()
	own, other := where("own", "p"), where("other", "p")
	other.Tenant = `"other"`
	e, store := over(t, engine.Config{
		Policies: []engine.Policy{{Policy: drawgate.Policy{
			Name:   "p",
			Limits: []drawgate.Limit{{Name: "l", Kind: drawgate.Rolling, Window: time.Hour, Amount: 9}},
		}}},
		Rules: []rules.Rule{own, other},
	})
	ask := func(tenant string) []engine.Ask { return []engine.Ask{{Policy: "p", Tenant: tenant, Key: "k"}} }
	matching := func(attr string) *rules.Attributes {
		return &rules.Attributes{Tenant: "acme", Extra: map[string]string{attr: "k"}}
	}
	for _, c := range []struct {
		what string
		r    engine.Request
		ok   bool
	}{
		{"its own by name", engine.Request{Asks: ask("acme")}, true},
		{"another by name", engine.Request{Asks: ask("other")}, false},
		{"the engine's own", engine.Request{Asks: ask("")}, false},
		{"its own by a rule", engine.Request{Attributes: matching("own")}, true},
		{"another by a rule", engine.Request{Attributes: matching("other")}, false},
	} {
		before := store.takes.Load()
		c.r.Within = "acme"
		_, err := e.Take(t.Context(), &c.r)
		if took := store.takes.Load() > before; took != c.ok || c.ok != (err == nil) ||
			!c.ok && !errors.Is(err, engine.ErrOtherTenant) {
			t.Errorf("%s: taken %v, %v", c.what, took, err)
		}
	}
}
