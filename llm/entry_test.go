package llm_test

import (
	"strings"
	"testing"

	"github.com/drawgate/drawgate/llm"
)

// TestEntry: a model's own entry decides wherever it stands, then an entry of another version of it
// that stands before the first one that fits, the nearest of several, and then that one.
func TestEntry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		profile *llm.Profile
		entries string
		want    map[string]string // by model; "" is none
	}{
		{llm.OpenAI(), "gpt-5 gpt-5-codex gpt-5-chat-latest *", map[string]string{
			"gpt-5": "gpt-5", "gpt-5-codex": "gpt-5-codex", "gpt-5-chat-latest": "gpt-5-chat-latest",
			"gpt-5-codex-2026-01-01": "gpt-5-codex", "gpt-5-2025-08-07": "gpt-5", "GPT-5-Codex": "gpt-5-codex",
			"gpt-5-mini": "*", "other": "*",
		}},
		{llm.OpenAI(), "text-embedding-3-small text-embedding-*", map[string]string{
			"text-embedding-3-small": "text-embedding-3-small", "text-embedding-3-large": "text-embedding-*",
			"text-embedding-ada-002": "text-embedding-*", "text-embedding-4": "text-embedding-*",
			"text-embedding-3-small-2027-01-01": "text-embedding-3-small", "gpt-4.1": "",
		}},
		{llm.OpenAI(), "gpt-4* gpt-4.1", map[string]string{
			"gpt-4.1": "gpt-4.1", "GPT-4.1": "", "gpt-4.1-2025-04-14": "gpt-4*", "gpt-4o": "gpt-4*",
		}},
		{llm.OpenAI(), "* gpt-4.1 GPT-4.1", map[string]string{
			"gpt-4.1": "gpt-4.1", "GPT-4.1": "GPT-4.1", "Gpt-4.1": "gpt-4.1",
		}},
		{llm.OpenAI(), "gpt-4* *", map[string]string{"GPT-4.1": "gpt-4*"}},
		{llm.OpenAI(), "gpt-4.1-2025-04-14 *", map[string]string{"gpt-4.1": "gpt-4.1-2025-04-14"}},
		{llm.Anthropic(), "claude-opus-4 claude-opus-4-5 claude-*", map[string]string{
			"claude-opus-4-5": "claude-opus-4-5", "claude-opus-4-5-20251101": "claude-opus-4-5",
			"claude-opus-4-1-20250805": "claude-opus-4", "claude-sonnet-4": "claude-*",
		}},
		{llm.Anthropic(), "claude-opus-4-1 claude-opus-*", map[string]string{"claude-opus-4-6": "claude-opus-4-1"}},
		{llm.Gemini(), "gemini-2.5-flash", map[string]string{"gemini-2.5-flash-001": ""}},
	} {
		names := strings.Fields(c.entries)
		for model, want := range c.want {
			got := ""
			if i := c.profile.Entry(model, len(names), func(i int) string { return names[i] }); i >= 0 {
				got = names[i]
			}
			if got != want {
				t.Errorf("%s by %s: got %q, want %q", model, c.entries, got, want)
			}
		}
	}
}
