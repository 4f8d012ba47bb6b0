package cloudwatch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/telemetry/cloudwatch"
)

// The four metrics of the documents have the bucket type as a dimension, and the numbers of the
// bucket: 5,000 tokens were there, 3,750 are taken, 1,250 remain.
//
// req: A13
func TestTakesAreCountedByBucketType(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &lines{}
		m := newMetrics(t, w)
		l := limiter(t, gemini("flash"), m.Observer())
		take(t, l, "user-17", 245_000)
		flush(t, m, w)
		take(t, l, "user-17", 3_750)
		if d := take(t, l, "user-17", 3_750); d.Allowed {
			t.Fatal("there were only 1,250 tokens left")
		}
		got := flush(t, m, w)
		for _, policy := range []string{"flash", ""} { // each metric also by its type alone
			got.want(t, of(cloudwatch.TokensAcquired, "TPM", policy), 1, 3_750)
			got.want(t, of(cloudwatch.TokensAcquired, "RPM", policy), 1, 1)
			got.want(t, of(cloudwatch.TokensAcquired, "RPD", policy), 1, 1)
			got.want(t, of(cloudwatch.TokensAcquired, "burst", policy), 1, 1)
			got.want(t, of(cloudwatch.TokensAvailable, "TPM", policy), 2, 1_250+1_250)
			got.want(t, of(cloudwatch.TokensAvailable, "RPM", policy), 2, 3+3)
			got.want(t, of(cloudwatch.TokensAvailable, "RPD", policy), 2, 23+23)
			got.want(t, of(cloudwatch.AcquisitionFailures, "TPM", policy), 1, 1)
			got.want(t, of(cloudwatch.AcquisitionFailures, "RPM", policy), 1, 0)
			got.want(t, of(cloudwatch.AcquisitionLatency, "TPM", policy), 2, 0)
		}
		got.want(t, cloudwatch.AcquisitionLatency, 2, 0)
		for where := range got {
			if strings.Contains(where, "user-17") {
				t.Errorf("%s names a key", where)
			}
		}
		if text := flush(t, m, w); len(text) != 0 {
			t.Errorf("nothing has happened, and this is reported: %v", text)
		}
	})
}

// The metrics have the units that alarms name.
//
// req: A13, A15
func TestUnits(t *testing.T) {
	t.Parallel()
	w := &lines{}
	m := newMetrics(t, w)
	everything(t, m)
	if err := m.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, got := parse(t, w.Take())
	want := unitsOf{
		"RateLimiterTokensAcquired": "Count", "RateLimiterTokensAvailable": "Count",
		"RateLimiterAcquisitionLatency":  "Milliseconds",
		"RateLimiterAcquisitionFailures": "Count", "RateLimiterFallbackActivated": "Count",
		"RateLimiterStoreLatency": "Milliseconds",
		"RateLimiterStoreRetries": "Count", "RateLimiterConditionalWriteFailures": "Count",
		"RateLimiterStoreThrottled":   "Count",
		"RateLimiterProviderRefusals": "Count",
	}
	for name, unit := range want {
		if got[name] != unit {
			t.Errorf("%s has the unit %q, want %q", name, got[name], unit)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got the metrics %v, want %v", got, want)
	}
}

// everything makes something happen that each metric counts.
func everything(t *testing.T, m *cloudwatch.Metrics) {
	t.Helper()
	take(t, limiter(t, gemini("flash"), m.Observer()), "a", 100)
	m.Observer().Called(&drawgate.StoreCall{Op: "take", Took: 4 * time.Millisecond})
	m.Guard().FallbackActivated(&guard.FallbackActivated{})
	m.Store().Called(&dynamostore.Call{Op: "take", Attempts: 3, Conflicts: 1, Throttled: 1, Took: 4 * time.Millisecond})
	m.Outbound().Called(&outbound.Event{Outcome: outbound.Refused})
	m.Outbound().Called(&outbound.Event{Outcome: outbound.Succeeded})
}

// Latency, retries and conflicts of the store are recorded call by call.
//
// req: A15
func TestStoreIsRecorded(t *testing.T) {
	t.Parallel()
	w := &lines{}
	m := newMetrics(t, w)
	for i, c := range []dynamostore.Call{
		{Attempts: 1},
		{Attempts: 1},
		{Attempts: 4, Conflicts: 3},
		{Attempts: 6, Throttled: 5},
	} {
		m.Observer().Called(&drawgate.StoreCall{Op: "take", Took: time.Duration(i+1) * 1500 * time.Microsecond})
		m.Store().Called(&c)
	}
	got := flush(t, m, w)
	for where, want := range map[string][]float64{
		cloudwatch.StoreLatency: {1.5, 3, 4.5, 6}, cloudwatch.StoreRetries: {0, 0, 3, 5},
		cloudwatch.ConditionalWriteFailures: {3}, cloudwatch.StoreThrottled: {5},
	} {
		if !slices.Equal(got[where], want) {
			t.Errorf("%s is %v, want %v", where, got[where], want)
		}
	}
}

var errDown = &drawgate.StoreError{
	Store: "test", Op: "take", Err: errors.New("connection refused"),
	Fault: store.FaultTransient,
}

// While the guard's breaker is open nobody asks the store, so there is no latency to report.
//
// req: A15
func TestNoStoreLatencyWhileTheBreakerIsOpen(t *testing.T) {
	t.Parallel()
	w := &lines{}
	m := newMetrics(t, w)
	call := &drawgate.StoreCall{Op: "take", Took: time.Millisecond}
	m.Observer().Called(call)
	m.Guard().Opened(&guard.Opened{})
	m.Observer().Called(call)
	m.Guard().Closed(&guard.Closed{})
	m.Observer().Called(call)
	flush(t, m, w).want(t, cloudwatch.StoreLatency, 2, 2)
}

// Nothing is lost, and nothing counted twice, while reports are made.
//
// req: A13
func TestReportsWhileOthersTake(t *testing.T) {
	t.Parallel()
	w := &lines{}
	m := newMetrics(t, w)
	l := limiter(t, drawgate.PerMinute("p", 1_000_000), m.Observer())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 2000 {
				_, _ = l.Allow(t.Context(), "a")
				if i%100 == 0 {
					_ = m.Flush(t.Context())
				}
			}
		})
	}
	wg.Wait()
	if err := m.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, _ := parse(t, w.Take())
	if sum := got.sum(of(cloudwatch.TokensAcquired, "RPM", "p")); sum != 8000 {
		t.Errorf("%v units are reported, want 8000", sum)
	}
}

// failing is a store that does not answer.
type failing struct{ drawgate.Store }

func (failing) Take(context.Context, []store.Take, []store.Verdict) error { return errDown }

// An outage of the store is reported once, however many takes this process decides by itself. What
// is left of its own share is not reported as the bucket's.
//
// req: A10
func TestFallbackIsReportedOncePerOutage(t *testing.T) {
	t.Parallel()
	w := &lines{}
	m := newMetrics(t, w)
	g := guard.New(failing{memstore.New(nil)}, &guard.Options{Instances: 1, Observer: m.Guard()})
	defer func() { _ = g.Close() }()
	l, err := drawgate.New(g.Full(), gemini("flash"), &drawgate.Options{Observer: m.Observer()})
	if err != nil {
		t.Fatal(err)
	}
	allowed := 0.0
	for range 5 {
		if take(t, l, "a", 10).Allowed {
			allowed++
		}
	}
	got := flush(t, m, w)
	got.want(t, cloudwatch.FallbackActivated, 1, 1)
	got.want(t, of(cloudwatch.TokensAcquired, "TPM", "flash"), 1, 10*allowed)
	if where := of(cloudwatch.TokensAvailable, "TPM", "flash"); got[where] != nil {
		t.Errorf("%s is %v", where, got[where])
	}
	got = flush(t, m, w)
	if got[cloudwatch.FallbackActivated] != nil {
		t.Errorf("the same outage is reported again: %v", got)
	}
}

// A refusal by the provider counts once; nothing else that a call does counts.
//
// req: A14
func TestProviderRefusals(t *testing.T) {
	t.Parallel()
	w := &lines{}
	m := newMetrics(t, w)
	o := m.Outbound()
	for outcome := outbound.Succeeded; outcome <= outbound.HoldFailed; outcome++ {
		o.Called(&outbound.Event{Outcome: outcome})
	}
	flush(t, m, w).want(t, cloudwatch.ProviderRefusals, 1, 1)
}

// A lease counts what it was granted, and a take that repeats an answer counts nothing.
func TestLeasesCountWhatWasGranted(t *testing.T) {
	t.Parallel()
	w := &lines{}
	m := newMetrics(t, w)
	l := limiter(t, gemini("flash"), m.Observer())
	_, res, err := l.Take(t.Context(), drawgate.Request{
		Buckets: []drawgate.Ask{l.Ask("a", drawgate.Tokens(500_000))},
		Hold:    drawgate.Hold{For: time.Minute, Lease: true},
	})
	if err != nil || res == nil {
		t.Fatal(res, err)
	}
	flush(t, m, w).want(t, of(cloudwatch.TokensAcquired, "TPM", "flash"), 1, 250_000)
}

// Policies and limits beyond the bounds are counted together.
func TestPoliciesAreBounded(t *testing.T) {
	t.Parallel()
	w := &lines{}
	m := newMetrics(t, w)
	for i := range 1100 {
		take(t, limiter(t, gemini(fmt.Sprintf("p%d", i)), m.Observer()), "a", 1)
	}
	got := flush(t, m, w)
	policies := map[string]bool{}
	for where := range got {
		if _, policy, ok := strings.Cut(where, "Policy="); ok {
			policies[policy] = true
		}
	}
	if len(policies) > 1001 || !policies["other"] {
		t.Errorf("%d policies are told apart, others: %v", len(policies), policies["other"])
	}
	got.want(t, of(cloudwatch.TokensAcquired, "RPM", ""), len(policies), 1100)
}

// Names that CloudWatch does not take as dimensions are changed.
func TestNamesFitDimensions(t *testing.T) {
	t.Parallel()
	w := &lines{}
	m := newMetrics(t, w)
	for _, name := range []string{"Übersetzung", "a\nb\x00", "\xff", "  ", `quo"te\`} {
		take(t, limiter(t, gemini(name), m.Observer()), "a", 1)
	}
	got := flush(t, m, w) // which checks them
	for _, policy := range []string{"?bersetzung", "a?b?", "?", `quo"te\`} {
		if got[of(cloudwatch.TokensAcquired, "RPM", policy)] == nil {
			t.Errorf("policy %q is not there: %v", policy, got)
		}
	}
}
