package config_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/drawgate/drawgate/config"
)

// takesMetrics is an address that takes PutMetricData, and keeps what was sent.
type takesMetrics struct {
	mu       sync.Mutex
	requests []string // guarded by mu: path and body of each
}

func (c *takesMetrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, r.URL.Path+" "+string(body))
	w.Header().Set("Smithy-Protocol", "rpc-v2-cbor")
	w.Header().Set("Content-Type", "application/cbor")
	_, _ = w.Write([]byte{0xa0}) // an empty map
}

// The file switches the metrics of CloudWatch on: lines on the standard output, or requests to AWS.
// Both have what happened until the end.
//
// req: A13
func TestCloudWatchFromTheFile(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	aws := &takesMetrics{}
	s := httptest.NewServer(aws)
	defer s.Close()
	run := func(settings string, out io.Writer) {
		t.Helper()
		path := writeFile(t, `
policies: {api: {limits: [{name: rpd, rolling: 24h, amount: 5}]}}
rules: [{apply: [{policy: api, key: user}]}]
telemetry: {cloudwatch: {namespace: My/App, interval: 1h, `+settings+`}}
`)
		r, err := config.Open(t.Context(), path, &config.OpenOptions{EMF: out})
		if err != nil {
			t.Fatal(err)
		}
		takesOne(t.Context(), t, r)
		takesOne(t.Context(), t, r)
		if err := r.CloudWatch.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		takesOne(t.Context(), t, r)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	var out bytes.Buffer
	run("emf: true", &out)
	text := out.String()
	for _, want := range []string{
		`"Namespace":"My/App"`,
		`"BucketType":"RPD","Policy":"api","RateLimiterTokensAcquired":2`, `"RateLimiterTokensAcquired":1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the lines have no %s:\n%s", want, text)
		}
	}
	if len(aws.requests) != 0 {
		t.Errorf("%d requests were sent without put", len(aws.requests))
	}
	out.Reset()
	run(`put: true, region: eu-central-1, endpoint: "`+s.URL+`"`, &out)
	if len(aws.requests) != 2 || out.Len() > 0 {
		t.Fatalf("%d requests were sent, want 2; lines: %q", len(aws.requests), out.String())
	}
	for _, got := range aws.requests {
		if !strings.Contains(got, "/operation/PutMetricData") || !strings.Contains(got, "RateLimiterTokensAvailable") ||
			strings.Contains(got, "ann") {
			t.Errorf("this was sent: %q", got)
		}
	}
}

// Mistakes in the section are reported, and a region that nobody knows keeps a program from
// starting.
func TestCloudWatchMistakes(t *testing.T) {
	const policies = "policies: {api: {limits: [{name: rpd, rolling: 24h, amount: 5}]}}\n"
	for text, want := range map[string]string{
		"telemetry: {cloudwatch: {}}":                             "cloudwatch needs either emf or put",
		"telemetry: {cloudwatch: {emf: false}}":                   "cloudwatch needs either emf or put",
		"telemetry: {cloudwatch: {emf: true, put: true}}":         "cloudwatch needs either emf or put",
		"telemetry: {cloudwatch: {emf: true, region: us-east-1}}": "cloudwatch uses region and endpoint with put only",
		"telemetry: {cloudwatch: {put: true, region: 'us/?x'}}":   "is not the name of a region of AWS",
		"telemetry: {cloudwatch: {put: true, region: [a]}}":       "region must be",
	} {
		_, problems := config.Parse("f", []byte(policies+text))
		if len(problems) != 1 || !strings.Contains(problems[0].Message, want) {
			t.Errorf("%s: got %v, want %q", text, problems, want)
		}
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	r, err := config.Open(t.Context(), writeFile(t, policies+"telemetry: {cloudwatch: {put: true}}"), nil)
	if err == nil || r != nil || !strings.Contains(err.Error(), "no region is known") {
		t.Errorf("got %v, want that no region is known", err)
	}
}
