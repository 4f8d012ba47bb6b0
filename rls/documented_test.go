package rls_test

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/rls"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/sqlitestore"
	"github.com/drawgate/drawgate/telemetry"
)

// The cases of this file are those that the documentation of envoyproxy/ratelimit describes, with
// other names and numbers: what each configuration does there, it does here. Windows are long, so
// that none ends while a test counts; what differs by unit is tested elsewhere.

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

// softUser has one user in shadow, and one who is not.
const softUser = `
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
`

// req: E9.
func TestDocumentedShadowModeIsAlwaysOK(t *testing.T) {
	t.Parallel()
	c := client(t, softUser, nil)
	a := free(t, c, "soft", "service=auth,user=ann", 5)
	if s := a.GetStatuses()[0]; s.GetCode() != ok || s.GetCurrentLimit().GetRequestsPerUnit() != 1 ||
		s.GetLimitRemaining() != 0 {
		t.Errorf("in shadow, over: %v, want OK with the limit and nothing remaining", s)
	}
	passes(t, c, "soft", "service=auth,user=bob", 2)
}

// A breach that is overridden is counted as one all the same, apart from those that are enforced.
//
// req: E9.
func TestDocumentedShadowModeIsCounted(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m, err := telemetry.NewMetrics(reg, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := config(t, softUser)
	e, err := engine.New(memory(t), engine.Config{Policies: c.Policies()}, &engine.Options{
		StoreTimeout: slowStore.StoreTimeout, Observer: m.Observer(), Diverged: m.Diverged,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	s, _ := serve(t, rls.New(e, &rls.Options{Config: c, ShadowHeader: true}))
	a := free(t, s, "soft", "service=auth,user=ann", 5)
	if got := header(a, "X-RateLimit-Shadow"); got != "rls/soft/service/user=ann;would_refuse" {
		t.Errorf("the header says %q", got)
	}
	passes(t, s, "soft", "service=auth,user=bob", 2)
	if got, want := diverged(t, reg), "would_refuse rls/soft/service/user=ann 4"; got != want {
		t.Errorf("the metric says %q, want %q", got, want)
	}
}

// diverged returns the shadows of a registry that would have answered differently: label values and
// counts.
func diverged(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var counts []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if n := m.GetCounter().GetValue(); f.GetName() == "rate_limit_shadow_divergence_total" && n > 0 {
				counts = append(counts, fmt.Sprintf("%s %s %v", m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue(),
					n))
			}
		}
	}
	return strings.Join(counts, ", ")
}

func TestDocumentedReplaces(t *testing.T) {
	t.Parallel()
	const text = `
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
`
	c := client(t, text, nil)
	both := request("swap", descriptor("group=read,user=ann"), descriptor("endpoint=report,user=ann"))
	for i := range 5 {
		a := answered(t, c, both)
		if a.GetOverallCode() != ok || a.GetStatuses()[0].GetCurrentLimit() != nil ||
			a.GetStatuses()[1].GetLimitRemaining() != uint32(4-i) {
			t.Fatalf("request %d: %v, want the wide rate alone to count", i+1, a)
		}
	}
	if a := answered(t, c, both); a.GetOverallCode() != over {
		t.Errorf("beyond the wide rate: %v", a)
	}
	passes(t, c, "swap", "group=read,user=ann", 2) // the rate that was replaced was not touched

	c = client(t, text, nil)
	passes(t, c, "swap", "endpoint=report,user=ann", 5) // alone it is a rate like others
	passes(t, c, "swap", "group=read,user=ann", 2)      // and replaces nothing of another request
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

// Each level has its own threshold to share, or not.
func TestDocumentedSharedWildcardsMayBeNested(t *testing.T) {
	t.Parallel()
	const both = "%s=%s,name=%s"
	// what remains of 5 after a take of the first file, another file, and one of another folder
	for shelf, want := range map[string][3]uint32{
		"inner": {4, 3, 4},
		"outer": {4, 4, 3}, // below a folder each file counts for itself, in whatever folder of the kind it is
		"all":   {4, 3, 2},
		"none":  {4, 4, 4},
	} {
		c := client(t, `
domain: shelves
descriptors:
  - key: inner
    descriptors: [{key: name, value: f/*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 5}}]
  - key: outer
    value: d/*
    share_threshold: true
    descriptors: [{key: name, value: f/*, rate_limit: {unit: hour, requests_per_unit: 5}}]
  - key: all
    value: d/*
    share_threshold: true
    descriptors: [{key: name, value: f/*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 5}}]
  - key: none
    value: d/*
    descriptors: [{key: name, value: f/*, rate_limit: {unit: hour, requests_per_unit: 5}}]
`, nil)
		for i, text := range []string{
			fmt.Sprintf(both, shelf, "d/1", "f/a"), fmt.Sprintf(both, shelf, "d/1", "f/b"),
			fmt.Sprintf(both, shelf, "d/2", "f/a"),
		} {
			if got := free(t, c, "shelves", text, 1).GetStatuses()[0].GetLimitRemaining(); got != want[i] {
				t.Errorf("%s: %d remain, want %d", text, got, want[i])
			}
		}
	}
}

// labelled takes for descriptors, and returns what the newest line of the history is labelled with.
// There are seen lines already.
func labelled(t *testing.T, st *sqlitestore.Store, s *rls.Service, seen *int, descriptors ...string) (names []string) {
	t.Helper()
	r := request("measured")
	for _, d := range descriptors {
		r.Descriptors = append(r.Descriptors, descriptor(d))
	}
	if a, err := s.ShouldRateLimit(t.Context(), r); err != nil || a.GetOverallCode() != ok {
		t.Fatalf("%v: %v, %v", descriptors, a, err)
	}
	*seen += len(descriptors)
	lines := 0
	err := st.Read(t.Context(), store.EventQuery{}, func(e store.Event) bool {
		lines, names = lines+1, nil
		for _, l := range e.Labels {
			names = append(names, l.Name+" "+l.Value)
		}
		return true
	})
	if err != nil || lines != *seen {
		t.Fatalf("%v: %d lines, want %d: %v", descriptors, lines, *seen, err)
	}
	return names
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

func TestDocumentedMetricKeys(t *testing.T) {
	t.Parallel()
	const text = `
domain: measured
descriptors:
  - {key: key1, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: key1, value: value1, rate_limit: {unit: minute, requests_per_unit: 20}}
  - {key: key1, value: value2, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 20}}
  - {key: plain, rate_limit: {unit: minute, requests_per_unit: 10}}
  - key: route
    value_to_metric: true
    descriptors:
      - key: method
        value_to_metric: true
        descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 60}}]
  - key: some
    descriptors:
      - key: method
        value_to_metric: true
        descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 60}}]
  - key: every
    value_to_metric: true
    descriptors:
      - key: method
        descriptors: [{key: user, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 60}}]
  - key: fixed
    value: a
    descriptors: [{key: user, value_to_metric: true, rate_limit: {unit: minute, requests_per_unit: 60}}]
  - {key: wild, value: foo*, value_to_metric: true, rate_limit: {unit: minute, requests_per_unit: 20}}
  - {key: wilder, value: foo*, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 20}}
  - {key: files, value: f/*, share_threshold: true, value_to_metric: true, rate_limit: {unit: minute, requests_per_unit: 20}}
  - key: star
    value: foo*
    descriptors: [{key: user, value_to_metric: true, rate_limit: {unit: minute, requests_per_unit: 60}}]
`
	store, err := sqlitestore.Open(filepath.Join(t.TempDir(), "history.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	s, _ := service(t, store, config(t, text), nil)
	seen := 0
	for descriptors, want := range map[string]string{
		// Detailed metrics: the value that the file does not have is named. Those that are named by
		// the file alone need no label: their policy says it.
		"key1=unspecified":             "[rls measured.key1_unspecified]",
		"key1=unspecified2":            "[rls measured.key1_unspecified2]",
		"key1=value2":                  "[rls measured.key1_value2]",
		"key1=value1":                  "[]",
		"plain=x":                      "[]",
		"route=api,method=GET,user=":   "[rls measured.route_api.method_GET.user]",
		"route=web,method=POST,user=7": "[rls measured.route_web.method_POST.user]",
		"some=api,method=GET,user=7":   "[rls measured.some.method_GET.user]",
		"every=api,method=GET,user=7":  "[rls measured.every_api.method_GET.user_7]",
		"fixed=a,user=7":               "[rls measured.fixed_a.user_7]",
		"wild=foobar":                  "[rls measured.wild_foobar]",
		"wilder=foobar":                "[rls measured.wilder_foobar]",
		"files=f/a.pdf":                "[rls measured.files_f/*]",
		"star=foobar,user=7":           "[rls measured.star_foo*.user_7]",
		// Each rate of a request is named.
		"key1=a plain=x wild=foobar": "[rls measured.key1_a rls measured.wild_foobar]",
	} {
		if got := fmt.Sprint(labelled(t, store, s, &seen, strings.Fields(descriptors)...)); got != want {
			t.Errorf("%s: %s, want %s", descriptors, got, want)
		}
	}
}

// What the demonstration of the documentation shows with a rate and others below it under one key;
// two descriptors share the outer entry.
func TestDocumentedRateWithOthersBelow(t *testing.T) {
	t.Parallel()
	const text = `
domain: shop
descriptors:
  - key: from
    value: edge
    descriptors:
      - {key: to, value: stock, rate_limit: {unit: hour, requests_per_unit: 1}}
  - key: team
    rate_limit: {unit: hour, requests_per_unit: 2}
    descriptors:
      - {key: role, rate_limit: {unit: hour, requests_per_unit: 3}}
      - {key: role, value: expelled, rate_limit: {unit: hour, requests_per_unit: 0}}
      - {key: tool, rate_limit: {unit: hour, requests_per_unit: 1}}
      - {key: tool, value: trial, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
      - {key: badge, rate_limit: {unlimited: true}}
  - {key: open, rate_limit: {unlimited: true}}
`
	c := client(t, text, nil)
	passes(t, c, "shop", "from=edge,to=stock", 1)
	passes(t, c, "shop", "team=red", 2) // what is asked below it does not count here, nor the other way
	passes(t, c, "shop", "team=red,role=clerk", 3)
	passes(t, c, "shop", "team=red,role=expelled", 0)
	passes(t, c, "shop", "team=blue,role=expelled", 0)
	passes(t, c, "shop", "team=red,tool=saw", 1)
	passes(t, c, "shop", "team=red,tool=file", 1)
	free(t, c, "shop", "team=red,tool=trial", 5)
	for _, text := range []string{"team=red,badge=x", "open=x"} {
		if s := free(t, c, "shop", text, 9).GetStatuses()[0]; s.GetLimitRemaining() != math.MaxUint32 {
			t.Errorf("%s: %v, want it unlimited", text, s)
		}
	}

	c = client(t, text, nil)
	two := func(role, tool string) ratelimit.RateLimitResponse_Code {
		a := answered(t, c, request("shop", descriptor("team=red,role="+role), descriptor("team=red,tool="+tool)))
		return a.GetOverallCode()
	}
	for i, step := range []struct {
		role, tool string
		want       ratelimit.RateLimitResponse_Code
	}{
		{"clerk", "saw", ok},
		{"clerk", "saw", over}, // the tool's rate
		{"expelled", "file", over},
		{"clerk", "trial", ok},
		{"clerk", "trial", ok}, // the trial is over its rate, and in shadow
		{"clerk", "trial", over},
		{"cook", "file", ok}, // what was refused above spent nothing
	} {
		if got := two(step.role, step.tool); got != step.want {
			t.Errorf("request %d, %s with %s: %v, want %v", i+1, step.role, step.tool, got, step.want)
		}
	}
}

// A descriptor without a rate and without others below it is free, whatever its key alone would be.
func TestDocumentedDescriptorWithoutARateIsFree(t *testing.T) {
	t.Parallel()
	c := client(t, `
domain: club
descriptors:
  - {key: guest, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: guest, value: host}
  - {key: guest, value: staff-*}
  - key: room
    descriptors:
      - {key: guest, rate_limit: {unit: hour, requests_per_unit: 1}}
      - {key: guest, value: host}
`, nil)
	passes(t, c, "club", "guest=ann", 1)
	passes(t, c, "club", "room=1,guest=ann", 1)
	for _, text := range []string{"guest=host", "guest=staff-7", "room=1,guest=host"} {
		if s := free(t, c, "club", text, 5).GetStatuses()[0]; s.GetCurrentLimit() != nil {
			t.Errorf("%s: %v, want no limit", text, s)
		}
	}
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
		if a.GetOverallCode() != want.overall || a.GetStatuses()[0].GetCode() != want.first ||
			a.GetStatuses()[1].GetCode() != want.second {
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
