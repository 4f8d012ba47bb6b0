package rls_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/rls"
	"github.com/drawgate/drawgate/store/redisstore"
)

// The tests of this file are the lines of PEERS.md that concern this protocol, by their numbers
// there: what peers get wrong.

// req: PEERS 1. Every descriptor is counted, and compared afterwards: refused traffic eats what
// others share. And reading before counting does not help
// where several do.
func TestPeers01RefusalSpendsNothingInAnyDescriptor(t *testing.T) {
	t.Parallel()
	c := client(t, `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: all, rate_limit: {unit: hour, requests_per_unit: 200}}
`, nil)
	var wg sync.WaitGroup
	var passed atomic.Int64
	for range 8 {
		wg.Go(func() {
			for range 50 {
				r, err := c.ShouldRateLimit(context.Background(),
					request("d", descriptor("all=x"), descriptor("user=greedy")))
				if err == nil && r.GetOverallCode() == ok {
					passed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if passed.Load() != 10 {
		t.Errorf("%d passed, want the 10 of the user's rate", passed.Load())
	}
	if s := answered(t, c, request("d", hits(descriptor("all=x"), 0))).GetStatuses()[0]; s.GetLimitRemaining() != 190 {
		t.Errorf("%d of 200 remain of what all share, want 190: 390 refusals were to cost nothing",
			s.GetLimitRemaining())
	}
}

// req: PEERS 1, E9. A rate in shadow that is over takes the cost of the enforced ones away.
func TestPeers01ShadowOverItsLimitChangesNothing(t *testing.T) {
	t.Parallel()
	c := client(t, `
domain: d
descriptors:
  - {key: soft, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: hard, rate_limit: {unit: hour, requests_per_unit: 4}}
`, &rls.Options{Metadata: true, ShadowHeader: true})
	both := request("d", descriptor("soft=x"), descriptor("hard=x"))
	for i := range 4 {
		a := answered(t, c, both)
		if a.GetOverallCode() != ok || a.GetStatuses()[0].GetCode() != ok ||
			a.GetStatuses()[1].GetLimitRemaining() != uint32(3-i) {
			t.Fatalf("request %d: %v", i+1, a)
		}
		want := ""
		if i > 0 {
			want = "rls/d/soft;would_refuse"
		}
		if got := header(a, "X-RateLimit-Shadow"); got != want {
			t.Errorf("request %d: shadow header %q, want %q", i+1, got, want)
		}
	}
	a := answered(t, c, both)
	if a.GetOverallCode() != over || a.GetStatuses()[0].GetCode() != ok || a.GetStatuses()[1].GetCode() != over {
		t.Errorf("beyond the enforced rate: %v", a)
	}
}

// req: PEERS 9. Two instances count by their own clocks, and so in two windows.
func TestPeers09InstancesWithSkewedClocksShareOneWindow(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	unit := "month"
	if tomorrow := time.Now().UTC().AddDate(0, 0, 1); tomorrow.Day() == 1 && tomorrow.Weekday() != time.Monday {
		unit = "week" // which does not end tonight
	}
	for windows, name := range map[rls.Windows]string{rls.Rolling: "rolling", rls.Aligned: "aligned"} {
		text := "domain: " + name + "\ndescriptors:\n  - {key: user, rate_limit: {unit: " + unit +
			", requests_per_unit: 20}}\n"
		ask := func(n int) (passed int, a *ratelimit.RateLimitResponse) {
			store, err := redisstore.Open(server.URL(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			c, err := rls.ParseConfig("f", []byte(text), &rls.ConfigOptions{Windows: windows})
			if err != nil {
				t.Fatal(err)
			}
			e, err := engine.New(store, engine.Config{Policies: c.Policies()},
				&engine.Options{StoreTimeout: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			s := rls.New(e, &rls.Options{Config: c})
			for range n {
				if a, err = s.ShouldRateLimit(context.Background(), request(name, descriptor("user=ann"))); err != nil {
					t.Fatal(err)
				}
				if a.GetOverallCode() == ok {
					passed++
				}
			}
			return passed, a
		}
		first, before := ask(12)
		second, after := 0, before
		synctest.Test(t, func(t *testing.T) { // here it is the year 2000
			if year := time.Now().Year(); year != 2000 {
				t.Errorf("the clock is not skewed: it is %d", year)
			}
			second, after = ask(12)
		})
		third, last := ask(1)
		if first != 12 || second != 8 || third != 0 {
			t.Errorf("%s: %d, %d and %d passed, want 12, the other 8 and none", name, first, second, third)
		}
		reset := func(a *ratelimit.RateLimitResponse) time.Duration {
			return a.GetStatuses()[0].GetDurationUntilReset().AsDuration()
		}
		for _, a := range []*ratelimit.RateLimitResponse{before, after, last} {
			if reset(a) <= 0 || reset(a) > 31*24*time.Hour || (reset(a)-reset(last)).Abs() > time.Minute {
				t.Errorf("%s: it resets in %v, %v and %v by turns", name, reset(before), reset(after), reset(last))
				break
			}
		}
	}
}

// req: PEERS 14. There is no Retry-After, or it is the whole window.
func TestPeers14RefusalHasRetryAfter(t *testing.T) {
	t.Parallel()
	c := client(t, `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: second, unit_multiplier: 100, requests_per_unit: 1}}
  - {key: banned, rate_limit: {unit: hour, requests_per_unit: 0}}
`, nil)
	r := request("d", descriptor("user=ann"))
	if a := answered(t, c, r); header(a, "Retry-After") != "" {
		t.Errorf("it passed: %v", a)
	}
	if after, err := strconv.Atoi(header(answered(t, c, r), "Retry-After")); err != nil || after < 90 || after > 100 {
		t.Errorf("Retry-After %d, %v; want nearly 100", after, err)
	}
	if a := answered(t, c, request("d", descriptor("banned=x"))); header(a, "Retry-After") != "" {
		t.Errorf("no wait helps here: %v", a)
	}
	r = request("d", hits(descriptor("user=bob"), 2))
	if a := answered(t, c, r); a.GetOverallCode() != over || header(a, "Retry-After") != "" {
		t.Errorf("2 hits never fit into 1: %v", a)
	}
}

// req: PEERS 15. A cost above the limit waits for ever, or loops.
func TestPeers15MoreHitsThanTheLimitAreRefusedAndSpendNothing(t *testing.T) {
	t.Parallel()
	c := client(t, `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: all, rate_limit: {unit: hour, requests_per_unit: 100}}
`, nil)
	r := request("d", descriptor("user=ann"), descriptor("all=x"))
	r.HitsAddend = 6
	a := answered(t, c, r)
	if a.GetOverallCode() != over || a.GetStatuses()[0].GetCode() != over || a.GetStatuses()[1].GetCode() != ok ||
		a.GetStatuses()[1].GetLimitRemaining() != 100 {
		t.Errorf("6 hits of 5: %v", a)
	}
	a = answered(t, c, request("d", hits(descriptor("user=ann"), 1<<63), descriptor("all=x")))
	if a.GetOverallCode() != over || a.GetStatuses()[1].GetLimitRemaining() != 100 {
		t.Errorf("2^63 hits: %v", a)
	}
	passes(t, c, "d", "user=ann", 5)
}

// req: PEERS 16. A cache of what is over its limit hides a refund, or a raised limit, until the
// window ends.
func TestPeers16RefundAndRaisedLimitCountAtOnce(t *testing.T) {
	t.Parallel()
	text := func(n string) string {
		return "domain: d\ndescriptors:\n  - {key: user, rate_limit: {unit: hour, requests_per_unit: " + n + "}}\n"
	}
	s, e := service(t, memory(t), config(t, text("2")), &rls.Options{Refunds: true})
	c, _ := serve(t, s)
	passes(t, c, "d", "user=ann", 2)
	if a := answered(t, c, request("d", negative(descriptor("user=ann"), 1))); a.GetOverallCode() != ok ||
		a.GetStatuses()[0].GetLimitRemaining() != 1 {
		t.Errorf("a refund: %v", a)
	}
	passes(t, c, "d", "user=ann", 1)
	raised := config(t, text("5"))
	put(t, e, s, raised)
	passes(t, c, "d", "user=ann", 3)
}

// req: PEERS 8. Limits that requests carry admit without bound when they alternate, and a refund is
// not clamped.
func TestPeers08OverridesShareTheRulesBucket(t *testing.T) {
	t.Parallel()
	c := client(t, "domain: d\ndescriptors:\n  - {key: user, rate_limit: {unit: hour, requests_per_unit: 5}}\n",
		&rls.Options{Refunds: true})
	carrying := func(n uint32) *common.RateLimitDescriptor {
		d := descriptor("user=ann")
		d.Limit = limitOf(t, "HOUR", n)
		return d
	}
	passed := 0
	for i := range 40 {
		d := descriptor("user=ann")
		if i%3 > 0 {
			d = carrying(uint32(6 + i%3))
		}
		if answered(t, c, request("d", d)).GetOverallCode() == ok {
			passed++
		}
	}
	if passed != 8 {
		t.Errorf("%d passed limits of 5, 7 and 8, want 8", passed)
	}
	for range 5 {
		answered(t, c, request("d", negative(descriptor("user=ann"), 1000)))
	}
	passes(t, c, "d", "user=ann", 5)
}

// req: PEERS 20. An answer that was given without the store looks like any other.
func TestPeers20FallbackIsMarked(t *testing.T) {
	t.Parallel()
	s, _ := service(t, marking{memory(t)},
		config(t, "domain: d\ndescriptors:\n  - {key: user, rate_limit: {unit: hour, requests_per_unit: 5}}\n"), nil)
	c, _ := serve(t, s)
	a := answered(t, c, request("d", descriptor("user=ann")))
	if header(a, "X-RateLimit-Fallback") != "true" || !a.GetDynamicMetadata().GetFields()["fallback"].GetBoolValue() {
		t.Errorf("decided without the store: %v", a)
	}
}

// req: PEERS 21. Parts of a key that are joined without a mark between them: two clients share a
// counter.
func TestPeers21DifferentDescriptorsShareNothing(t *testing.T) {
	t.Parallel()
	c := client(t, `
domain: d
descriptors:
  - key: a
    descriptors:
      - {key: b, rate_limit: {unit: hour, requests_per_unit: 1}}
      - {key: b_c, rate_limit: {unit: hour, requests_per_unit: 1}}
  - key: x
    value: y
    rate_limit: {unit: hour, requests_per_unit: 1}
`, nil)
	for _, d := range []string{
		"a=1|2,b=3", "a=1,b=2|3", `a=1\,b=|2`, `a=1,b=\|2`, "a=1_b,b=2", "a=1,b=b_2",
		"a=1,b_c=2", "a=1,b=c_2",
	} {
		passes(t, c, "d", d, 1)
	}
	// A file's key and value match an entry's key and value, and no other way to cut the same text.
	free(t, c, "d", "x_y=", 3)
	passes(t, c, "d", "x=y", 1)
	// The same holds for limits that descriptors carry.
	for _, text := range []string{"q=1|r,s=2", "q=1,r|s=2", `q=1\,|r=2`} {
		d := descriptor(text)
		d.Limit = limitOf(t, "HOUR", 1)
		if a := answered(t, c, request("d", d)); a.GetOverallCode() != ok {
			t.Errorf("%s: refused by another's bucket", text)
		}
	}
}
