package dynamostore_test

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/incident"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/outbound"
	cw "github.com/drawgate/drawgate/telemetry/cloudwatch"
	"github.com/drawgate/drawgate/telemetry/snsnotify"
)

// req: A13
func complianceMetrics(t *testing.T, c *cloud, prefix string) {
	t.Helper()
	in := c.guarded(t, prefix, time.Second)
	in.must(245_000)
	in.must(3_750)
	if d := in.acquire(3_750); d.Allowed {
		t.Fatal("there were 1,250 tokens")
	}
	const policy = "gemini-translation-bucket"
	count := cwtypes.StandardUnitCount
	for bucket, want := range map[string]struct{ acquired, least, refused float64 }{
		"RPM": {2, 3, 0}, "TPM": {248_750, 1_250, 1}, "RPD": {2, 22, 0},
	} {
		dims := []string{"BucketType", bucket, "Policy", policy}
		if d := in.metric(cw.TokensAcquired, count, dims...); *d.Sum != want.acquired || *d.SampleCount != 2 {
			t.Errorf("%s of %s: %v in %v acquisitions, want %v in 2", cw.TokensAcquired, bucket, *d.Sum, *d.SampleCount,
				want.acquired)
		}
		if d := in.metric(cw.TokensAvailable, count, dims...); *d.Minimum != want.least || *d.SampleCount != 3 {
			t.Errorf("%s of %s: at least %v in %v decisions, want %v in 3", cw.TokensAvailable, bucket, *d.Minimum,
				*d.SampleCount, want.least)
		}
		if d := in.metric(cw.AcquisitionFailures, count, dims...); *d.Sum != want.refused {
			t.Errorf("%s of %s: %v, want %v", cw.AcquisitionFailures, bucket, *d.Sum, want.refused)
		}
		if d := in.metric(cw.AcquisitionLatency, cwtypes.StandardUnitMilliseconds, dims...); *d.SampleCount != 3 {
			t.Errorf("%s of %s has %v values, want 3", cw.AcquisitionLatency, bucket, *d.SampleCount)
		}
	}
}

// How long an acquisition takes on DynamoDB itself is for the benchmarks: here it takes what the
// connection is made to take.
//
// req: A15
func coordinatorPerformance(t *testing.T, c *cloud, prefix string) {
	t.Helper()
	a := c.guarded(t, prefix, time.Second)
	b := c.instance(t, prefix)
	slow := func(_ string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		time.Sleep(4 * time.Millisecond)
		return send()
	}
	a.wire.troubled(slow)
	a.must(1_000) // a read and a write
	b.must(1_000)
	a.must(1_000) // its write comes second: one retry
	count, ms := cwtypes.StandardUnitCount, cwtypes.StandardUnitMilliseconds
	for name, want := range map[string]struct {
		unit                cwtypes.StandardUnit
		n, sum, least, most float64
	}{
		cw.StoreLatency:             {ms, 2, 16, 8, 8},
		cw.StoreRetries:             {count, 2, 2, 1, 1},
		cw.ConditionalWriteFailures: {count, 1, 1, 1, 1},
	} {
		d := a.metric(name, want.unit)
		if *d.SampleCount != want.n || *d.Sum != want.sum || *d.Minimum != want.least || *d.Maximum != want.most {
			t.Errorf("%s: %v values, sum %v, %v to %v; want %+v", name, *d.SampleCount, *d.Sum, *d.Minimum, *d.Maximum,
				want)
		}
	}
}

// provider is a Gemini that admits fewer requests than our limits do. The second one's answer is
// held back until release is closed.
func provider(t *testing.T, release <-chan struct{}) http.RoundTripper {
	t.Helper()
	sim, err := simulator.New(&simulator.Options{Quotas: []simulator.Quota{{
		Provider: simulator.Gemini, Name: "gemini-2.5-pro", Models: []string{"*"}, FreeTier: true,
		Limits: []simulator.Limit{{Name: "rpm", Dimension: simulator.Requests, Amount: 2, Window: simulator.Rolling}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	calls := 0
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := sim.Transport().RoundTrip(r)
		mu.Lock()
		calls++
		second := calls == 2
		mu.Unlock()
		if second {
			<-release
		}
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// translate calls the provider, and returns the status of the answer.
func translate(t *testing.T, sdk *http.Client) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:generateContent",
		strings.NewReader(`{"contents":[{"parts":[{"text":"Translate this chunk."}]}]}`))
	if err != nil {
		t.Error(err)
		return 0
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := sdk.Do(r)
	if err != nil {
		t.Error(err)
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// The alarm on the metric is in the template deploy/aws, whose tests read it back.
//
// req: A14
func alertOnViolations(t *testing.T, c *cloud, prefix string) {
	t.Helper()
	operators, err := snsnotify.New(c.topic.client, c.topic.arn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = operators.Close() }()
	file := filepath.Join(t.TempDir(), "incidents.jsonl")
	rec := incident.New(&incident.Options{Instance: "lambda-1", File: file, Report: operators.Notify})
	defer func() { _ = rec.Close() }()
	m, metric := c.metrics(t, prefix)

	in := c.process(t, prefix)
	policy := awstest.Gemini()
	policy.Name = "gemini-2.5-pro" // a call counts by the policy of its model
	lim, err := drawgate.New(in.store, policy, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lim.Close() }()
	release := make(chan struct{})
	calls := outbound.New(outbound.PerModel(project, lim), &outbound.Options{
		Upstream: "gemini",
		Observer: outbound.Join(rec.Observer(), m.Outbound()),
	})
	sdk := &http.Client{Transport: outbound.NewTransport(calls, llm.Gemini(),
		&outbound.TransportOptions{Base: provider(t, release)})}

	if code := translate(t, sdk); code != http.StatusOK {
		t.Fatalf("got %d", code)
	}
	time.Sleep(time.Second)
	var second sync.WaitGroup
	second.Go(func() {
		if code := translate(t, sdk); code != http.StatusOK {
			t.Errorf("got %d", code)
		}
	})
	time.Sleep(time.Second)
	at := time.Now()
	if code := translate(t, sdk); code != http.StatusTooManyRequests {
		t.Fatalf("got %d, want 429", code)
	}
	close(release)
	second.Wait()

	if err := rec.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := operators.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := <-c.topic.got
	var got api.Incident
	if err := json.Unmarshal([]byte(n.Message), &got); err != nil {
		t.Fatalf("%v: %s", err, n.Message)
	}
	if n.Type != "Notification" || n.TopicArn != c.topic.arn ||
		!strings.HasPrefix(n.Subject, "Drawgate: gemini refused a call of gemini-2.5-pro") ||
		got.Severity != api.SeverityError {
		t.Errorf("the notification is %+v", n)
	}
	if !got.At.Equal(at) {
		t.Errorf("the violation was at %v, want %v", got.At, at.UTC())
	}
	remaining := map[string]int64{}
	for _, l := range got.Limits {
		remaining[l.Name] = l.Remaining
	}
	if len(remaining) != 3 || remaining["rpm"] != 2 || remaining["rpd"] != 21 || remaining["tpm"] <= 0 {
		t.Errorf("the bucket was %v", remaining)
	}
	if got.Concurrent != 2 {
		t.Errorf("%d concurrent requests, want 2", got.Concurrent)
	}
	if outcomes := outcomes(got.Takes); outcomes != "succeeded under_way refused" {
		t.Errorf("the history is %q", outcomes)
	}
	if n := *metric(cw.ProviderRefusals, cwtypes.StandardUnitCount).Sum; n != 1 {
		t.Errorf("%s is %v, want 1", cw.ProviderRefusals, n)
	}
	if err := rec.Close(); err != nil {
		t.Error(err)
	}
	if kept, _, err := incident.Read(file); err != nil || len(kept) != 1 || kept[0].ID != got.ID {
		t.Errorf("kept for the post-mortem: %+v, %v", kept, err)
	}
}

func outcomes(takes []api.IncidentTake) string {
	var list []string
	for _, take := range takes {
		list = append(list, take.Outcome)
	}
	return strings.Join(list, " ")
}
