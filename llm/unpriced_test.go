package llm_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/llm"
)

// TestDearerThanTheTable: a call that asks for something that the table has no price for is not
// counted at the usual price.
//
// req: B12
func TestDearerThanTheTable(t *testing.T) {
	t.Parallel()
	const (
		chat     = "/v1/chat/completions"
		res      = "/v1/responses"
		messages = "/v1/messages"
		gemini   = "/v1beta/models/gemini-2.5-flash:generateContent"
		long     = `"cache_control":{"type":"ephemeral","ttl":"1h"}`
	)
	for _, c := range []struct{ profile, path, body, field string }{
		{"openai", chat, `{"service_tier":"priority"}`, "service_tier"},
		{"openai", chat, `{"service_tier":"\u0070riority"}`, "service_tier"},
		{"openai", res, `{"service_tier":"scale"}`, "service_tier"},
		{"openai", res, `{"service_tier":["priority"]}`, "service_tier"},
		{"openai", res, `{"service_tier":"flex"}`, ""},
		{"openai", res, `{"service_tier":"auto"}`, ""},
		{"openai", res, `{"service_tier":null}`, ""},
		{"openai", chat, `{"modalities":["text","audio"],"audio":{"voice":"alloy"}}`, "modalities"},
		{"openai", chat, `{"modalities":["text"]}`, ""},
		{
			"openai", chat,
			`{"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}]}]}`, "audio",
		},
		{"openai", chat, `{"messages":[{"role":"assistant","audio":{"id":"audio_1"}}]}`, "messages.audio"},
		{"openai", chat, `{"web_search_options":{}}`, "fee per use"},
		{"openai", chat, `{"model":"gpt-4o-search-preview-2025-03-11"}`, "searches"},
		{"openai", chat, `{"model":"sonar-pro"}`, "searches"},
		{"openai", res, `{"reasoning":{"effort":"high","mode":"standard","summary":"auto"}}`, ""},
		{"openai", res, `{"reasoning":{"mode":"pro"}}`, "reasoning"},
		{"openai", chat, `{"reasoning":{"mode":["pro"]}}`, "not know"},
		{"openai", chat, `{"reasoning":{"model":"gpt-5-pro"}}`, "model"},
		{"openai", chat, `{"prompt_cache_options":{"mode":"explicit","ttl":"30m"}}`, ""},
		{"openai", chat, `{"prompt_cache_options":{"ttl":"24h"}}`, "ttl"},
		{"openai", chat, `{"model":"groq/compound-mini"}`, "searches"},
		{"openai", res, `{"prompt":{"id":"p"}}`, "stored prompt"},
		{"openai", res, `{"tools":[{"type":"web_search"}]}`, "fee per use"},
		{"openai", res, `{"tools":[{"type":"mcp","server_label":"a"},{"type":"function","name":"f"}]}`, ""},
		{"openai", res, `{"tools":[{"type":"file_search"},{"type":"mcp"}]}`, "fee per use"},
		{"anthropic", messages, `{"speed":"fast"}`, "speed"},
		{"anthropic", messages, `{"speed":"standard","service_tier":"auto","inference_geo":"global"}`, ""},
		{"anthropic", messages, `{"service_tier":"priority"}`, "service_tier"},
		{"anthropic", messages, `{"inference_geo":"us"}`, "inference_geo"},
		{"anthropic", messages, `{"fallbacks":[{"model":"claude-opus-4-8"}]}`, "fallbacks"},
		{"anthropic", messages, `{"fallbacks":"default"}`, "fallbacks"},
		{"anthropic", messages, `{` + long + `}`, "the ttl of a cache"},
		{"anthropic", messages, `{"system":[{"type":"text","text":"a",` + long + `}]}`, "the ttl of a cache"},
		{"anthropic", messages, `{"tools":[{"name":"f",` + long + `}]}`, "the ttl of a cache"},
		{
			"anthropic", messages, `{"messages":[{"content":[{"type":"text","text":"a",` + long + `}]}]}`,
			"the ttl of a cache",
		},
		{"anthropic", messages, `{"messages":[{"content":[{"type":"tool_result","content":[{"type":"text","text":"a",` +
			long + `}]}]}]}`, "the ttl of a cache"},
		{
			"anthropic", messages,
			`{"messages":[{"content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral","ttl":"5m"}}]}]}`,
			"",
		},
		{
			"anthropic", messages,
			`{"messages":[{"content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}]}`, "",
		},
		{"anthropic", messages, `{"tools":[{"type":"web_search_20250305","name":"web_search"}]}`, "fee per use"},
		{
			"anthropic", messages,
			`{"tools":[{"type":"web_fetch_20250910","name":"web_fetch"}],"mcp_servers":[{"url":"https://a.test"}]}`,
			"",
		},
		{"gemini", gemini, `{"serviceTier":"priority"}`, "service_tier"},
		{"gemini", gemini, `{"service_tier":"PRIORITY"}`, "service_tier"},
		{"gemini", gemini, `{"serviceTier":"FLEX"}`, ""},
		{"gemini", gemini, `{"tools":[{"googleSearch":{}}]}`, "fee per use"},
		{"gemini", gemini, `{"tools":[{"codeExecution":{}},{"urlContext":{}}]}`, ""},
		{"gemini", gemini, `{"contents":[{"parts":[{"inlineData":{"mimeType":"audio/wav","data":"AAAA"}}]}]}`, "audio"},
		{
			"gemini", gemini, `{"contents":[{"parts":[{"inlineData":{"mimeType":"image/png",` +
				`"data":"iVBORw0KGgoA"}}]}]}`,
			"",
		},
	} {
		call := parse(t, profile(t, c.profile), c.path, c.body)
		if call.Model == "" {
			call.Model = "m"
		}
		prices := &llm.Prices{Currency: "usd", Models: map[string]llm.Price{call.Model: {Input: 1, Output: 1}}}
		_, _, err := prices.Hold(call, llm.Estimate{Input: 1})
		if errors.Is(err, llm.ErrUnpriced) != (c.field != "") || c.field == "" && err != nil ||
			err != nil && !strings.Contains(err.Error(), c.field) {
			t.Errorf("%s %s: %v, want an error that names %q", c.path, c.body, err, c.field)
		}
	}
}

// TestDearerByHeader: headers ask for what costs more at Vertex AI and at Bedrock.
//
// req: B12
func TestDearerByHeader(t *testing.T) {
	t.Parallel()
	const vertex, tier = "X-Vertex-AI-LLM-Shared-Request-Type", "X-Amzn-Bedrock-Service-Tier"
	for _, c := range []struct {
		name, value string
		dear        bool
	}{
		{vertex, "priority", true},
		{vertex, "Priority ", true},
		{vertex, "dedicated", true},
		{vertex, "flex", false},
		{vertex, "Flex", false},
		{tier, "priority", true},
		{tier, "default", false},
		{tier, "Flex", false},
		{"X-Amzn-Bedrock-PerformanceConfig-Latency", "optimized", true},
		{"X-Amzn-Bedrock-GuardrailIdentifier", "g", true},
		{"X-Amzn-Bedrock-Trace", "ENABLED", false},
		{"X-Amzn-Trace-Id", "a", false},
	} {
		h := http.Header{}
		h.Set(c.name, c.value)
		call, err := llm.Gemini().Parse(http.MethodPost,
			"/v1/projects/p/locations/global/publishers/google/models/gemini-2.5-pro:generateContent", h, []byte(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		if (call.Unpriced != "") != c.dear {
			t.Errorf("%s: %q: unpriced is %q", c.name, c.value, call.Unpriced)
		}
	}
}
