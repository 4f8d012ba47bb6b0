package browsertest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/drawgate/drawgate/llm/simulator"
)

const secretOfBob = "vk-bob-0123456789abcdef"

// keyed is a configuration of a gateway with two keys, each with limits of its own.
const keyed = `
store: "memory:"
policies:
  quota: {limits: [{name: rpm, rolling: 1m, amount: 100}]}
  budget: {limits: [{name: month, unit: usd_micros, calendar: month, amount: 1000}]}
  team: {limits: [{name: rpm, rolling: 1h, amount: 4}]}
rules:
  - apply: [{policy: budget, key: attr("key")}, {policy: team, key: attr("team")}]
gateway:
  listen: 127.0.0.1:0
  upstreams:
    openai: {url: %q, models: [{model: "gpt-4.1*", policy: quota}]}
  aliases: {fast: openai/gpt-4.1-mini}
  keys:
    - {name: alice, team: red, secret_env: ALICE_KEY, expires: 2099-01-01T00:00:00Z}
    - {name: bob-the-other, team: blue, secret_env: BOB_KEY}
  prices: {models: {gpt-4.1: {input: "2.00", output: "8.00"}, gpt-4.1-mini: {input: "0.40", output: "1.60"}}}
`

// keys starts a gateway with callers of two keys.
func keys(t *testing.T) *server {
	t.Helper()
	t.Setenv("ALICE_KEY", secretOfAlice)
	t.Setenv("BOB_KEY", secretOfBob)
	sim, err := simulator.New(&simulator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	provider := listen(t, &http.Server{Handler: sim})
	s := serve(t, fmt.Sprintf(keyed, provider))
	s.chat(secretOfAlice, "gpt-4.1", http.StatusOK)
	s.chat(secretOfAlice, "fast", http.StatusOK)
	s.chat(secretOfBob, "gpt-4.1", http.StatusOK)
	s.chat(secretOfAlice, "gpt-5", http.StatusNotFound)
	return s
}

// chat makes a call with a key.
func (s *server) chat(secret, model string, want int) {
	s.t.Helper()
	status, answer := s.request(http.MethodPost, s.gateway+"/openai/v1/chat/completions",
		fmt.Sprintf(`{"model":%q,"max_tokens":5,"messages":[{"role":"user","content":"simulate: output=5"}]}`, model),
		"Authorization", "Bearer "+secret, "Drawgate-Timeout", "0")
	if status != want {
		s.t.Fatalf("%s: got %d %s, want %d", model, status, answer, want)
	}
}

// A key sees on the gateway's page what it may use, has used and spent, and what was refused; a
// wrong one sees why not; and nobody sees another key.
func TestKeyPage(t *testing.T) {
	s := keys(t)
	b := open(t, s.gateway+"/")
	b.await("document.activeElement.id === 'token'")
	b.accessible("without a key")
	b.keys("vk-wrong" + kb.Enter)
	b.shows("#why", "not accepted", "missing or unknown")
	b.keys(secretOfAlice + kb.Enter)
	b.shows("#facts", "alice", "team red", "valid until 2099-01-01")
	b.shows("#limits", "budget", " of $0.001", "mine", "team", "2 of 4 requests", "the team’s")
	b.shows("#spend", "openai/gpt-4.1-mini", "openai/gpt-4.1", "$0.0")
	b.shows("#waiting-note", "None.")
	b.shows("#refusals", "404", "gpt-5")
	b.shows("#models", "fast", "openai/gpt-4.1*")
	for _, hidden := range []string{"bob", "blue", secretOfAlice} {
		if text := b.text("body"); strings.Contains(text, hidden) {
			t.Errorf("the page shows %s:\n%s", hidden, text)
		}
	}
	for _, dark := range []bool{false, true} {
		b.dark(dark)
		for _, width := range []int64{1280, 360} {
			b.must(chromedp.Do(b.ctx, chromedp.EmulateViewport(width, 800)))
			b.accessible(fmt.Sprintf("dark %v, %d wide", dark, width))
			if wide := eval[int](b, "document.documentElement.scrollWidth"); wide > int(width) {
				t.Errorf("a screen of %d pixels has to be scrolled sideways to %d", width, wide)
			}
		}
	}
	b.must(chromedp.Do(b.ctx, chromedp.Reload()))
	b.shows("#facts", "alice") // the tab keeps the key
	b.must(click(b, "#forget"))
	b.await("document.activeElement.id === 'token'")
	b.keys(secretOfBob + kb.Enter)
	b.shows("#facts", "bob-the-other")
	b.shows("#limits", "1 of 4 requests")
	b.quiet(s.gateway, "401")
}

// The gateway's page says that what it shows is old while nothing answers, and goes on by itself.
func TestKeyPageWithoutTheGateway(t *testing.T) {
	s := keys(t)
	b := open(t, s.gateway+"/")
	b.await("document.activeElement.id === 'token'")
	b.keys(secretOfAlice + kb.Enter)
	b.shows("#facts", "alice")
	s.stop()
	b.shows("#away", "does not answer", "older")
	b.shows("#facts", "alice")
}
