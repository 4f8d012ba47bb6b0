package server_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
)

// ruled is a configuration with rules of all sorts.
func ruled() engine.Config {
	hour := func(name string, n int64) drawgate.Policy {
		return drawgate.Policy{Name: name, Limits: []drawgate.Limit{{
			Name: "rph", Kind: drawgate.Rolling,
			Window: time.Hour, Amount: n,
		}}}
	}
	return engine.Config{
		Policies: []engine.Policy{
			{Policy: hour("per-ip", 3), Overrides: []engine.Override{{
				Key:     "192.0.2.9",
				Amounts: map[string]int64{"rph": 30},
			}}},
			{Policy: hour("api", 5)},
			{Policy: hour("candidate", 1), Shadow: true},
			{Policy: drawgate.Policy{Name: "llm", Limits: []drawgate.Limit{
				{Name: "rpm", Kind: drawgate.Rolling, Window: time.Hour, Amount: 10},
				{Name: "tpm", Unit: "tokens", Kind: drawgate.Rolling, Window: time.Hour, Amount: 1000},
			}}},
			{Policy: drawgate.Policy{Name: "slots", Limits: []drawgate.Limit{{
				Name: "slots", Kind: drawgate.Concurrency,
				Amount: 1,
			}}}},
		},
		Rules: []rules.Rule{
			{Name: "health", Match: rules.Match{Path: "/health*"}, Exempt: true},
			{
				Name: "inside", Match: rules.Match{IPs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
				Exempt: true,
			},
			{
				Match: rules.Match{Path: "/upload/*", Methods: []string{"POST"}},
				Apply: []rules.Apply{{Policy: "per-ip", Key: "ip", Amounts: map[string]int64{"rph": 1}}},
			},
			{
				Name: "model", Match: rules.Match{Path: "/model"},
				Apply: []rules.Apply{{Policy: "llm", Key: "user", Costs: map[string]int64{"tokens": 100}}},
				Final: true,
			},
			{
				Name: "stream", Match: rules.Match{Path: "/stream"},
				Apply: []rules.Apply{{Policy: "slots", Key: "user"}},
				Final: true,
			},
			{Name: "all", Match: rules.Match{Host: "api.example.com"}, Apply: []rules.Apply{
				{Policy: "per-ip", Key: "ip"},
				{Policy: "api", Key: `"global"`},
				{Policy: "candidate", Key: "ip"},
				{Policy: "api", Key: "ip", Shadow: true},
			}},
		},
	}
}

// req: B2, E3
func TestAttributesChooseWhatCounts(t *testing.T) {
	t.Parallel()
	f := setup{config: ruled()}.start(t)
	a := f.take(`{"attributes":{"host":"api.example.com","path":"/x","ip":"192.0.2.1"}}`)
	zero, one := 0, 1
	want := []api.Applied{
		{Rule: "all", Policy: "per-ip", Key: "192.0.2.1", Bucket: &zero},
		{Rule: "all", Policy: "api", Key: "global", Bucket: &one},
		{Rule: "all", Policy: "candidate", Key: "192.0.2.1", Shadow: true},
		{Rule: "all", Policy: "api", Key: "192.0.2.1", Shadow: true},
	}
	if diff := cmp.Diff(want, a.Applied); diff != "" || !a.Allowed || len(a.Limits) != 2 {
		t.Errorf("%+v\n%s", a, diff)
	}
	for range 2 {
		a = f.take(`{"attributes":{"host":"api.example.com","path":"/x","ip":"192.0.2.1"}}`)
	}
	if !a.Allowed || len(a.Shadow) != 2 || a.Shadow[0].Divergence != api.DivergenceRefuse ||
		a.Shadow[0].RefusedBy == nil {
		t.Errorf("the candidate should differ: %+v", a)
	}
	if a = f.take(`{"attributes":{"host":"api.example.com","path":"/x","ip":"192.0.2.1"}}`); a.Allowed ||
		a.RefusedBy.Policy != "per-ip" {
		t.Errorf("got %+v", a)
	}
	if got := f.used("api", "global"); got["rph"] != 3 {
		t.Errorf("a refused request counted: %v", got)
	}
	for _, c := range []struct {
		body              string
		exempt, unmatched bool
	}{
		{`{"attributes":{"path":"/healthz","host":"api.example.com"}}`, true, false},
		{`{"attributes":{"ip":"::ffff:10.1.2.3","host":"api.example.com"}}`, true, false},
		{`{"attributes":{"host":"other.example.com"}}`, false, true},
	} {
		if a := f.take(c.body); !a.Allowed || a.Exempt != c.exempt || a.Unmatched != c.unmatched ||
			len(a.Applied)+len(a.Limits) != 0 {
			t.Errorf("%s: %+v", c.body, a)
		}
	}
}

func TestAmountsOfRuleAndOverride(t *testing.T) {
	t.Parallel()
	f := setup{config: ruled()}.start(t)
	for ip, want := range map[string]int64{"192.0.2.1": 1, "192.0.2.9": 30} {
		if a := f.take(`{"attributes":{"method":"POST","path":"/upload/x","ip":"` + ip +
			`"}}`); a.Limits[0].Amount != want || a.Applied[0].Rule != "#3" {
			t.Errorf("%s: %+v, want %d", ip, a, want)
		}
	}
}

// What is known only afterwards is held, whoever chose the bucket.
func TestHoldByAttributes(t *testing.T) {
	t.Parallel()
	f := setup{config: ruled()}.start(t)
	a := f.take(`{"attributes":{"path":"/model","user":"u"},"costs":{"tokens":600},"hold_ms":60000}`)
	if a.Reservation == "" || a.HoldEnd == nil || f.used("llm", "u")["tpm"] != 600 {
		t.Fatalf("got %+v", a)
	}
	if r := f.take(`{"attributes":{"path":"/model","user":"u"},"costs":{"tokens":600},"hold_ms":60000}`); r.Allowed ||
		r.RefusedBy.Limit != "tpm" || len(r.Applied) != 1 {
		t.Errorf("got %+v", r)
	}
	if got := f.settle(`{"reservation":"` + a.Reservation +
		`","used":{"tokens":40}}`).Outcome; got != api.OutcomeSettled {
		t.Errorf("got %q", got)
	}
	if got := f.used("llm", "u"); got["tpm"] != 40 || got["rpm"] != 1 {
		t.Errorf("used %v", got)
	}
	if a := f.take(`{"attributes":{"path":"/health"},"hold_ms":60000}`); !a.Allowed || a.Reservation != "" {
		t.Errorf("nothing is held where nothing counts: %+v", a)
	}
}

// A shadow's slot comes free with the reservation that it stands beside.
func TestShadowsAreSettledToo(t *testing.T) {
	t.Parallel()
	cfg := ruled()
	cfg.Policies[4].Shadow = true
	cfg.Rules = []rules.Rule{{Apply: []rules.Apply{{Policy: "llm", Key: "user"}, {Policy: "slots", Key: "user"}}}}
	f := setup{config: cfg}.start(t)
	for i, end := range []string{`"used":{"tokens":3}`, `"cancel":true`, `"used":{"slots":1,"tokens":3}`} {
		a := f.take(`{"attributes":{"user":"u"},"hold_ms":60000}`)
		if len(a.Shadow) != 1 || !a.Shadow[0].Allowed {
			t.Fatalf("%d: the slot is still taken: %+v", i, a)
		}
		if b := f.take(`{"attributes":{"user":"u"},"hold_ms":60000}`); b.Shadow[0].Divergence != api.DivergenceRefuse {
			t.Errorf("%d: %+v", i, b)
		} else {
			f.settle(`{"reservation":"` + b.Reservation + `","cancel":true}`)
		}
		f.settle(`{"reservation":"` + a.Reservation + `","renew_ms":1000000}`)
		var s api.SettleAnswer
		if status := f.do("POST", "/v1/settle", `{"reservation":"`+a.Reservation+`",`+end+`}`,
			&s); (status == 200) == (i == 2) {
			t.Errorf("%d: %d %+v", i, status, s)
		}
		if i == 2 {
			f.settle(`{"reservation":"` + a.Reservation + `"}`)
		}
	}
}

// req: B11
func TestDisabledPolicyCountsNothing(t *testing.T) {
	t.Parallel()
	f := plain(t)
	var p api.Policy
	if got := f.do("POST", "/v1/policies/llm/disable", `{"for_ms":600000}`, &p); got != 200 || p.DisabledUntil == nil ||
		time.Until(*p.DisabledUntil) < 9*time.Minute {
		t.Fatalf("got %d %+v", got, p)
	}
	a := f.take(`{"buckets":[{"policy":"llm","key":"k","costs":{"tokens":5000}},{"policy":"tiers","key":"k"}]}`)
	if !a.Allowed || len(a.Limits) != 2 || a.Limits[0].Policy != "tiers" || !a.Applied[0].Disabled ||
		a.Applied[0].Bucket != nil {
		t.Errorf("got %+v", a)
	}
	if got := f.used("llm", "k"); got["tpm"] != 0 {
		t.Errorf("used %v", got)
	}
	p = api.Policy{}
	if got := f.do("POST", "/v1/policies/llm/enable", ``, &p); got != 200 || p.DisabledUntil != nil {
		t.Errorf("got %d %+v", got, p)
	}
	var problem api.Problem
	if got := f.do("POST", "/v1/take", `{"policy":"llm","costs":{"tokens":5000}}`, &problem); got != 422 ||
		problem.Code != api.CodeNeverFits {
		t.Errorf("got %d %+v", got, problem)
	}
	until := time.Now().Add(time.Hour).UTC()
	for body, want := range map[string]int{
		`{}`: 422, `{"for_ms":-1}`: 422, `{"for_ms":99999999999999}`: 422, `{"until":"2020-01-01T00:00:00Z"}`: 422,
		`{"until":"2999-01-01T00:00:00Z"}`:                          422,
		`{"until":"` + until.Format(time.RFC3339) + `"}`:            200,
		`{"for_ms":1,"until":"` + until.Format(time.RFC3339) + `"}`: 422,
	} {
		if got := f.do("POST", "/v1/policies/llm/disable", body, &problem); got != want {
			t.Errorf("%s: %d, want %d", body, got, want)
		}
	}
}

func TestBadAttributes(t *testing.T) {
	t.Parallel()
	cfg := ruled()
	cfg.Rules = append(cfg.Rules, rules.Rule{
		Name: "n", When: `int(header("X-N")) > 1`,
		Apply: []rules.Apply{{Policy: "api", Key: "ip"}},
	})
	f := setup{config: cfg}.start(t)
	for body, want := range map[string]api.Code{
		`{"attributes":{"ip":"10.0.0.256"}}`:                            api.CodeInvalid,
		`{"attributes":{"ip":"10.0.0.0/8"}}`:                            api.CodeInvalid,
		`{"attributes":{"headers":{"A":"1","a":"2"}}}`:                  api.CodeInvalid,
		`{"attributes":{"headers":{"X-N":"many"}}}`:                     api.CodeRuleFailed,
		`{"attributes":{"verb":"GET"}}`:                                 api.CodeBadJSON,
		`{"attributes":{"headers":{"A":["1"]}}}`:                        api.CodeBadJSON,
		`{"attributes":{"path":"/stream","user":"u"}}`:                  api.CodeNeedsHold,
		`{"attributes":{"path":"/model"},"costs":{"bytes":1}}`:          api.CodeUnknownUnit,
		`{"attributes":{"path":"/model"},"key":"k"}`:                    api.CodeInvalid,
		`{"attributes":{"path":"/model"},"buckets":[{"policy":"llm"}]}`: api.CodeInvalid,
		`{"attributes":{"path":"/model"},"takes":[{"policy":"llm"}]}`:   api.CodeInvalid,
		`{"attributes":{"path":"/model"},"id":"a"}`:                     api.CodeInvalid,
		`{"attributes":{"path":"/model"},"costs":{"tokens":1001}}`:      api.CodeNeverFits,
	} {
		var p api.Problem
		if f.do("POST", "/v1/take", body, &p); p.Code != want {
			t.Errorf("%s: %+v, want %s", body, p, want)
		}
	}
	var p api.Problem
	if f.do("POST", "/v1/explain", `{"attributes":{"path":"/model"},"costs":{"bytes":1}}`,
		&p); p.Code != api.CodeUnknownUnit {
		t.Errorf("explained, a unit that nothing counts is %+v", p)
	}
}

// A take that names no unit, of policies that count no requests, would take nothing: it is an error
// that names the units, and so is its explanation. A proxy's question is answered with 500, since a
// proxy names no units.
//
// req: B4
func TestATakeThatNamesNoUnit(t *testing.T) {
	t.Parallel()
	cfg := engine.Config{
		Policies: []engine.Policy{
			{Policy: drawgate.Policy{Name: "tokens", Limits: []drawgate.Limit{{
				Name: "tpd", Unit: "tokens",
				Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: 100,
			}}}},
			{Policy: drawgate.PerDay("calls", 100)},
		},
		Rules: []rules.Rule{{Name: "calls", Apply: []rules.Apply{
			{Policy: "calls", Key: `"all"`},
			{Policy: "tokens", Key: `"all"`},
		}}},
	}
	f := setup{config: cfg}.start(t)
	for _, path := range []string{"/v1/take", "/v1/explain"} {
		for body, bad := range map[string]bool{
			`{"policy":"tokens"}`: true,
			`{"buckets":[{"policy":"tokens","key":"a"},{"policy":"tokens","key":"b"}]}`: true,
			`{"policy":"tokens","costs":{"tokens":0}}`:                                  false,
			`{"buckets":[{"policy":"tokens"},{"policy":"calls"}]}`:                      false,
			`{"attributes":{"path":"/"}}`:                                               false,
		} {
			var p api.Problem
			status := f.do("POST", path, body, &p)
			if bad != (status == 422) || bad && (p.Code != api.CodeUnknownUnit ||
				!strings.HasSuffix(p.Detail, "name a cost in tokens")) || !bad && status != 200 {
				t.Errorf("%s %s: %d %+v", path, body, status, p)
			}
		}
	}
	if got := f.do("POST", "/v1/take", `{"policy":"tokens","hold_ms":60000}`, &api.Problem{}); got != 422 {
		t.Errorf("with a hold: %d", got)
	}
	if got := f.do("GET", "/v1/status?policy=tokens&key=k", ``, &api.StatusAnswer{}); got != 200 {
		t.Errorf("a status: %d, want 200: it needs no unit", got)
	}
	f.do("POST", "/v1/policies/calls/disable", `{"for_ms":600000}`, &api.Policy{})
	for _, path := range []string{"/v1/take", "/v1/explain"} {
		if got := f.do("POST", path, `{"attributes":{"path":"/"}}`, &api.Answer{}); got != 200 {
			t.Errorf("%s while the policy that counts requests is disabled: %d", path, got)
		}
	}
}

// Explain says of every request what a take then finds.
func TestExplainSaysWhatATakeFinds(t *testing.T) {
	t.Parallel()
	f := setup{config: ruled()}.start(t)
	var p api.Policy
	f.do("POST", "/v1/policies/candidate/disable", `{"for_ms":600000}`, &p)
	for _, at := range []string{
		`{"host":"api.example.com","path":"/x","ip":"192.0.2.1"}`,
		`{"host":"api.example.com","path":"/upload/x","method":"POST","ip":"192.0.2.1"}`,
		`{"host":"api.example.com","path":"/upload/x","method":"POST","ip":"192.0.2.9"}`,
		`{"path":"/model","user":"u"}`, `{"path":"/health"}`, `{"path":"/"}`, `{}`,
	} {
		for i := range 4 {
			var e, again api.ExplainAnswer
			ask := `{"attributes":` + at + `}`
			f.do("POST", "/v1/explain", ask, &e)
			f.do("POST", "/v1/explain", ask, &again)
			a := f.take(ask)
			what := fmt.Sprintf("%s, %d before", at, i)
			if e.Allowed != a.Allowed || e.Exempt != a.Exempt || e.Unmatched != a.Unmatched ||
				len(e.Applied) != len(a.Applied) {
				t.Fatalf("%s: explained %+v, took %+v", what, e, a)
			}
			for k := range a.Applied {
				x := e.Applied[k]
				if diff := cmp.Diff(a.Applied[k], x.Applied); diff != "" || x.Error != nil {
					t.Errorf("%s: (-taken +explained)\n%s%v", what, diff, x.Error)
				}
				if x.Bucket == nil {
					continue
				}
				for _, l := range a.Limits {
					if l.Bucket != *x.Bucket {
						continue
					}
					s := x.Status.Limits[0]
					for _, other := range x.Status.Limits {
						if other.Name == l.Name {
							s = other
						}
					}
					if s.Amount != l.Amount || s.Refused != l.Refused ||
						a.Allowed && s.Used != again.Applied[k].Status.Limits[0].Used &&
							s.Name == again.Applied[k].Status.Limits[0].Name {
						t.Errorf("%s: explained %+v, took %+v", what, s, l)
					}
				}
			}
		}
	}
}
