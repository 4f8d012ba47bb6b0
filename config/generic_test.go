package config_test

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/llm"
)

// upstreamOf returns the only upstream of a file.
func upstreamOf(t *testing.T, text string) *config.Upstream {
	t.Helper()
	c, problems := config.Parse("drawgate.yaml", []byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return &c.Gateway.Upstreams[0]
}

// TestDescribedProvider: the example of the documentation is a provider whose calls can be counted,
// and whose answers are understood.
func TestDescribedProvider(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)## Other providers.*?```yaml\n(.*?)```").FindSubmatch(page)
	if example == nil {
		t.Fatal("docs/gateway.md has no example of another provider")
	}
	p, err := upstreamOf(t, string(example[1])).Provider()
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Parse(http.MethodPost, "/generate", nil,
		[]byte(`{"model":"small","max_tokens":50,"messages":[{"content":"Hello!"}],"stream":true}`))
	if err != nil || c.Model != "small" || c.MaxOutput != 50 || c.Messages != 1 || !c.Stream ||
		c.Operation != llm.OpGeneric {
		t.Fatalf("%+v, %v", c, err)
	}
	held := p.Upper(c)
	if costs := p.Admission(c, held); held.Output != 50 || !slices.Equal(costs,
		[]drawgate.Cost{drawgate.Units("requests", 1), drawgate.Units("tokens", held.Input+50)}) {
		t.Errorf("%v are held for %+v", costs, held)
	}
	s := p.NewStream(c)
	_, _ = s.Write([]byte("data: {\"output\":{\"text\":\"Hi\"}}\n\ndata: {\"usage\":{\"prompt\":7,\"completion\":2}}\n\ndata: [DONE]\n\n"))
	_ = s.Close()
	if u := s.Usage(); u.Input != 7 || u.Output != 2 || !u.Final {
		t.Errorf("%+v", u)
	}
	seen := p.Observed(http.Header{"X-Limit-Requests": {"5"}}, time.Now())
	if len(seen) != 1 || seen[0].Limit != 5 {
		t.Errorf("%+v", seen)
	}
}

// TestCreditPause: the file says how long a provider whose credit is used up is left alone.
func TestCreditPause(t *testing.T) {
	t.Parallel()
	const text = `{policies: {p: {limits: [{name: n, rolling: 1m, amount: 1}]}}, gateway: {
  upstreams: {openai: {CREDIT api_key_env: MINE_KEY, models: [{model: "*", policy: p}]}}, keys: [{name: alice, secret_env: ALICE_KEY}]}}`
	now := time.Now()
	for setting, want := range map[string]time.Duration{"": 5 * time.Minute, "credit_pause: 90s,": 90 * time.Second} {
		p, err := upstreamOf(t, strings.Replace(text, "CREDIT", setting, 1)).Provider()
		if err != nil {
			t.Fatal(err)
		}
		r := p.Refusal(http.StatusTooManyRequests, nil, []byte(`{"error":{"code":"insufficient_quota"}}`), now)
		if got := r.ReopenAt.Sub(now); r.Meaning != llm.Credit || got != want {
			t.Errorf("%q: %v for %v, want %v", setting, r.Meaning, got, want)
		}
	}
}

// TestUnknownProvider: a profile that does not exist is an error.
func TestUnknownProvider(t *testing.T) {
	t.Parallel()
	for _, u := range []config.Upstream{{Name: "x", Profile: "x"}, {Name: "x", Profile: "generic"}} {
		if p, err := u.Provider(); err == nil || p != nil {
			t.Errorf("profile %q: %v, %v", u.Profile, p, err)
		}
	}
}
