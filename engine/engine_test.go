package engine_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

// TestFourTiersAreOneTake: what one tier refuses spends nothing of the others.
// req: B2.
func TestFourTiersAreOneTake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		task := by("tasks", "ratelimit:task", `attr("task")`)
		task.Match.Path = "/tasks/*"
		e := newEngine(t, engine.Config{
			Policies: policies(tokenBucket("ratelimit:ip", 10, 5), tokenBucket("ratelimit:api", 100, 20),
				tokenBucket("ratelimit:user", 20, 10), tokenBucket("ratelimit:task", 50, 15)),
			Rules: []rules.Rule{task, by("all", "ratelimit:ip", "ip", "ratelimit:api", `"global"`, "ratelimit:user",
				"user")},
		}, nil)
		request := func(path, ip, user string) *engine.Request {
			return &engine.Request{Attributes: &rules.Attributes{
				Path: path, IP: netip.MustParseAddr(ip), User: user,
				Extra: map[string]string{"task": "mail"},
			}}
		}
		if got := admitted(t, e, request("/x", "192.0.2.1", "a"), 9); got != 5 {
			t.Errorf("one address has %d at once, want its burst of 5", got)
		}
		for policy, want := range map[string]int64{"ratelimit:api": 15, "ratelimit:user": 5} {
			key := map[string]string{"ratelimit:api": "global", "ratelimit:user": "a"}[policy]
			if got := left(t, e, policy, key); got != want {
				t.Errorf("%s has %d left, want %d: refusals are free", policy, got, want)
			}
		}
		if got := admitted(t, e, request("/x", "192.0.2.2", "a"), 9); got != 5 {
			t.Errorf("another address of the same user has %d, want 5", got)
		}
		if got := admitted(t, e, request("/x", "192.0.2.3", "a"), 9); got != 0 {
			t.Errorf("a third address has %d, want none: the user had 10", got)
		}
		res := take(t, e, request("/tasks/1", "192.0.2.4", "b"))
		if !res.Decision.Allowed || res.Decision.Buckets() != 4 || len(res.Applied) != 4 ||
			res.Applied[0].Policy != "ratelimit:task" || res.Applied[0].Bucket != 0 {
			t.Errorf("a task is counted by %+v", res.Applied)
		}
		time.Sleep(6 * time.Second) // 10 a minute
		if got := admitted(t, e, request("/x", "192.0.2.1", "c"), 3); got != 1 {
			t.Errorf("after 6s the address has %d, want 1", got)
		}
	})
}

// TestThreeOutcomes: allowed, queued until it fits, refused.
// req: B7.
func TestThreeOutcomes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, engine.Config{
			Policies: policies(tokenBucket("p", 60, 1)),
			Rules:    []rules.Rule{by("r", "p", "user")},
		}, nil)
		if !take(t, e, from("a")).Decision.Allowed {
			t.Error("the first is refused")
		}
		res := take(t, e, from("a"))
		if res.Decision.Allowed || res.Decision.RetryAfter <= 0 || res.Decision.RetryAfter > time.Second {
			t.Errorf("the second: allowed %v, retry after %v", res.Decision.Allowed, res.Decision.RetryAfter)
		}
		r, start := from("a"), time.Now()
		r.Wait = true
		if res := take(t, e, r); !res.Decision.Allowed || time.Since(start) < 900*time.Millisecond {
			t.Errorf("who waits: allowed %v after %v", res.Decision.Allowed, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if res, err := e.Take(ctx, r); !errors.Is(err, drawgate.ErrDeadline) || res.Decision.Allowed ||
			res.Decision.RetryAfter == 0 {
			t.Errorf("who cannot wait long enough: %v, retry after %v", err, res.Decision.RetryAfter)
		}
		r.Hold = time.Minute
		if res, err := e.Take(ctx, r); !errors.Is(err, drawgate.ErrDeadline) || res.Decision.Allowed ||
			res.Decision.RetryAfter == 0 || res.Reservation != nil {
			t.Errorf("who cannot wait for a hold: %v, retry after %v", err, res.Decision.RetryAfter)
		}
	})
}

// TestTenantsAreIsolated: the same key of two tenants is two buckets.
// req: E4.
func TestTenantsAreIsolated(t *testing.T) {
	t.Parallel()
	r := by("r", "p", "user")
	r.Tenant = `header("X-Tenant")`
	e := newEngine(t, engine.Config{Policies: policies(perDay("p", 2)), Rules: []rules.Rule{r}},
		&engine.Options{Tenant: "home"})
	of := func(tenant string) *engine.Request {
		q := from("a")
		q.Attributes.Headers = map[string][]string{"X-Tenant": {tenant}}
		return q
	}
	for _, tenant := range []string{"acme", "acme:p", "", "acme/p:a"} {
		if got := admitted(t, e, of(tenant), 5); got != 2 {
			t.Errorf("tenant %q has %d, want its own 2", tenant, got)
		}
	}
	if got := admitted(t, e, of("home"), 5); got != 0 {
		t.Errorf("who names no tenant is of the engine's own: %d more", got)
	}
	if res := take(t, e, of("other")); res.Applied[0].Tenant != "other" || res.Applied[0].Key != "a" ||
		res.Applied[0].RuleName != "r" {
		t.Errorf("applied %+v", res.Applied)
	}
	bound := func(own, named string) *engine.Request {
		q := of(named)
		q.Attributes.Tenant = own
		return q
	}
	if got := admitted(t, e, bound("bound", ""), 5); got != 2 {
		t.Errorf("who is bound to a tenant has %d, want its own 2", got)
	}
	if res := take(t, e, bound("other", "acme")); res.Decision.Allowed || res.Applied[0].Tenant != "acme" {
		t.Errorf("what a rule names goes before: %+v", res.Applied)
	}
	if res, err := e.Match(bound("bound", "").Attributes); err != nil || res.Applied[0].Tenant != "bound" {
		t.Errorf("a look: %+v, %v", res.Applied, err)
	}
	r2 := ask("p", "a")
	r2.Asks[0].Tenant = "third"
	if got := admitted(t, e, r2, 5); got != 2 {
		t.Errorf("asked by name, a tenant has %d, want 2", got)
	}
}

// TestOverridesOfKeys: the most exact one decides, and the bucket stays the same.
// req: E3.
func TestOverridesOfKeys(t *testing.T) {
	t.Parallel()
	p := perDay("p", 2)
	p.Overrides = []engine.Override{
		{Key: "vip", Amounts: map[string]int64{"day": 5}},
		{Key: "vip", Tenant: "acme", Amounts: map[string]int64{"day": 7}},
		{Key: "vi*", Amounts: map[string]int64{"day": 3}},
		{Key: "v*", Tenant: "acme", Amounts: map[string]int64{"day": 4}},
		{Key: "*", Tenant: "tiny", Amounts: map[string]int64{"day": 1}},
	}
	strict := by("strict", "p", "user")
	strict.Match.Path = "/strict"
	strict.Apply[0].Amounts = map[string]int64{"day": 1}
	strict.Tenant = `attr("tenant")`
	rest := by("rest", "p", "user")
	rest.Tenant = `attr("tenant")`
	e := newEngine(t, engine.Config{Policies: policies(p), Rules: []rules.Rule{strict, rest}}, nil)
	for _, c := range []struct {
		path, tenant, user string
		want               int
	}{
		{"/", "", "someone", 2},
		{"/", "", "vip", 5},
		{"/", "", "vip2", 3},
		{"/", "", "vx", 2},
		{"/", "acme", "vip", 7},
		{"/", "acme", "vip2", 3},
		{"/", "acme", "vx", 4},
		{"/", "tiny", "x", 1},
		{"/", "tiny", "vip", 5},
		{"/strict", "", "other", 1},
		{"/strict", "s", "vip", 5},
	} {
		q := from(c.user)
		q.Attributes.Path, q.Attributes.Extra = c.path, map[string]string{"tenant": c.tenant}
		if got := admitted(t, e, q, 9); got != c.want {
			t.Errorf("%+v: got %d", c, got)
		}
	}
	q := from("other") // has used one, on the strict route
	if got := admitted(t, e, q, 9); got != 1 {
		t.Errorf("on another route the same bucket admits %d more, want 1", got)
	}
}

func TestAsksByName(t *testing.T) {
	t.Parallel()
	e := newEngine(t, engine.Config{
		Policies: policies(perDay("p", 2), perDay("q", 9)),
		Rules:    []rules.Rule{by("r", "p", "user", "q", "user")},
	}, nil)
	r := from("a")
	r.Asks = []engine.Ask{{Policy: "p", Key: "a", Costs: []drawgate.Cost{{N: 2}}}}
	res := take(t, e, r)
	if len(res.Applied) != 2 || res.Applied[0].Rule != -1 || res.Applied[1].Policy != "q" || res.Unmatched {
		t.Errorf("a bucket that is asked for by name is not asked for by a rule again: %+v", res.Applied)
	}
	if got := left(t, e, "p", "a"); got != 0 {
		t.Errorf("%d left, want 0", got)
	}
	_, err := e.Take(t.Context(), ask("pp", "a"))
	if !errors.Is(err, engine.ErrUnknownPolicy) || !strings.Contains(err.Error(), `did you mean "p"?`) {
		t.Errorf("error %v", err)
	}
	if _, err := e.Take(t.Context(), &engine.Request{Asks: []engine.Ask{
		{Policy: "p", Key: "a"},
		{Policy: "p", Key: "a"},
	}}); !errors.Is(err, drawgate.ErrInvalid) {
		t.Errorf("the same bucket twice: %v", err)
	}
}

func TestNothingToEnforceIsAllowed(t *testing.T) {
	t.Parallel()
	free := rules.Rule{Name: "free", Match: rules.Match{User: "root"}, Exempt: true}
	only := by("only", "p", "user")
	only.Match.User = "a"
	e := newEngine(t, engine.Config{Policies: policies(perDay("p", 2)), Rules: []rules.Rule{free, only}}, nil)
	if res := take(t, e, from("root")); !res.Decision.Allowed || !res.Exempt || res.Unmatched ||
		res.Decision.Buckets() != 0 {
		t.Errorf("exempt: %+v", res)
	}
	r := from("other")
	r.Hold = time.Minute
	if res := take(t, e, r); !res.Decision.Allowed || res.Exempt || !res.Unmatched || res.Reservation != nil {
		t.Errorf("no rule: %+v", res)
	}
	if err := (&engine.Result{}).Settle(t.Context()); err != nil {
		t.Errorf("nothing to settle: %v", err)
	}
}

// TestTooManyPoliciesAreNamed: one take has at most 64 buckets. The error names the first policies,
// so that it stays readable.
func TestTooManyPoliciesAreNamed(t *testing.T) {
	t.Parallel()
	c := engine.Config{}
	for i := range store.MaxBuckets + 1 {
		name := fmt.Sprintf("p%02d", i+1)
		c.Policies = append(c.Policies, perDay(name, 5))
		if i == 0 || i == 5 || i == 13 || len(c.Rules[len(c.Rules)-1].Apply) == rules.MaxApply {
			c.Rules = append(c.Rules, rules.Rule{})
		}
		r := &c.Rules[len(c.Rules)-1]
		r.Apply = append(r.Apply, rules.Apply{Policy: name, Key: "user"})
	}
	c.Rules[0].Name = "first"
	e := newEngine(t, c, nil)
	res, err := e.Take(t.Context(), from("u"))
	if !errors.Is(err, engine.ErrTooMany) || res.Decision.Allowed {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{
		"more than 64: ", `policy "p01" (rule 1 "first")`, `policy "p09" (rule 2)`,
		"and more",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
}

// TestCostsOfARequest take the place of what rules say, unit by unit.
func TestCostsOfARequest(t *testing.T) {
	t.Parallel()
	p := engine.Policy{Policy: drawgate.Policy{Name: "p", Limits: []drawgate.Limit{
		{Name: "tokens", Unit: "tokens", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: 1000},
		{Name: "rpd", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: 100},
	}}}
	r := by("r", "p", "user", "q", "user")
	r.Apply[0].Costs = map[string]int64{"tokens": 10, "requests": 2}
	e := newEngine(t, engine.Config{Policies: policies(p, perDay("q", 50)), Rules: []rules.Rule{r}}, nil)
	used := func(policy string) (list []int64) {
		a, _ := e.Ask(policy, "", "u")
		s, err := a.Status(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range s.States {
			list = append(list, u.Used)
		}
		return list
	}
	take(t, e, from("u"))
	if got := used("p"); got[0] != 10 || got[1] != 2 {
		t.Errorf("the rule's costs: %v", got)
	}
	q := from("u")
	q.Costs = []drawgate.Cost{{Unit: "tokens", N: 300}}
	take(t, e, q)
	if got := used("p"); got[0] != 310 || got[1] != 4 || used("q")[0] != 2 {
		t.Errorf("with the request's tokens: %v, %v", got, used("q"))
	}
	q.Costs = []drawgate.Cost{{N: 5}}
	take(t, e, q)
	if got := used("p"); got[0] != 320 || got[1] != 9 || used("q")[0] != 7 {
		t.Errorf("with the request's requests: %v, %v", got, used("q"))
	}
	q.Costs = []drawgate.Cost{{Unit: "tokenz", N: 5}}
	if _, err := e.Take(t.Context(), q); !errors.Is(err, drawgate.ErrUnknownUnit) {
		t.Errorf("a unit that nobody counts: %v", err)
	}
}

func TestHolds(t *testing.T) {
	t.Parallel()
	e := newEngine(t, engine.Config{
		Policies: policies(slots("s", 2), perDay("p", 9)),
		Rules:    []rules.Rule{by("r", "s", "user", "p", "user")},
	}, nil)
	if _, err := e.Take(t.Context(), from("u")); !errors.Is(err, drawgate.ErrNeedsReserve) {
		t.Errorf("slots without a hold: %v", err)
	}
	r := from("u")
	r.Hold, r.HoldIfNeeded = time.Minute, true
	a, b := take(t, e, r), take(t, e, r)
	if a.Reservation == nil || b.Reservation == nil {
		t.Fatal("no reservation")
	}
	if c := take(t, e, r); c.Decision.Allowed || c.Reservation != nil {
		t.Errorf("a third slot: %+v", c)
	}
	if err := a.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := take(t, e, r); !c.Decision.Allowed || c.Cancel(t.Context()) != nil {
		t.Error("no slot came free")
	}
	if err := b.Renew(t.Context(), time.Hour); err != nil || time.Until(b.Reservation.Deadline()) < 50*time.Minute {
		t.Errorf("renew: %v, until %v", err, b.Reservation.Deadline())
	}
	if got := left(t, e, "p", "u"); got != 7 {
		t.Errorf("%d left, want 7: two requests passed, one was cancelled", got)
	}
	plain := ask("p", "u")
	plain.Hold, plain.HoldIfNeeded = time.Minute, true
	if res := take(t, e, plain); !res.Decision.Allowed || res.Reservation != nil {
		t.Errorf("a hold that nobody needs: %+v", res)
	}
}

// TestIDsReplay: a reservation that is sent again is answered again.
func TestIDsReplay(t *testing.T) {
	t.Parallel()
	try := perDay("try", 3)
	try.Shadow = true
	e := newEngine(t, engine.Config{
		Policies: policies(perDay("p", 3), try),
		Rules:    []rules.Rule{by("r", "p", "user", "try", "user")},
	}, nil)
	r := from("u")
	r.Hold, r.ID, r.Grant = time.Minute, "once", 7
	for i := range 5 {
		if res := take(t, e, r); !res.Decision.Allowed || res.Decision.Replayed != (i > 0) || !res.Shadow[0].Allowed {
			t.Errorf("%d: %+v", i, res)
		}
	}
	if p, s := left(t, e, "p", "u"), left(t, e, "try", "u"); p != 2 || s != 2 {
		t.Errorf("left %d and %d, want 2", p, s)
	}
}

// TestSwitchedOff: a policy that is disabled counts nothing, and comes back by itself.
// req: B11.
func TestSwitchedOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := engine.Config{
			Policies: policies(perDay("p", 1), perDay("q", 100)),
			Rules:    []rules.Rule{by("r", "p", "user", "q", "user")},
		}
		e := newEngine(t, c, nil)
		take(t, e, from("u"))
		if err := e.Disable("p", time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		res := take(t, e, from("u"))
		if !res.Decision.Allowed || !res.Applied[0].Disabled || res.Applied[0].Bucket != -1 ||
			res.Applied[1].Bucket != 0 || res.Decision.Buckets() != 1 {
			t.Errorf("%+v", res.Applied)
		}
		if err := e.Replace(c); err != nil {
			t.Fatal(err)
		}
		if info := e.Policies(); !info[0].DisabledUntil.Equal(time.Now().Add(time.Hour)) ||
			!info[1].DisabledUntil.IsZero() || info[0].Name != "p" {
			t.Errorf("after a Replace: %+v", info)
		}
		time.Sleep(time.Hour - 1)
		if !take(t, e, from("u")).Decision.Allowed {
			t.Error("it came back too early")
		}
		time.Sleep(time.Nanosecond)
		if take(t, e, from("u")).Decision.Allowed || !e.Policies()[0].DisabledUntil.IsZero() {
			t.Error("it did not come back")
		}
		if err := errors.Join(e.Disable("p", time.Now().Add(time.Hour)), e.Enable("p")); err != nil ||
			take(t, e, from("u")).Decision.Allowed {
			t.Errorf("enabled: %v", err)
		}
		if err := e.Disable("p", time.Now()); !errors.Is(err, drawgate.ErrInvalid) {
			t.Errorf("until now: %v", err)
		}
		if err := e.Disable("x", time.Now().Add(time.Hour)); !errors.Is(err, engine.ErrUnknownPolicy) {
			t.Errorf("unknown: %v", err)
		}
		if err := e.Enable("x"); !errors.Is(err, engine.ErrUnknownPolicy) {
			t.Errorf("unknown: %v", err)
		}
	})
}

func TestMatchTakesNothing(t *testing.T) {
	t.Parallel()
	try := perDay("try", 1)
	try.Shadow = true
	e := newEngine(t, engine.Config{
		Policies: policies(perDay("p", 1), try),
		Rules:    []rules.Rule{by("r", "p", "user", "try", "ip")},
	}, nil)
	for range 3 {
		res, err := e.Match(from("u").Attributes)
		if err != nil || len(res.Applied) != 2 || res.Applied[0].Key != "u" || !res.Applied[1].Shadow ||
			res.Unmatched || res.Exempt {
			t.Errorf("%+v, %v", res, err)
		}
	}
	if got := left(t, e, "p", "u"); got != 1 {
		t.Errorf("%d left, want 1", got)
	}
}

func TestFailedExpressionsRefuse(t *testing.T) {
	t.Parallel()
	r := by("r", "p", "user")
	r.When = `int(user) > 0`
	e := newEngine(t, engine.Config{Policies: policies(perDay("p", 1)), Rules: []rules.Rule{r}}, nil)
	res, err := e.Take(t.Context(), from("sk-secret"))
	if e, ok := errors.AsType[*rules.Error](err); !ok || res.Decision.Allowed || strings.Contains(e.Error(), "secret") {
		t.Errorf("allowed %v, error %v", res.Decision.Allowed, err)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	e := newEngine(t, engine.Config{Policies: policies(perDay("p", 1))}, nil)
	e.Close()
	if _, err := e.Take(t.Context(), ask("p", "u")); !errors.Is(err, drawgate.ErrClosed) {
		t.Errorf("error %v", err)
	}
	if err := e.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

// TestDisabledByTheConfiguration: it is off as soon as the configuration is in force and on as soon
// as one is that does not say so. What was said meanwhile holds until then.
func TestDisabledByTheConfiguration(t *testing.T) {
	t.Parallel()
	on := engine.Config{Policies: policies(perDay("p", 1)), Rules: []rules.Rule{by("r", "p", "user")}}
	off := engine.Config{Policies: policies(perDay("p", 1)), Rules: on.Rules}
	off.Policies[0].Disabled = true
	e := newEngine(t, off, nil)
	expect := func(when string, want bool) {
		t.Helper()
		if a := take(t, e, from("u")).Applied[0]; a.Disabled != want {
			t.Errorf("%s: disabled is %v", when, a.Disabled)
		}
	}
	expect("from the start", true)
	if err := e.Enable("p"); err != nil {
		t.Fatal(err)
	}
	expect("enabled", false)
	for _, step := range []struct {
		name   string
		config engine.Config
		want   bool
	}{{"said again", off, true}, {"not said", on, false}, {"still not said", on, false}, {"said", off, true}} {
		if err := e.Replace(step.config); err != nil {
			t.Fatal(err)
		}
		expect(step.name, step.want)
	}
}

// What limiters of other limits are made from is no policy of anybody's: it is listed nowhere, and
// can be disabled all the same.
func TestBaseIsListedNowhere(t *testing.T) {
	t.Parallel()
	base := perDay("base", 1)
	base.Base = true
	c := engine.Config{Policies: policies(base, perDay("p", 1))}
	e := newEngine(t, c, nil)
	if list := e.Policies(); len(list) != 1 || list[0].Name != "p" || len(e.Config().Policies) != 1 {
		t.Errorf("%+v", list)
	}
	if list := engine.Compare(engine.Config{}, c); len(list) != 1 || list[0].Policy != "p" {
		t.Errorf("%v", list)
	}
	if e.Limiter("base") == nil {
		t.Error("there is nothing to make a limiter from")
	}
	if err := e.Disable("base", time.Now().Add(time.Hour)); err != nil {
		t.Error(err)
	}
	if info, ok := e.Policy("base"); !ok || info.DisabledUntil.IsZero() {
		t.Errorf("%v: %+v", ok, info)
	}
	if info, ok := e.Policy("nobody's"); ok {
		t.Errorf("%+v", info)
	}
}

// With limits switched off nobody is refused for the name of a policy that was left out with them.
func TestOffAdmitsWhoeverIsNamed(t *testing.T) {
	t.Parallel()
	e := newEngine(t, engine.Config{Policies: policies(perDay("p", 1))}, nil)
	r := ask("p", "k")
	r.Hold = time.Minute
	take(t, e, ask("p", "k"))
	if err := e.Replace(engine.Config{Off: true}); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*engine.Request{ask("p", "k"), ask("other", "k", drawgate.Cost{Unit: "tokens", N: 5}), r} {
		res := take(t, e, r)
		if a := res.Applied[0]; !res.Decision.Allowed || res.Reservation != nil || len(res.Applied) != 1 ||
			!a.Disabled || a.Bucket != -1 || a.Policy != r.Asks[0].Policy {
			t.Errorf("%+v: %+v", r.Asks, res)
		}
	}
	if err := e.Replace(engine.Config{Policies: policies(perDay("p", 1))}); err != nil ||
		take(t, e, ask("p", "k")).Decision.Allowed {
		t.Errorf("it does not limit again: %v", err)
	}
	if _, err := e.Take(t.Context(), ask("other", "k")); !errors.Is(err, engine.ErrUnknownPolicy) {
		t.Errorf("a name that nobody knows: %v", err)
	}
}

// TestAmountsOfZero let nobody pass whom they concern, and everybody else: by an override, and by a
// rule.
func TestAmountsOfZero(t *testing.T) {
	t.Parallel()
	p := perDay("day", 5)
	p.Overrides = []engine.Override{{Key: "blocked", Amounts: map[string]int64{"day": 0}}}
	e, err := engine.New(memstore.New(nil), engine.Config{Policies: []engine.Policy{p}, Rules: []rules.Rule{
		{Name: "shut", Match: rules.Match{Path: "/shut"}, Apply: []rules.Apply{{
			Policy: "day", Key: "user",
			Amounts: map[string]int64{"day": 0},
		}}},
		{Name: "all", Apply: []rules.Apply{{Policy: "day", Key: "user"}}},
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, c := range []struct {
		path, user string
		want       error
	}{{"/", "ann", nil}, {"/", "blocked", drawgate.ErrNeverFits}, {"/shut", "ann", drawgate.ErrNeverFits}} {
		res, err := e.Take(t.Context(), &engine.Request{Attributes: &rules.Attributes{Path: c.path, User: c.user}})
		if !errors.Is(err, c.want) || res.Decision.Allowed != (c.want == nil) {
			t.Errorf("%s of %s: got %v, %v, want %v", c.path, c.user, res.Decision.Allowed, err, c.want)
		}
		if len(res.Applied) != 1 || res.Applied[0].NeverFits != (c.want != nil) {
			t.Errorf("%s of %s: got %+v", c.path, c.user, res.Applied)
		}
	}
}
