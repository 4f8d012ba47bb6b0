package llm_test

import (
	"net/http"
	"testing"

	"github.com/drawgate/drawgate/llm"
)

// TestCacheName: calls whose prompts the provider's cache serves together have the same name, and
// no name shows anything of a prompt.
func TestCacheName(t *testing.T) {
	t.Parallel()
	openai := func(body string) string { return cacheName(t, llm.OpenAI(), "/v1/chat/completions", body) }
	anthropic := func(body string) string { return cacheName(t, llm.Anthropic(), "/v1/messages", body) }
	for name, c := range map[string]struct {
		a, b string
		same bool
	}{
		"the same key": {
			openai(`{"model":"m","prompt_cache_key":"k","messages":[]}`),
			openai(`{"messages":[{"role":"user","content":"x"}],"prompt_cache_key":"k","model":"m"}`), true,
		},
		"another key": {
			openai(`{"model":"m","prompt_cache_key":"k"}`), openai(`{"model":"m","prompt_cache_key":"l"}`), false,
		},
		"no key":          {openai(`{"model":"m"}`), "", true},
		"a key in a text": {openai(`{"model":"m","user":"prompt_cache_key"}`), "", true},
		"an odd key":      {openai(`{"model":"m","prompt_cache_key":[1]}`), "", true},
		"the same instructions": {
			anthropic(`{"model":"m","max_tokens":1,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"messages":[]}`),
			anthropic(`{"messages":[{"role":"user","content":"x"}],"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"model":"m","max_tokens":1}`),
			true,
		},
		"other instructions": {
			anthropic(`{"model":"m","max_tokens":1,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}]}`),
			anthropic(`{"model":"m","max_tokens":1,"system":[{"type":"text","text":"t","cache_control":{"type":"ephemeral"}}]}`),
			false,
		},
		"nothing to cache": {anthropic(`{"model":"m","max_tokens":1,"system":"s"}`), "", true},
		"another provider": {
			cacheName(t, llm.Gemini(), "/v1beta/models/m:generateContent", `{"contents":[]}`), "", true,
		},
	} {
		if (c.a == c.b) != c.same || c.a != "" && len(c.a) != 64 {
			t.Errorf("%s: got %q and %q, want the same: %v", name, c.a, c.b, c.same)
		}
	}
}

func cacheName(t *testing.T, p *llm.Profile, path, body string) string {
	t.Helper()
	c, err := p.Parse(http.MethodPost, path, nil, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return c.CacheName([]byte(body))
}
