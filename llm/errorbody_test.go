package llm_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate/llm"
)

var kinds = []llm.ErrorKind{
	llm.RateLimited, llm.Unauthorized, llm.BadRequest, llm.Overloaded, llm.ServerError,
	llm.TimedOut, llm.KeyExpired, llm.KeyDisabled, llm.NoCredit,
}

// TestErrorsInTheProvidersForm: each provider's clients find what they look at: the status, the
// type and the message where they expect them.
func TestErrorsInTheProvidersForm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		profile string
		kind    llm.ErrorKind
		after   time.Duration
		status  int
		body    string
		retry   []string // Retry-After, Retry-After-Ms, X-Should-Retry
	}{
		{
			"openai", llm.RateLimited, 1500 * time.Millisecond, 429,
			`{"error":{"code":"rate_limit_exceeded","message":"a \"<b>\"","param":null,"type":"requests"}}`,
			[]string{"2", "1500", ""},
		},
		{
			"openai", llm.RateLimited, 45 * time.Second, 429,
			`{"error":{"code":"rate_limit_exceeded","message":"a \"<b>\"","param":null,"type":"requests"}}`,
			[]string{"45", "45000", "false"},
		},
		{
			"openai", llm.RateLimited, 0, 429,
			`{"error":{"code":"rate_limit_exceeded","message":"a \"<b>\"","param":null,"type":"requests"}}`,
			[]string{"", "", "false"},
		},
		{
			"openai", llm.Unauthorized, 0, 401,
			`{"error":{"code":"invalid_api_key","message":"a \"<b>\"","param":null,"type":"invalid_request_error"}}`,
			[]string{"", "", "false"},
		},
		{
			"openai", llm.KeyExpired, 0, 401,
			`{"error":{"code":"key_expired","message":"a \"<b>\"","param":null,"type":"invalid_request_error"}}`,
			[]string{"", "", "false"},
		},
		{
			"anthropic", llm.KeyExpired, 0, 401,
			`{"error":{"code":"key_expired","message":"a \"<b>\"","type":"authentication_error"},"type":"error"}`,
			[]string{"", "", "false"},
		},
		{
			"gemini", llm.KeyDisabled, 0, 401,
			`{"error":{"code":401,"details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","domain":"drawgate","reason":"KEY_DISABLED"}],"message":"a \"<b>\"","status":"UNAUTHENTICATED"}}`,
			[]string{"", "", "false"},
		},
		{
			"openai", llm.BadRequest, 0, 400,
			`{"error":{"code":null,"message":"a \"<b>\"","param":null,"type":"invalid_request_error"}}`,
			[]string{"", "", "false"},
		},
		{
			"openai", llm.NoCredit, 0, 429,
			`{"error":{"code":"insufficient_quota","message":"a \"<b>\"","param":null,"type":"insufficient_quota"}}`,
			[]string{"", "", "false"},
		},
		{
			"anthropic", llm.NoCredit, 0, 429, `{"error":{"message":"a \"<b>\"","type":"billing_error"},"type":"error"}`,
			[]string{"", "", "false"},
		},
		{
			"gemini", llm.NoCredit, 0, 429, `{"error":{"code":429,"message":"a \"<b>\"","status":"RESOURCE_EXHAUSTED"}}`,
			[]string{"", "", "false"},
		},
		{
			"anthropic", llm.RateLimited, 45 * time.Second, 429,
			`{"error":{"message":"a \"<b>\"","type":"rate_limit_error"},"type":"error"}`,
			[]string{"45", "45000", ""},
		},
		{
			"anthropic", llm.Overloaded, time.Nanosecond, 529,
			`{"error":{"message":"a \"<b>\"","type":"overloaded_error"},"type":"error"}`,
			[]string{"1", "1", ""},
		},
		{
			"anthropic", llm.RateLimited, time.Hour, 429,
			`{"error":{"message":"a \"<b>\"","type":"rate_limit_error"},"type":"error"}`,
			[]string{"3600", "3600000", "false"},
		},
		{
			"anthropic", llm.TimedOut, 0, 504, `{"error":{"message":"a \"<b>\"","type":"timeout_error"},"type":"error"}`,
			[]string{"", "", "false"},
		},
		{
			"gemini", llm.RateLimited, 1500 * time.Millisecond, 429,
			`{"error":{"code":429,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1.5s"}],"message":"a \"<b>\"","status":"RESOURCE_EXHAUSTED"}}`,
			[]string{"2", "1500", ""},
		},
		{
			"gemini", llm.ServerError, 0, 500, `{"error":{"code":500,"message":"a \"<b>\"","status":"INTERNAL"}}`,
			[]string{"", "", ""},
		},
		{
			"gemini", llm.ErrorKind(200), 0, 500, `{"error":{"code":500,"message":"a \"<b>\"","status":"INTERNAL"}}`,
			[]string{"", "", ""},
		},
	} {
		r := profile(t, c.profile).Error(c.kind, `a "<b>"`, c.after)
		if r.Status != c.status || strings.TrimSpace(string(r.Body)) != c.body ||
			r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %d: %d %v\n%s, want\n%s", c.profile, c.kind, r.Status, r.Header, r.Body, c.body)
		}
		for i, name := range []string{"Retry-After", "Retry-After-Ms", "X-Should-Retry"} {
			if got := r.Header.Get(name); got != c.retry[i] {
				t.Errorf("%s %d after %v: %s is %q, want %q", c.profile, c.kind, c.after, name, got, c.retry[i])
			}
		}
	}
	p, err := llm.NewGeneric(llm.Generic{
		Name: "x", Paths: []string{"/"}, Prompt: []string{"p"},
		Default: llm.Family{Context: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := p.Error(llm.Overloaded, "m", 0); r.Status != 503 ||
		r.Header.Get("Content-Type") != "application/problem+json" || !json.Valid(r.Body) {
		t.Errorf("%d %v %s", r.Status, r.Header, r.Body)
	}
	const disabled = `{"code":"key_disabled","detail":"m","status":401,"title":"unauthorized"}`
	if r := p.Error(llm.KeyDisabled, "m", 0); strings.TrimSpace(string(r.Body)) != disabled {
		t.Errorf("got %s, want %s", r.Body, disabled)
	}
}

// TestOwnErrorsAreUnderstood: a gateway behind a gateway reads a refusal of ours as what it is,
// with the same wait.
func TestOwnErrorsAreUnderstood(t *testing.T) {
	t.Parallel()
	want := map[llm.ErrorKind][]llm.Meaning{
		llm.RateLimited: {llm.PerMinute}, llm.Unauthorized: {llm.NotQuota}, llm.BadRequest: {llm.NotQuota},
		llm.Overloaded:  {llm.Overload},
		llm.ServerError: {llm.Transient}, llm.TimedOut: {llm.Transient},
		llm.KeyExpired: {llm.NotQuota}, llm.KeyDisabled: {llm.NotQuota}, llm.NoCredit: {llm.Credit, llm.PerMinute},
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(llm.Profiles()).Draw(t, "profile")
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		after := time.Duration(rapid.Int64Range(1, 300_000).Draw(t, "after")) * time.Millisecond
		now := time.Unix(1_800_000_000, 0)
		e := p.Error(kind, "the quota is full", after)
		r := p.Refusal(e.Status, e.Header, e.Body, now)
		if !slices.Contains(want[kind], r.Meaning) || r.Meaning == llm.PerMinute && kind == llm.NoCredit &&
			p.Name != "gemini" {
			t.Fatalf("%s: %s is read as %v", p.Name, e.Body, r.Meaning)
		}
		if wait := r.ReopenAt.Sub(now); kind == llm.RateLimited && (wait < after || wait > after+time.Second) {
			t.Fatalf("%s %v: reopens after %v, want %v", p.Name, e.Header, wait, after)
		}
	})
}

// TestNames: each profile is found by its name, and its copies are apart.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, p := range llm.Profiles() {
		q := profile(t, p.Name)
		q.Families, q.Units[0] = append(q.Families, llm.Family{}), "changed"
		q.Families[0].Name = "changed"
		if r := profile(t, p.Name); len(r.Families) == len(q.Families) || r.Units[0] == "changed" ||
			len(r.Families) > 0 && r.Families[0].Name == "changed" {
			t.Errorf("copies of %s share what they have", p.Name)
		}
		for _, f := range p.Families {
			for _, prefix := range f.Prefixes {
				if got := p.Family("models/" + prefix + "-x").Name; got != f.Name && f.Name != "" {
					t.Errorf("%s-x is of the family %q, want %q", prefix, got, f.Name)
				}
			}
		}
	}
	if _, ok := llm.ByName("other"); ok {
		t.Error("there is a profile other")
	}
	if c, err := llm.OpenAI().Parse(http.MethodGet, "/v1/models", nil, nil); err != nil || c.Operation != llm.OpOther {
		t.Errorf("%+v %v", c, err)
	}
}
