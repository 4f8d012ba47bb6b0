package rls_test

import (
	"math"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// The cases of this file are those that the documentation of envoyproxy/ratelimit describes, with other names and numbers: what each configuration
// does there, it does here. Windows are long, so that none ends while a test counts; what differs by unit is tested elsewhere.

func TestDocumentedValuesOfOneKeyHaveRatesOfTheirOwn(t *testing.T) {
	t.Parallel()
	c := client(t, `
domain: warehouse
descriptors:
  - key: table
    value: orders
    rate_limit: {unit: hour, requests_per_unit: 4}
  - key: table
    value: stock
    rate_limit: {unit: hour, requests_per_unit: 2}
`, nil)
	passes(t, c, "warehouse", "table=orders", 4)
	passes(t, c, "warehouse", "table=stock", 2)
	if a := free(t, c, "warehouse", "table=customers", 9); a.GetStatuses()[0].GetCurrentLimit() != nil {
		t.Errorf("a value without a rate has one: %v", a)
	}
}

func TestDocumentedNestedRatesCountEachValue(t *testing.T) {
	t.Parallel()
	const text = `
domain: letters
descriptors:
  - key: kind
    value: advert
    descriptors:
      - key: recipient
        rate_limit: {unit: day, requests_per_unit: 2}
  - key: recipient
    rate_limit: {unit: day, requests_per_unit: 5}
`
	c := client(t, text, nil)
	passes(t, c, "letters", "kind=advert,recipient=ann", 2)
	passes(t, c, "letters", "kind=advert,recipient=bob", 2)
	passes(t, c, "letters", "recipient=ann", 5)

	// Several descriptors in one request are limited all together: it is refused if any of them is.
	c = client(t, text, nil)
	both := request("letters", descriptor("kind=advert,recipient=ann"), descriptor("recipient=ann"))
	for range 2 {
		if a := answered(t, c, both); a.GetOverallCode() != ok {
			t.Fatalf("refused within both rates: %v", a)
		}
	}
	a := answered(t, c, both)
	if a.GetOverallCode() != over || a.GetStatuses()[0].GetCode() != over || a.GetStatuses()[1].GetCode() != ok {
		t.Errorf("the third advert of a day: %v, want it refused by the first descriptor alone", a)
	}
	// What differs: the refusal spent nothing of the second rate.
	passes(t, c, "letters", "recipient=ann", 3)
}

func TestDocumentedValueGoesBeforeKeyAlone(t *testing.T) {
	t.Parallel()
	c := client(t, `
domain: door
descriptors:
  - key: remote_address
    rate_limit: {unit: hour, requests_per_unit: 3}
  - key: remote_address
    value: 192.0.2.66
    rate_limit: {unit: hour, requests_per_unit: 0}
`, nil)
	passes(t, c, "door", "remote_address=192.0.2.1", 3)
	passes(t, c, "door", "remote_address=192.0.2.2", 3)
	a := answered(t, c, request("door", descriptor("remote_address=192.0.2.66")))
	if s := a.GetStatuses()[0]; a.GetOverallCode() != over || s.GetCode() != over || s.GetLimitRemaining() != 0 {
		t.Errorf("a rate of 0: %v, want it refused", a)
	}
}

func TestDocumentedDepthMustBeTheSame(t *testing.T) {
	t.Parallel()
	c := client(t, `
domain: depth
descriptors:
  - key: a
    value: one
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: b
    value: one
    descriptors:
      - key: c
        rate_limit: {unit: hour, requests_per_unit: 1}
`, nil)
	free(t, c, "depth", "a=one,c=two", 5)
	free(t, c, "depth", "b=one", 5)
	free(t, c, "depth", "b=one,c=two,d=three", 5)
	passes(t, c, "depth", "a=one", 1)
	passes(t, c, "depth", "b=one,c=two", 1)
}

func TestDocumentedUnlimited(t *testing.T) {
	t.Parallel()
	c := client(t, `
domain: inside
descriptors:
  - key: login
    rate_limit: {unlimited: true}
  - key: cloud
    rate_limit: {unit: minute, requests_per_unit: 3}
`, nil)
	a := free(t, c, "inside", "login=x", 20)
	if s := a.GetStatuses()[0]; s.GetLimitRemaining() != math.MaxUint32 || s.GetCurrentLimit() != nil {
		t.Errorf("an unlimited rate: %v, want all of a number remaining and no limit", s)
	}
	if s := free(t, c, "inside", "other=x", 1).GetStatuses()[0]; s.GetLimitRemaining() != 0 {
		t.Errorf("no rate: %v, want it told apart from an unlimited one", s)
	}
	passes(t, c, "inside", "cloud=x", 3)
}

// req: E9.
func TestDocumentedShadowModeIsAlwaysOK(t *testing.T) {
	t.Parallel()
	c := client(t, `
domain: soft
descriptors:
  - key: service
    descriptors:
      - key: user
        value: ann
        rate_limit: {unit: hour, requests_per_unit: 1}
        shadow_mode: true
      - key: user
        value: bob
        rate_limit: {unit: hour, requests_per_unit: 2}
`, nil)
	a := free(t, c, "soft", "service=auth,user=ann", 5)
	if s := a.GetStatuses()[0]; s.GetCode() != ok || s.GetCurrentLimit().GetRequestsPerUnit() != 1 || s.GetLimitRemaining() != 0 {
		t.Errorf("in shadow, over: %v, want OK with the limit and nothing remaining", s)
	}
	passes(t, c, "soft", "service=auth,user=bob", 2)
}

func TestDocumentedReplaces(t *testing.T) {
	t.Parallel()
	c := client(t, `
domain: swap
descriptors:
  - key: group
    value: read
    descriptors:
      - key: user
        value: ann
        rate_limit: {name: narrow, unit: hour, requests_per_unit: 2}
  - key: endpoint
    value: report
    descriptors:
      - key: user
        value: ann
        rate_limit:
          unit: hour
          requests_per_unit: 5
          replaces: [{name: narrow}]
`, nil)
	both := request("swap", descriptor("group=read,user=ann"), descriptor("endpoint=report,user=ann"))
	for i := range 5 {
		a := answered(t, c, both)
		if a.GetOverallCode() != ok || a.GetStatuses()[0].GetCurrentLimit() != nil || a.GetStatuses()[1].GetLimitRemaining() != uint32(4-i) {
			t.Fatalf("request %d: %v, want the wide rate alone to count", i+1, a)
		}
	}
	if a := answered(t, c, both); a.GetOverallCode() != over {
		t.Errorf("beyond the wide rate: %v", a)
	}
	passes(t, c, "swap", "group=read,user=ann", 2) // the rate that was replaced was not touched
}

func TestDocumentedWildcards(t *testing.T) {
	t.Parallel()
	c := client(t, `
domain: star
descriptors:
  - key: path
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: path
    value: /files/*
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: path
    value: /files/big
    rate_limit: {unit: hour, requests_per_unit: 3}
  - key: shared
    value: /files/*
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 3}
  - key: outer
    descriptors:
      - key: inner
        value: x*
        rate_limit: {unit: hour, requests_per_unit: 2}
`, nil)
	passes(t, c, "star", "path=/files/a", 2)
	passes(t, c, "star", "path=/files/b", 2) // each value counts for itself
	passes(t, c, "star", "path=/files/big", 3)
	passes(t, c, "star", "path=/other", 1)
	free(t, c, "star", "shared=/files/a", 1)
	free(t, c, "star", "shared=/files/b", 1)
	passes(t, c, "star", "shared=/files/c", 1) // the third of three
	free(t, c, "star", "shared=/elsewhere", 9)
	passes(t, c, "star", "outer=1,inner=xy", 2)
	free(t, c, "star", "outer=1,inner=yx", 9)
}

func TestDocumentedMetricKeysChangeNoLimit(t *testing.T) {
	t.Parallel()
	c := client(t, `
domain: measured
descriptors:
  - key: route
    detailed_metric: true
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: route
    value: home
    value_to_metric: true
    rate_limit: {unit: minute, requests_per_unit: 4}
`, nil)
	passes(t, c, "measured", "route=one", 2)
	passes(t, c, "measured", "route=two", 2)
	passes(t, c, "measured", "route=home", 4)
}

func TestDocumentedQuotaModeRefusesOnlyWhenAllAreOver(t *testing.T) {
	t.Parallel()
	c := client(t, `
domain: routing
descriptors:
  - key: backend
    value: first
    quota_mode: true
    metadata: {backend: first}
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: backend
    value: second
    quota_mode: true
    metadata: {backend: second}
    rate_limit: {unit: hour, requests_per_unit: 3}
`, nil)
	both := request("routing", descriptor("backend=first"), descriptor("backend=second"))
	for i, want := range []struct {
		overall, first, second ratelimit.RateLimitResponse_Code
		backend                string
	}{{ok, ok, ok, "first"}, {ok, over, ok, "second"}, {ok, over, ok, "second"}, {over, over, over, ""}} {
		a := answered(t, c, both)
		if a.GetOverallCode() != want.overall || a.GetStatuses()[0].GetCode() != want.first || a.GetStatuses()[1].GetCode() != want.second {
			t.Errorf("request %d: %v", i+1, a)
		}
		if got := a.GetDynamicMetadata().GetFields()["backend"].GetStringValue(); got != want.backend {
			t.Errorf("request %d: metadata names %q, want %q", i+1, got, want.backend)
		}
	}
}

func TestDocumentedHitsAddend(t *testing.T) {
	t.Parallel()
	c := client(t, `
domain: bytes
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 10}
`, nil)
	r := request("bytes", descriptor("user=ann"))
	r.HitsAddend = 4
	if s := answered(t, c, r).GetStatuses()[0]; s.GetLimitRemaining() != 6 {
		t.Errorf("4 hits of 10 leave %d", s.GetLimitRemaining())
	}
	r = request("bytes", hits(descriptor("user=ann"), 5), hits(descriptor("user=bob"), 1))
	r.HitsAddend = 9 // a descriptor's own number goes before
	a := answered(t, c, r)
	if a.GetStatuses()[0].GetLimitRemaining() != 1 || a.GetStatuses()[1].GetLimitRemaining() != 9 {
		t.Errorf("own hits: %v", a)
	}
	r = request("bytes", hits(descriptor("user=ann"), 0)) // a look
	for range 3 {
		if s := answered(t, c, r).GetStatuses()[0]; s.GetCode() != ok || s.GetLimitRemaining() != 1 {
			t.Errorf("0 hits: %v, want 1 remaining, and nothing spent", s)
		}
	}
}

func TestDocumentedLimitOfDescriptor(t *testing.T) {
	t.Parallel()
	c := client(t, `
domain: carried
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 2}
`, nil)
	d := descriptor("user=ann")
	d.Limit = limitOf(t, "HOUR", 4)
	for i := range 4 {
		a := answered(t, c, request("carried", d))
		if s := a.GetStatuses()[0]; a.GetOverallCode() != ok || s.GetCurrentLimit().GetRequestsPerUnit() != 4 {
			t.Fatalf("request %d: %v, want the limit of the request", i+1, a)
		}
	}
	if a := answered(t, c, request("carried", d)); a.GetOverallCode() != over {
		t.Errorf("beyond the limit of the request: %v", a)
	}
	free(t, c, "unheard-of", "user=ann", 5)
}
