package sdktest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/llm"
)

// likeOpenAI are providers whose API is OpenAI's with differences, and the SDK for Python that
// calls them: their own, or OpenAI's.
var likeOpenAI = []struct {
	upstream, operation string
	limited, denied     string // its errors
}{
	{"xai", chat, "RateLimitError", "AuthenticationError"},
	{"deepseek", chat, "RateLimitError", "AuthenticationError"},
	{"vllm", chat, "RateLimitError", "AuthenticationError"},
	{"ollama", chat, "RateLimitError", "AuthenticationError"},
	{"groq", "groq", "RateLimitError", "AuthenticationError"},
	{"together", "together", "RateLimitError", "AuthenticationError"},
	{"mistral", "mistral", "SDKError", "SDKError"},
}

// TestSDKsLikeOpenAI: these work through the gateway with only the base URL and the key changed:
// answers, streams with their usage, refusals by a limit and of a key.
//
// req: C5 C7
func TestSDKsLikeOpenAI(t *testing.T) {
	t.Parallel()
	for _, l := range likeOpenAI {
		t.Run(l.upstream, func(t *testing.T) {
			t.Parallel()
			a := api{l.upstream, func() *llm.Profile {
				p, _ := llm.ByName(l.upstream)
				return p
			}, "a-model"}
			c := python(t, l.operation)
			x := &trial{t, &sdk{name: l.upstream, operation: l.upstream, limited: l.limited, denied: l.denied}, c, &a}
			x.answer()
			x.stream()
			x.refused()
			x.wrongKey()
		})
	}
}

// TestOllamasOwnAPI: calls of Ollama's own API, which its SDK makes, are refused as an error of
// that SDK, which says what is wrong.
//
// req: C7
func TestOllamasOwnAPI(t *testing.T) {
	t.Parallel()
	b := newBench(t, api{"ollama", func() *llm.Profile {
		p, _ := llm.ByName("ollama")
		return p
	}, "a-model"}, setup{})
	e := b.call(python(t, "ollama"), job{Prompt: steer}).Error
	if e == nil || e.Type != "ResponseError" || e.Status != http.StatusNotFound ||
		!strings.Contains(e.Message, "does not pass on POST calls") {
		t.Errorf("got %+v, want a ResponseError that says why", e)
	}
	if n := len(b.sim.Calls()); n != 0 {
		t.Errorf("%d calls reached the provider", n)
	}
}
