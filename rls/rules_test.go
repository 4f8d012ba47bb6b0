package rls_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/rls"
	"github.com/drawgate/drawgate/rules"
)

// byRules serves an engine with rules of its own.
func byRules(t *testing.T, c engine.Config, opts *rls.Options) ratelimit.RateLimitServiceClient {
	t.Helper()
	e, err := engine.New(memory(t), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	client, _ := serve(t, rls.New(e, opts))
	return client
}

func hourly(name string, n int64) engine.Policy {
	return engine.Policy{Policy: drawgate.Policy{Name: name, Limits: []drawgate.Limit{{Name: "hour", Kind: drawgate.Rolling, Window: time.Hour, Amount: n}}}}
}

// req: E3.
func TestRulesDecideByEntries(t *testing.T) {
	t.Parallel()
	c := byRules(t, engine.Config{
		Policies: []engine.Policy{hourly("per-user", 2), hourly("per-ip", 3)},
		Rules: []rules.Rule{
			{Match: rules.Match{Class: "internal"}, Exempt: true},
			{Match: rules.Match{Class: "privileged"}, Apply: []rules.Apply{{Policy: "per-user", Key: "user", Amounts: map[string]int64{"hour": 5}}}},
			{Match: rules.Match{Attrs: map[string]string{"domain": "api", "user": "*"}}, Apply: []rules.Apply{{Policy: "per-user", Key: "user"}}},
			{
				Match: rules.Match{IPs: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Path: "/v1/*"},
				Apply: []rules.Apply{{Policy: "per-ip", Key: "ip"}},
			},
		},
	}, nil)
	passes(t, c, "api", "user=ann", 2)
	passes(t, c, "api", "user=bob,class=privileged", 5)
	free(t, c, "api", "user=cid,class=internal", 9)
	free(t, c, "other", "user=ann", 9)
	passes(t, c, "other", "remote_address=192.0.2.9,path=/v1/x?y=z", 3)
	free(t, c, "other", "remote_address=198.51.100.9,path=/v1/x", 9)
}

func TestRulesTellTheLimit(t *testing.T) {
	t.Parallel()
	c := byRules(t, engine.Config{
		Policies: []engine.Policy{{Policy: drawgate.Policy{Name: "p", Limits: []drawgate.Limit{
			{Name: "wide", Kind: drawgate.Calendar, Every: drawgate.Month, Amount: 100},
			{Name: "tight", Kind: drawgate.Rolling, Window: 90 * time.Minute, Amount: 3},
		}}}},
		Rules: []rules.Rule{{Apply: []rules.Apply{{Policy: "p", Key: `"global"`}}}},
	}, &rls.Options{Headers: rls.HeadersDraft})
	a := free(t, c, "any", "k=v", 1)
	s := a.GetStatuses()[0]
	if l := s.GetCurrentLimit(); l.GetName() != "p/tight" || l.GetUnit() != ratelimit.RateLimitResponse_RateLimit_MINUTE || l.GetUnitMultiplier().GetValue() != 90 {
		t.Errorf("limit %v", l)
	}
	if s.GetLimitRemaining() != 2 || s.GetDurationUntilReset().AsDuration() > 90*time.Minute || !strings.Contains(header(a, "Ratelimit"), "p/tight") {
		t.Errorf("status %v, headers %v", s, a.GetResponseHeadersToAdd())
	}
	passes(t, c, "any", "k=v", 2)
}

// req: PEERS 1.
func TestRulesRefuseAllDescriptorsOrNone(t *testing.T) {
	t.Parallel()
	c := byRules(t, engine.Config{
		Policies: []engine.Policy{hourly("per-user", 2), hourly("all", 10)},
		Rules: []rules.Rule{
			{Match: rules.Match{Attrs: map[string]string{"user": "*"}}, Apply: []rules.Apply{{Policy: "per-user", Key: "user"}}},
			{Match: rules.Match{Attrs: map[string]string{"all": "*"}}, Apply: []rules.Apply{{Policy: "all", Key: `"global"`}}},
		},
	}, nil)
	for _, order := range [][]*common.RateLimitDescriptor{
		{descriptor("all=x"), descriptor("user=ann"), descriptor("nothing=x")}, {descriptor("user=bob"), descriptor("all=x"), descriptor("nothing=x")},
	} {
		r := request("any", order...)
		for range 2 {
			if a := answered(t, c, r); a.GetOverallCode() != ok {
				t.Fatalf("refused with room: %v", a)
			}
		}
		for range 3 {
			if a := answered(t, c, r); a.GetOverallCode() != over || a.GetStatuses()[2].GetCode() != ok {
				t.Fatalf("the user's limit is used up: %v", a)
			}
		}
	}
	passes(t, c, "any", "all=x", 6) // of 10; the six refusals spent nothing
}

func TestRulesPeekReportAndRefund(t *testing.T) {
	t.Parallel()
	policy := engine.Policy{Policy: drawgate.Policy{Name: "p", Limits: []drawgate.Limit{
		{Name: "requests", Kind: drawgate.Rolling, Window: time.Hour, Amount: 4},
		{Name: "tokens", Unit: "tokens", Kind: drawgate.Rolling, Window: time.Hour, Amount: 1000},
	}}}
	c := byRules(t, engine.Config{
		Policies: []engine.Policy{policy, hourly("soft", 1)},
		Rules: []rules.Rule{
			{Shadow: true, Apply: []rules.Apply{{Policy: "soft", Key: `"global"`}}},
			{Match: rules.Match{Attrs: map[string]string{"user": "*"}}, Apply: []rules.Apply{{Policy: "p", Key: "user", Costs: map[string]int64{"tokens": 10}}}},
		},
	}, &rls.Options{Refunds: true})
	left := func(want uint32, code ratelimit.RateLimitResponse_Code) {
		t.Helper()
		for range 2 {
			a := answered(t, c, request("any", hits(descriptor("user=ann"), 0)))
			if s := a.GetStatuses()[0]; s.GetLimitRemaining() != want || a.GetOverallCode() != code || s.GetCode() != code {
				t.Errorf("a look: %v, want %d left and %v", a, want, code)
			}
		}
	}
	free(t, c, "any", "user=ann", 2)
	left(2, ok)
	if a := answered(t, c, request("any", hits(descriptor("user=ann,"+rls.ReportKey+"=x"), 3))); a.GetOverallCode() != ok {
		t.Errorf("a report of 3 with 2 left: %v", a)
	}
	left(0, over)
	if a := answered(t, c, request("any", negative(descriptor("user=ann"), 2))); a.GetOverallCode() != ok {
		t.Errorf("a refund: %v", a)
	}
	left(1, ok)
	free(t, c, "any", "unknown=x", 3)
	free(t, c, "any", "unknown=x", 3)
	if a := answered(t, c, request("any", hits(descriptor("user=ann"), 5))); a.GetOverallCode() != over || header(a, "Retry-After") != "" {
		t.Errorf("5 hits of 4: %v", a)
	}
	left(1, ok)
}

func TestRulesWithSlotsNeedAnotherProtocol(t *testing.T) {
	t.Parallel()
	c := byRules(t, engine.Config{
		Policies: []engine.Policy{{Policy: drawgate.Policy{Name: "slots", Limits: []drawgate.Limit{{Name: "slots", Kind: drawgate.Concurrency, Amount: 1}}}}},
		Rules:    []rules.Rule{{Match: rules.Match{Attrs: map[string]string{"k": "*"}}, Apply: []rules.Apply{{Policy: "slots", Key: `"global"`}}}},
	}, nil)
	if a, err := c.ShouldRateLimit(t.Context(), request("any", descriptor("k=v"))); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("%v, %v", a, err)
	}
	for range 2 { // what was held meanwhile is given back
		if a, err := c.ShouldRateLimit(t.Context(), request("any", descriptor("k=v"), descriptor("other=w"))); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%v, %v: nothing releases a slot", a, err)
		}
	}
}

// TestLooksByTheRulesAmounts: a rule's own amounts hold for a look too.
func TestLooksByTheRulesAmounts(t *testing.T) {
	t.Parallel()
	p := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{{Name: "hour", Kind: drawgate.Rolling, Amount: 2, Window: time.Hour}}}
	c := byRules(t, engine.Config{Policies: []engine.Policy{{Policy: p}}, Rules: []rules.Rule{
		{Apply: []rules.Apply{{Policy: "p", Key: "user", Amounts: map[string]int64{"hour": 10}}}},
	}}, nil)
	for range 5 {
		if a := answered(t, c, request("d", descriptor("user=u"))); a.GetOverallCode() != ok {
			t.Fatal(a)
		}
	}
	if a := answered(t, c, request("d", hits(descriptor("user=u"), 0))); a.GetOverallCode() != ok || a.GetStatuses()[0].GetLimitRemaining() != 5 {
		t.Errorf("5 of 10 are used: %v", a)
	}
}

// TestLongValues are limited like others: whoever chooses a value must not choose whether it is decided about, since Envoy lets pass what is an error.
func TestLongValues(t *testing.T) {
	t.Parallel()
	tree := client(t, `
domain: d
descriptors:
  - key: agent
    descriptors:
      - {key: ip, rate_limit: {unit: hour, requests_per_unit: 1}}
`, nil)
	p := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{{Name: "hour", Kind: drawgate.Rolling, Amount: 1, Window: time.Hour}}}
	rule := byRules(t, engine.Config{Policies: []engine.Policy{{Policy: p}}, Rules: []rules.Rule{
		{Apply: []rules.Apply{{Policy: "p", Key: `join(attr("agent"), attr("ip"))`}}},
	}}, nil)
	long := strings.Repeat("|%", 25_000) // escaped it is longer than any key may be
	for name, c := range map[string]ratelimit.RateLimitServiceClient{"tree": tree, "rules": rule} {
		for _, value := range []string{long, long + "x"} {
			passes(t, c, "d", "agent="+value+",ip=1", 1)
		}
		r := request("d")
		for i := range drawgate.MaxBuckets {
			r.Descriptors = append(r.Descriptors, descriptor(fmt.Sprintf("agent=%s,ip=%d", long, 10+i)))
		}
		if a := answered(t, c, r); a.GetOverallCode() != ok {
			t.Errorf("%s: %v", name, a.GetOverallCode())
		}
	}
}
