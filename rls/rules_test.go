package rls_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/internal/calendar"
	"github.com/drawgate/drawgate/rls"
	"github.com/drawgate/drawgate/store"
)

// byRules serves an engine with rules of its own.
func byRules(t *testing.T, c engine.Config, opts *rls.Options) ratelimit.RateLimitServiceClient {
	t.Helper()
	return byRulesOver(t, memory(t), c, opts)
}

func byRulesOver(t *testing.T, store drawgate.Store, c engine.Config,
	opts *rls.Options,
) ratelimit.RateLimitServiceClient {
	t.Helper()
	e, err := engine.New(store, c, slowStore)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	client, _ := serve(t, rls.New(e, opts))
	return client
}

func hourly(name string, n int64) engine.Policy {
	return engine.Policy{Policy: drawgate.Policy{
		Name:   name,
		Limits: []drawgate.Limit{{Name: "hour", Kind: drawgate.Rolling, Window: time.Hour, Amount: n}},
	}}
}

// req: E3.
func TestRulesDecideByEntries(t *testing.T) {
	t.Parallel()
	c := byRules(t, engine.Config{
		Policies: []engine.Policy{hourly("per-user", 2), hourly("per-ip", 3)},
		Rules: []rules.Rule{
			{Match: rules.Match{Class: "internal"}, Exempt: true},
			{Match: rules.Match{Class: "privileged"}, Apply: []rules.Apply{{
				Policy: "per-user", Key: "user",
				Amounts: map[string]int64{"hour": 5},
			}}},
			{
				Match: rules.Match{Attrs: map[string]string{"domain": "api", "user": "*"}},
				Apply: []rules.Apply{{Policy: "per-user", Key: "user"}},
			},
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
	if l := s.GetCurrentLimit(); l.GetName() != "p/tight" ||
		l.GetUnit() != ratelimit.RateLimitResponse_RateLimit_MINUTE || l.GetUnitMultiplier().GetValue() != 90 {
		t.Errorf("limit %v", l)
	}
	if s.GetLimitRemaining() != 2 || s.GetDurationUntilReset().AsDuration() > 90*time.Minute ||
		!strings.Contains(header(a, "Ratelimit"), "p/tight") {
		t.Errorf("status %v, headers %v", s, a.GetResponseHeadersToAdd())
	}
	passes(t, c, "any", "k=v", 2)
}

// TestUnitsOfCalendarWindows: to Envoy, each calendar window is units of about its length. A unit
// that has the name of one is that window in a file whose windows are aligned, and envoy.md says
// so.
func TestUnitsOfCalendarWindows(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/envoy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, aligned, _ := strings.Cut(string(page), "\n`aligned` supports ")
	aligned, _, _ = strings.Cut(aligned, "\n")
	// inFile is the limit of a rate in a file.
	inFile := func(unit string, times uint32, w rls.Windows) drawgate.Limit {
		t.Helper()
		text := fmt.Sprintf("domain: d\ndescriptors: [{key: k, rate_limit: "+
			"{unit: %s, unit_multiplier: %d, requests_per_unit: 1}}]\n", unit, times)
		c, err := rls.ParseConfig("f", []byte(text), &rls.ConfigOptions{Windows: w})
		if err != nil {
			t.Fatal(err)
		}
		return c.Policies()[1].Limits[0]
	}
	for u := calendar.Minute; u < calendar.End; u++ {
		c := byRules(t, engine.Config{
			Policies: []engine.Policy{{Policy: drawgate.Policy{Name: "p", Limits: []drawgate.Limit{
				drawgate.CalendarLimit("l", 3, drawgate.Every(u), ""),
			}}}},
			Rules: []rules.Rule{{Apply: []rules.Apply{{Policy: "p", Key: `"global"`}}}},
		}, nil)
		l := free(t, c, "any", "k=v", 1).GetStatuses()[0].GetCurrentLimit()
		if l.GetUnit() == ratelimit.RateLimitResponse_RateLimit_UNKNOWN {
			t.Errorf("a limit per %v has no unit", u)
			continue
		}
		times, most := max(1, l.GetUnitMultiplier().GetValue()), time.Duration(0)
		if l.GetUnit() == ratelimit.RateLimitResponse_RateLimit_MONTH { // of 30 days, or of 31
			most = time.Duration(times) * 24 * time.Hour
		}
		length := time.Duration(u.Length()) * time.Microsecond
		if got := inFile(l.GetUnit().String(), times, rls.Rolling).Window; (length - got).Abs() > most {
			t.Errorf("a limit per %v of %v is one per %d %v, which is %v", u, length, times, l.GetUnit(), got)
		}

		name := u.String()
		if _, ok := ratelimit.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(name)]; !ok {
			continue
		}
		if l := inFile(name, 1, rls.Aligned); l.Kind != drawgate.Calendar || l.Every != drawgate.Every(u) {
			t.Errorf("the unit %s in a file with aligned windows: %+v", name, l)
		}
		if !strings.Contains(aligned, name) {
			t.Errorf("envoy.md does not say that aligned windows may be one %s: %q", name, aligned)
		}
	}
}

// dying is a store that takes as often as it is told to, and then does nothing more but tell how
// buckets stand.
type dying struct {
	drawgate.Store
	lives, takes atomic.Int64
}

var errDead = &drawgate.StoreError{Store: "test", Op: "take", Err: errors.New("dead")}

func (d *dying) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	d.takes.Add(1)
	if d.lives.Add(-1) < 0 {
		return errDead
	}
	return d.Store.Take(ctx, batch, out)
}

func (d *dying) Settle(context.Context, []store.Settlement, []store.Outcome) error {
	return errDead
}

// perDescriptor counts users by one policy, and everybody by another.
func perDescriptor(user, all int64) engine.Config {
	return engine.Config{
		Policies: []engine.Policy{hourly("per-user", user), hourly("all", all)},
		Rules: []rules.Rule{
			{
				Match: rules.Match{Attrs: map[string]string{"user": "*"}},
				Apply: []rules.Apply{{Policy: "per-user", Key: "user"}},
			},
			{
				Match: rules.Match{Attrs: map[string]string{"all": "*"}},
				Apply: []rules.Apply{{Policy: "all", Key: `"global"`}},
			},
		},
	}
}

// remaining looks at a descriptor.
func remaining(t *testing.T, c ratelimit.RateLimitServiceClient, text string) uint32 {
	t.Helper()
	return answered(t, c, request("d", hits(descriptor(text), 0))).GetStatuses()[0].GetLimitRemaining()
}

// TestRulesTakeForAllDescriptorsAtOnce: it is one store call, so there is no moment at which one
// descriptor has spent and another may still refuse.
// req: B2.
func TestRulesTakeForAllDescriptorsAtOnce(t *testing.T) {
	t.Parallel()
	store := &dying{Store: memory(t)}
	store.lives.Store(3)
	c := byRulesOver(t, store, perDescriptor(2, 10), nil)
	r := request("d", descriptor("all=x"), descriptor("user=ann"), descriptor("all=y,nothing=x"))
	for i, want := range []ratelimit.RateLimitResponse_Code{ok, ok, over} {
		a := answered(t, c, r)
		if a.GetOverallCode() != want || a.GetStatuses()[0].GetCode() != ok || a.GetStatuses()[1].GetCode() != want ||
			store.takes.Load() != int64(i+1) {
			t.Fatalf("request %d: %d store calls, %v", i+1, store.takes.Load(), a)
		}
		if want == over && (header(a, "Retry-After") == "" || a.GetStatuses()[0].GetLimitRemaining() != 6 ||
			a.GetStatuses()[2].GetLimitRemaining() != 6) {
			t.Errorf("a refusal tells what the others have left, and when to come again: %v", a)
		}
	}
	if a, err := c.ShouldRateLimit(t.Context(), request("d", descriptor("all=x"),
		descriptor("user=bob"))); status.Code(err) != codes.Unavailable {
		t.Errorf("the store cannot be reached: got %v, %v", a, err)
	}
	for text, want := range map[string]uint32{"all=x": 6, "user=ann": 0, "user=bob": 2} {
		if got := remaining(t, c, text); got != want {
			t.Errorf("%s: %d left, want %d: what is refused or fails spends nothing", text, got, want)
		}
	}
	if store.takes.Load() != 4 {
		t.Errorf("%d store calls, want 4: one for each request", store.takes.Load())
	}
}

// TestRulesAddUpDescriptorsOfOneBucket: the bucket pays for both, and neither passes alone.
// req: B2.
func TestRulesAddUpDescriptorsOfOneBucket(t *testing.T) {
	t.Parallel()
	c := byRules(t, perDescriptor(5, 100), nil)
	both := request("d", descriptor("user=ann,path=/a"), hits(descriptor("user=ann,path=/b"), 2), descriptor("all=x"))
	for i, want := range []ratelimit.RateLimitResponse_Code{ok, over} {
		a := answered(t, c, both)
		if s := a.GetStatuses(); a.GetOverallCode() != want || s[0].GetCode() != want || s[1].GetCode() != want ||
			s[2].GetCode() != ok || s[0].GetLimitRemaining() != 2 || s[1].GetLimitRemaining() != 2 {
			t.Errorf("request %d of 3 in a bucket of 5: %v", i+1, a)
		}
	}
	if got := remaining(t, c, "all=x"); got != 99 {
		t.Errorf("%d left, want 99", got)
	}
	never := answered(t, c, request("d", descriptor("all=x"), hits(descriptor("user=bob"), 3),
		hits(descriptor("user=bob,path=/b"), 3), descriptor("user=cid")))
	s := never.GetStatuses()
	if never.GetOverallCode() != over || header(never, "Retry-After") != "" || s[0].GetCode() != ok ||
		s[1].GetCode() != over || s[2].GetCode() != over || s[3].GetCode() != ok {
		t.Errorf("3 and 3 of 5 can never fit: %v", never)
	}
	if s[0].GetLimitRemaining() != 99 || s[3].GetLimitRemaining() != 5 {
		t.Errorf("the others are told how they stand: %v", never)
	}
}

// TestRulesOfTooManyBuckets are an error that says so.
// req: B2.
func TestRulesOfTooManyBuckets(t *testing.T) {
	t.Parallel()
	config := perDescriptor(5, 100)
	config.Policies = append(config.Policies, hourly("as-well", 9))
	config.Rules[0].Apply = append(config.Rules[0].Apply, rules.Apply{Policy: "as-well", Key: "user"})
	c := byRules(t, config, nil)
	r := request("d")
	for i := range store.MaxBuckets / 2 { // two buckets each
		r.Descriptors = append(r.Descriptors, descriptor(fmt.Sprint("user=", i)))
	}
	r.Descriptors = append(r.Descriptors, descriptor("free=x"))
	if a := answered(t, c, r); a.GetOverallCode() != ok || a.GetStatuses()[14].GetLimitRemaining() != 4 {
		t.Errorf("as many as there may be: %v", a)
	}
	r.Descriptors = append(r.Descriptors, descriptor("all=x"))
	_, err := c.ShouldRateLimit(t.Context(), r)
	if s := status.Convert(err); s.Code() != codes.InvalidArgument ||
		!strings.Contains(s.Message(), "more than 64 buckets") {
		t.Errorf("one more: %v", err)
	}
	if got := remaining(t, c, "user=1"); got != 4 {
		t.Errorf("%d left, want 4", got)
	}
}

// TestRulesWithEverythingAtOnce: looks, takes, reports, shadows and what is exempt in one request.
func TestRulesWithEverythingAtOnce(t *testing.T) {
	t.Parallel()
	config := perDescriptor(3, 4)
	config.Policies = append(config.Policies, hourly("soft", 1))
	config.Rules = append([]rules.Rule{
		{Match: rules.Match{Class: "internal"}, Exempt: true},
		{
			Shadow: true, Match: rules.Match{Attrs: map[string]string{"all": "*"}},
			Apply: []rules.Apply{{Policy: "soft", Key: `"global"`}},
		},
	}, config.Rules...)
	c := byRules(t, config, &rls.Options{ShadowHeader: true, Headers: rls.HeadersDraft})
	r := request("d", hits(descriptor("user=ann"), 0), descriptor("all=x"), descriptor("user=bob"),
		descriptor("user=bob,class=internal"), hits(descriptor("user=cid,"+rls.ReportKey+"=1"), 2))
	for i := range 3 {
		a := answered(t, c, r)
		s := a.GetStatuses()
		if a.GetOverallCode() != ok || s[0].GetLimitRemaining() != 3 || s[1].GetLimitRemaining() != uint32(3-i) ||
			s[2].GetLimitRemaining() != uint32(2-i) || s[3].GetCurrentLimit() != nil {
			t.Errorf("request %d: %v", i+1, a)
		}
		if want := uint32(max(0, 1-2*i)); s[4].GetLimitRemaining() != want || (s[4].GetCode() == over) != (i > 0) {
			t.Errorf("request %d: the report's status is %v, want %d left", i+1, s[4], want)
		}
		if got := header(a, "X-RateLimit-Shadow"); (got == "soft;would_refuse") != (i > 0) ||
			!strings.HasPrefix(header(a, "Ratelimit"), `"all";r=`) {
			t.Errorf("request %d: headers %v", i+1, a.GetResponseHeadersToAdd())
		}
	}
	if a := answered(t, c, r); a.GetOverallCode() != over || a.GetStatuses()[2].GetCode() != over ||
		a.GetStatuses()[1].GetCode() != ok || remaining(t, c, "all=x") != 1 {
		t.Errorf("bob has had his 3: %v", a)
	}
	if a := answered(t, c, request("d", hits(descriptor("user=bob"), 0),
		descriptor("all=x"))); a.GetOverallCode() != over || a.GetStatuses()[1].GetLimitRemaining() != 1 ||
		remaining(t, c, "all=x") != 1 {
		t.Errorf("a look that is over refuses what takes: %v", a)
	}
}

// req: PEERS 1.
func TestRulesRefuseAllDescriptorsOrNone(t *testing.T) {
	t.Parallel()
	c := byRules(t, engine.Config{
		Policies: []engine.Policy{hourly("per-user", 2), hourly("all", 10)},
		Rules: []rules.Rule{
			{
				Match: rules.Match{Attrs: map[string]string{"user": "*"}},
				Apply: []rules.Apply{{Policy: "per-user", Key: "user"}},
			},
			{
				Match: rules.Match{Attrs: map[string]string{"all": "*"}},
				Apply: []rules.Apply{{Policy: "all", Key: `"global"`}},
			},
		},
	}, nil)
	for _, order := range [][]*common.RateLimitDescriptor{
		{descriptor("all=x"), descriptor("user=ann"), descriptor("nothing=x")},
		{descriptor("user=bob"), descriptor("all=x"), descriptor("nothing=x")},
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
			{
				Match: rules.Match{Attrs: map[string]string{"user": "*"}},
				Apply: []rules.Apply{{Policy: "p", Key: "user", Costs: map[string]int64{"tokens": 10}}},
			},
		},
	}, &rls.Options{Refunds: true})
	left := func(want uint32, code ratelimit.RateLimitResponse_Code) {
		t.Helper()
		for range 2 {
			a := answered(t, c, request("any", hits(descriptor("user=ann"), 0)))
			if s := a.GetStatuses()[0]; s.GetLimitRemaining() != want || a.GetOverallCode() != code ||
				s.GetCode() != code {
				t.Errorf("a look: %v, want %d left and %v", a, want, code)
			}
		}
	}
	free(t, c, "any", "user=ann", 2)
	left(2, ok)
	if a := answered(t, c, request("any", hits(descriptor("user=ann,"+rls.ReportKey+"=x"),
		3))); a.GetOverallCode() != ok {
		t.Errorf("a report of 3 with 2 left: %v", a)
	}
	left(0, over)
	if a := answered(t, c, request("any", negative(descriptor("user=ann"), 2))); a.GetOverallCode() != ok {
		t.Errorf("a refund: %v", a)
	}
	left(1, ok)
	free(t, c, "any", "unknown=x", 3)
	free(t, c, "any", "unknown=x", 3)
	if a := answered(t, c, request("any", hits(descriptor("user=ann"), 5))); a.GetOverallCode() != over ||
		header(a, "Retry-After") != "" {
		t.Errorf("5 hits of 4: %v", a)
	}
	left(1, ok)
}

func TestRulesWithSlotsNeedAnotherProtocol(t *testing.T) {
	t.Parallel()
	c := byRules(t, engine.Config{
		Policies: []engine.Policy{{Policy: drawgate.Policy{
			Name:   "slots",
			Limits: []drawgate.Limit{{Name: "slots", Kind: drawgate.Concurrency, Amount: 1}},
		}}},
		Rules: []rules.Rule{{
			Match: rules.Match{Attrs: map[string]string{"k": "*"}},
			Apply: []rules.Apply{{Policy: "slots", Key: `"global"`}},
		}},
	}, nil)
	if a, err := c.ShouldRateLimit(t.Context(), request("any",
		descriptor("k=v"))); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("%v, %v", a, err)
	}
	for range 2 {
		if a, err := c.ShouldRateLimit(t.Context(), request("any", descriptor("k=v"),
			descriptor("other=w"))); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%v, %v: nothing releases a slot", a, err)
		}
	}
}

// TestLooksByTheRulesAmounts: a rule's own amounts hold for a look too.
func TestLooksByTheRulesAmounts(t *testing.T) {
	t.Parallel()
	p := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{{
		Name: "hour", Kind: drawgate.Rolling, Amount: 2,
		Window: time.Hour,
	}}}
	c := byRules(t, engine.Config{Policies: []engine.Policy{{Policy: p}}, Rules: []rules.Rule{
		{Apply: []rules.Apply{{Policy: "p", Key: "user", Amounts: map[string]int64{"hour": 10}}}},
	}}, nil)
	for range 5 {
		if a := answered(t, c, request("d", descriptor("user=u"))); a.GetOverallCode() != ok {
			t.Fatal(a)
		}
	}
	if a := answered(t, c, request("d", hits(descriptor("user=u"), 0))); a.GetOverallCode() != ok ||
		a.GetStatuses()[0].GetLimitRemaining() != 5 {
		t.Errorf("5 of 10 are used: %v", a)
	}
}

// TestRulesOfUnitsThatHitsAreNot: a rule may also apply a policy that counts tokens only. Hits pass
// over it, when they are taken, looked at, given back and when others are refused.
func TestRulesOfUnitsThatHitsAreNot(t *testing.T) {
	t.Parallel()
	tokens := drawgate.Limit{Name: "tpd", Unit: "tokens", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: 100}
	c := byRules(t, engine.Config{
		Policies: []engine.Policy{hourly("per-user", 2), {Policy: drawgate.Policy{
			Name:   "tokens",
			Limits: []drawgate.Limit{tokens},
		}}},
		Rules: []rules.Rule{
			{
				Match: rules.Match{Attrs: map[string]string{"user": "*"}},
				Apply: []rules.Apply{{Policy: "per-user", Key: "user"}},
			},
			{Match: rules.Match{Attrs: map[string]string{"k": "*"}}, Apply: []rules.Apply{
				{Policy: "tokens", Key: `attr("k")`, Costs: map[string]int64{"tokens": 5}},
				{Policy: "per-user", Key: `attr("k")`},
			}},
		},
	}, &rls.Options{Refunds: true})
	for _, step := range []struct {
		what string
		ask  []*common.RateLimitDescriptor
		want ratelimit.RateLimitResponse_Code
	}{
		{"a take", []*common.RateLimitDescriptor{hits(descriptor("k=v"), 2)}, ok},
		{"beside one that never fits", []*common.RateLimitDescriptor{
			hits(descriptor("user=ann"), 9),
			hits(descriptor("k=w"), 2),
		}, over},
		{"a take of another", []*common.RateLimitDescriptor{hits(descriptor("user=ann"), 2)}, ok},
		{"beside a look at one that is full", []*common.RateLimitDescriptor{
			hits(descriptor("user=ann"), 0),
			hits(descriptor("k=w"), 2),
		}, over},
		{"beside one that is refused", []*common.RateLimitDescriptor{
			hits(descriptor("user=ann"), 2),
			hits(descriptor("k=w"), 2),
		}, over},
		{"giving back", []*common.RateLimitDescriptor{negative(descriptor("k=v"), 2)}, ok},
		{"after it", []*common.RateLimitDescriptor{hits(descriptor("k=v"), 2)}, ok},
	} {
		a, err := c.ShouldRateLimit(t.Context(), request("d", step.ask...))
		if err != nil || a.GetOverallCode() != step.want {
			t.Errorf("%s: %v, %v", step.what, a.GetOverallCode(), err)
		}
	}
}

// TestLongValues are limited like others: whoever chooses a value must not choose whether it is
// decided about, since Envoy lets pass what is an error.
func TestLongValues(t *testing.T) {
	t.Parallel()
	tree := client(t, `
domain: d
descriptors:
  - key: agent
    descriptors:
      - {key: ip, rate_limit: {unit: hour, requests_per_unit: 1}}
`, nil)
	p := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{{
		Name: "hour", Kind: drawgate.Rolling, Amount: 1,
		Window: time.Hour,
	}}}
	rule := byRules(t, engine.Config{Policies: []engine.Policy{{Policy: p}}, Rules: []rules.Rule{
		{Apply: []rules.Apply{{Policy: "p", Key: `join(attr("agent"), attr("ip"))`}}},
	}}, nil)
	long := strings.Repeat("|%", 25_000) // escaped it is longer than any key may be
	for name, c := range map[string]ratelimit.RateLimitServiceClient{"tree": tree, "rules": rule} {
		for _, value := range []string{long, long + "x"} {
			passes(t, c, "d", "agent="+value+",ip=1", 1)
		}
		r := request("d")
		for i := range 9 { // what a message of 512 KiB holds
			r.Descriptors = append(r.Descriptors, descriptor(fmt.Sprintf("agent=%s,ip=%d", long, 10+i)))
		}
		if a := answered(t, c, r); a.GetOverallCode() != ok {
			t.Errorf("%s: %v", name, a.GetOverallCode())
		}
	}
}
