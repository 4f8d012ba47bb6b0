package browsertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/drawgate/drawgate/llm/simulator"
)

const secretOfAlice = "vk-alice-0123456789abcdef"

// everything is a configuration with all that the page shows.
const everything = `
store: sqlite:state.db
policies:
  llm:
    limits:
      - {name: rpm, rolling: 1h, amount: 50}
      - {name: tpm, unit: tokens, rolling: 1h, amount: 10000, headroom: 10%%}
  per-ip: {limits: [{name: rate, bucket: 1h, amount: 10, burst: 4}]}
  builds: {limits: [{name: at-once, concurrency: 1}]}
  trial: {shadow: true, limits: [{name: daily, calendar: day, amount: 2, zone: Europe/Berlin}]}
  spare: {disabled: true, limits: [{name: rps, rolling: 1s, amount: 1}]}
  quota: {limits: [{name: calls, rolling: 1m, amount: 10, margin: 20s}]}
rules:
  - {name: site, match: {host: www.example.com}, apply: [{policy: per-ip, key: ip}, {policy: trial, key: ip}, {policy: llm, key: ip, shadow: true}]}
gateway:
  listen: 127.0.0.1:0
  upstreams:
    openai: {url: %q, owner: project-1, models: [{model: "*", policy: quota}]}
    broken: {profile: openai, url: %q, owner: project-2, models: [{model: "*", policy: quota}], breaker: {failures: 1, open: 10m}}
  keys: [{name: alice, team: red, secret_env: ALICE_KEY}]
  prices: {models: {gpt-4.1: {input: "2.00", output: "8.00"}}}
`

// provider returns the address of a simulated provider that admits one call a minute.
func provider(t *testing.T) string {
	t.Helper()
	sim, err := simulator.New(&simulator.Options{Quotas: []simulator.Quota{{
		Provider: simulator.OpenAI, Name: "gpt", Models: []string{"*"},
		Limits: []simulator.Limit{{
			Name: "rpm", Dimension: simulator.Requests, Amount: 1, Window: simulator.Rolling,
			Period: time.Minute,
		}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(sim)
	t.Cleanup(s.Close)
	return s.URL
}

// call calls a model at a base URL, and returns the status.
func (s *server) call(base string) int {
	s.t.Helper()
	status, _ := s.request(http.MethodPost, base+"/v1/chat/completions",
		`{"model":"gpt-4.1","max_tokens":5,"messages":[{"role":"user","content":"simulate: output=5"}]}`,
		"Authorization", "Bearer "+secretOfAlice, "Drawgate-Timeout", "0")
	return status
}

// lively starts a server in which everything that the page shows has happened.
func lively(t *testing.T) *server {
	t.Helper()
	t.Setenv("ALICE_KEY", secretOfAlice)
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request,
	) {
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(broken.Close)
	upstream := provider(t)
	s := serve(t, fmt.Sprintf(everything, upstream, broken.URL))
	for i, tokens := range []int{8700, 6200, 4100, 1500, 300} {
		s.take(fields{
			"policy": "llm", "key": fmt.Sprintf("team-%c", 'a'+i), "costs": fields{"tokens": tokens},
			"labels": fields{"task": "nightly"},
		})
	}
	s.take(fields{"policy": "llm", "key": "team-a", "tenant": "acme"})
	for range 3 {
		s.take(fields{"attributes": fields{"host": "www.example.com", "path": "/", "ip": "192.0.2.7"}})
	}
	s.take(fields{"policy": "builds", "key": "deploy", "hold_ms": 600_000})
	go func() { // waits until the server ends
		res, err := http.Post(s.public+"/v1/take", "application/json",
			body(`{"policy":"builds","key":"deploy","hold_ms":1000,"wait_ms":600000}`))
		if err == nil {
			_ = res.Body.Close()
		}
	}()
	s.post(s.admin+"/v1/pause", fields{
		"policy": "llm", "key": "team-e", "for_ms": 600_000,
		"reason": "429 of the provider",
	})
	s.post(s.admin+"/v1/policies/per-ip/disable", fields{"for_ms": 600_000})
	s.call(upstream) // somebody else uses up the provider's limit
	if got := s.call(s.gateway + "/openai"); got != http.StatusTooManyRequests {
		t.Fatalf("the provider refuses the call: %d, want 429: %s", got, s.log)
	}
	s.call(s.gateway + "/broken")
	return s
}

// req: A13, B10, C11
func TestEveryPartShowsWhatTheServerHas(t *testing.T) {
	s := lively(t)
	b := open(t, s.admin+"/")
	b.shows("#facts", "decides", "store ok", "1 waiting", "up ")
	b.shows("#buckets", "11 buckets", "team-a", "8,700 of 9,000 tokens", "1 of 50 requests", "llm~shadow", "192.0.2.7",
		"daily", "2 of 2 requests", "used up")
	b.shows("#buckets", "deploy", "1 of 1 requests, 1 held", "paused until", "project-1")
	b.await("document.querySelectorAll('#buckets .bar.full').length >= 2 && document.querySelectorAll('#buckets .bar.high').length === 1")
	// the second reading
	b.await("document.querySelector('#buckets polyline').getAttribute('points').split(' ').length >= 2")
	b.shows("#upstreams", "openai", "owner project-1", "closed", "quota (*)", "calls", "broken",
		"open, a call may try in")
	b.shows("#spend", "alice", "of team red", "$0.00", "in all")
	b.shows("#incidents", "openai", "error", "the provider says that its limit is 1")
	b.shows("#policies", "llm", "tpm: 10000 tokens per rolling 1h, 1,000 kept back", "shadow: refuses nothing",
		"off until", "at-once: 1 request")
	b.shows("#shadows", "trial")
	if s.has("/v1/waiting") {
		b.shows("#waiting", "deploy", "builds", "at-once")
	} else {
		b.shows("#absent", "Waiting callers: this server does not have it.")
	}
	b.must(chromedp.Do(b.ctx, chromedp.SendKeys(chromedp.CSS("#tenant"), "acme"+kb.Enter)))
	b.shows("#buckets", "1 bucket,", "of tenant acme")
	b.hides("#history table")
	b.must(click(b, "#load"))
	b.shows("#history", "take", "team-a of tenant acme", "requests=1 tokens=8700", "task=nightly")
	b.quiet(s.admin, "/v1/waiting")
}

// simple is a configuration with one policy.
const simple = `
store: "memory:"
policies: {p: {limits: [{name: day, rolling: 24h, amount: 1000}]}}
`

// Another take is shown without anything that the visitor does.
func TestUseIsShownAsItHappens(t *testing.T) {
	s := serve(t, simple)
	b := open(t, s.admin+"/")
	b.shows("#buckets .note", "No bucket is in use.")
	for i := 1; i <= 3; i++ {
		s.take(fields{"policy": "p", "key": "k"})
		b.shows("#buckets tbody", fmt.Sprintf("%d of 1,000 requests", i))
	}
	b.shows("#absent", "Upstreams and incidents: there is no gateway", "History: ")
	b.quiet(s.admin, "/v1/waiting", "/v1/history")
}
