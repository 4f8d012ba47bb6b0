package llm_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/llm"
)

func profile(t *testing.T, name string) *llm.Profile {
	t.Helper()
	p, ok := llm.ByName(name)
	if !ok {
		t.Fatalf("there is no profile %q", name)
	}
	return p
}

func parse(t *testing.T, p *llm.Profile, path, body string) *llm.Call {
	t.Helper()
	c, err := p.Parse(http.MethodPost, path, nil, []byte(body))
	if err != nil {
		t.Fatalf("%s %s: %v", path, body, err)
	}
	return c
}

// TestParse: what matters is found wherever the providers' requests have it.
func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		profile, path, body string
		want                llm.Call
		chars               int64 // of text
	}{
		{
			"openai", "/v1/chat/completions",
			`{"model":"gpt-4o-2024-11-20","messages":[{"role":"user","content":"hello"}],"max_tokens":100,"n":3,"temperature":0.5}`,
			llm.Call{
				Operation: llm.OpChat, Model: "gpt-4o-2024-11-20", Family: "gpt-4o", MaxOutput: 100, Answers: 3,
				Messages: 1,
			},
			int64(len("userhello")),
		},
		{
			"openai", "/v1/chat/completions?x=1",
			`{"stream":true,"stream_options":{"include_usage":true},"model":"ft:gpt-4.1:acme::x","messages":[{"role":"system","content":"a"},{"role":"user","content":[{"type":"text","text":"b"},{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]}],"max_completion_tokens":7}`,
			llm.Call{
				Operation: llm.OpChat, Model: "ft:gpt-4.1:acme::x", Family: "gpt-4.1", Stream: true,
				IncludeUsage: true, MaxOutput: 7, Answers: 1, Messages: 2, Media: [4]llm.Media{{Count: 1, Named: 1}},
			},
			int64(len("systemausertextbimage_url")),
		},
		{
			"openai", "/openai/deployments/my-gpt/chat/completions",
			`{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}]}`,
			llm.Call{
				Operation: llm.OpChat, Model: "my-gpt", Family: "my-gpt", MaxOutput: -1, Answers: 1, Messages: 1,
				Tools: 1,
			},
			int64(len("userx")),
		},
		{
			"openai", "/v1/responses",
			`{"model":"gpt-5","input":"héllo","instructions":"be kind","previous_response_id":"resp_1","max_output_tokens":1e3,"tools":[{"type":"web_search"}]}`,
			llm.Call{
				Operation: llm.OpResponses, Model: "gpt-5", Family: "gpt-5", MaxOutput: 1000, Answers: 1,
				Messages: 1, Tools: 1, Hidden: 1, Searches: 1,
			},
			int64(len("hellobe kind")),
		},
		{
			"openai", "/v1/responses", `{"model":"gpt-5-mini","input":[{"role":"user",` +
				`"content":[{"type":"input_text","text":"x"},{"type":"input_image",` +
				`"image_url":"data:image/png;base64,iVBORw0KGgoA"},{"type":"input_file","file_id":"file_1"}]}],` +
				`"previous_response_id":null}`,
			llm.Call{
				Operation: llm.OpResponses, Model: "gpt-5-mini", Family: "gpt-5-mini", MaxOutput: -1, Answers: 1,
				Inputs: 1, Messages: 1, Media: [4]llm.Media{{Count: 1, Bytes: 27}, {}, {}, {Count: 1, Named: 1}},
			},
			int64(len("userinput_textxinput_imageinput_file")),
		},
		{
			"openai", "/v1/embeddings", `{"model":"text-embedding-3-small","input":["one","two"]}`,
			llm.Call{
				Operation: llm.OpEmbeddings, Model: "text-embedding-3-small", Family: "text-embedding-3-small",
				MaxOutput: -1, Answers: 1, Inputs: 2, Messages: 1,
			},
			6,
		},
		{
			"anthropic", "/v1/messages", `{"model":"claude-sonnet-4-5-20250929","max_tokens":1024,"system":"s",` +
				`"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"tool_use",` +
				`"id":"t","name":"f","input":{"q":[1,true]}}]},{"role":"user","content":[{"type":"image",` +
				`"source":{"type":"base64","media_type":"IMAGE/png","data":"iVBORw0KGgoA"}},{"type":"document",` +
				`"source":{"type":"text","media_type":"text/plain","data":"plain"}}]}]}`,
			llm.Call{
				Operation: llm.OpMessages, Model: "claude-sonnet-4-5-20250929", Family: "claude-sonnet-4",
				MaxOutput: 1024, Answers: 1, Messages: 3, Media: [4]llm.Media{{Count: 1, Bytes: 12}},
			},
			int64(len("suserhiassistanttool_usetfq1trueuserimagedocumentplain")),
		},
		{
			"anthropic", "/v1/messages",
			`{"model":"claude-opus-4-1","max_tokens":10,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://example.com/x"}},{"type":"document","source":{"type":"url","url":"https://example.com/y"}},{"type":"document","source":{"type":"content","content":[{"type":"text","text":"z"}]}}]}]}`,
			llm.Call{
				Operation: llm.OpMessages, Model: "claude-opus-4-1", Family: "claude-opus-4", MaxOutput: 10,
				Answers: 1, Messages: 1, Media: [4]llm.Media{{Count: 1, Named: 1}, {}, {}, {Count: 1, Named: 1}},
			},
			int64(len("userimagedocumentdocumenttextz")),
		},
		{
			"anthropic", "/v1/messages/count_tokens", `{"model":"claude-haiku-4-5","messages":[]}`,
			llm.Call{
				Operation: llm.OpCountTokens, Model: "claude-haiku-4-5", Family: "claude-haiku-4.5", MaxOutput: -1,
				Answers: 1, Messages: 1,
			},
			0,
		},
		{
			"gemini", "/v1beta/models/gemini-2.5-flash:generateContent", `{"contents":[{"role":"user",` +
				`"parts":[{"text":"hello"},{"inlineData":{"mimeType":"audio/wav","data":"UklGRgAAAABXQVZF"}},` +
				`{"file_data":{"file_uri":"https://x/y","mime_type":"video/mp4"}}]}],` +
				`"generation_config":{"max_output_tokens":50,"candidateCount":2},"cachedContent":"cachedContents/x"}`,
			llm.Call{
				Operation: llm.OpGenerate, Model: "gemini-2.5-flash", Family: "gemini-2.5-flash", MaxOutput: 50,
				Answers: 2, Messages: 1, Hidden: 1, Searches: 1, Media: [4]llm.Media{
					{},
					{Count: 1, Bytes: 15},
					{},
					{Count: 1, Named: 1},
				},
			},
			int64(len("userhello")),
		},
		{
			"gemini", "/v1beta/models/gemini-2.5-flash-lite%3AstreamGenerateContent?alt=sse",
			`{"contents":{"parts":{"text":"hi"}},"tools":[{"googleSearch":{}},{"functionDeclarations":[{"name":"f"},{"name":"g"}]}]}`,
			llm.Call{
				Operation: llm.OpStreamGenerate, Model: "gemini-2.5-flash-lite", Family: "gemini-2.5-flash-lite",
				Stream: true, MaxOutput: -1, Answers: 1, Messages: 1, Tools: 2, Searches: 1,
			},
			2,
		},
		{
			"gemini", "/v1beta/models/text-embedding-004:batchEmbedContents",
			`{"requests":[{"content":{"parts":[{"text":"a"}]}},{"content":{"parts":[{"text":"b"}]}}]}`,
			llm.Call{
				Operation: llm.OpEmbeddings, Model: "text-embedding-004", Family: "text-embedding-004",
				MaxOutput: -1, Answers: 1, Inputs: 2, Messages: 1,
			},
			2,
		},
	} {
		got := parse(t, profile(t, c.profile), c.path, c.body)
		if got.Text.Runes != c.chars {
			t.Errorf("%s: %d characters of text, want %d", c.body, got.Text.Runes, c.chars)
		}
		if (got.Schemas.Bytes > 0) != strings.Contains(c.body, `"tools"`) {
			t.Errorf("%s: %d bytes of schemas", c.body, got.Schemas.Bytes)
		}
		want := c.want
		if got.Operation != want.Operation || got.Model != want.Model || got.Family != want.Family ||
			got.Stream != want.Stream || got.IncludeUsage != want.IncludeUsage {
			t.Errorf("%s:\ngot  %+v\nwant %+v", c.body, got, want)
		}
		if got.MaxOutput != want.MaxOutput || got.Answers != want.Answers || got.Inputs != want.Inputs ||
			got.Messages != want.Messages || got.Tools != want.Tools || got.Hidden != want.Hidden ||
			got.Searches != want.Searches {
			t.Errorf("%s:\ngot  %+v\nwant %+v", c.body, got, want)
		}
		if got.Media != want.Media {
			t.Errorf("%s: media %+v, want %+v", c.body, got.Media, want.Media)
		}
	}
}

// TestPathDecides: the call is made of the model in the path, whatever model the body names.
func TestPathDecides(t *testing.T) {
	t.Parallel()
	p := profile(t, "openai")
	for path, want := range map[string]string{
		"/openai/deployments/gpt-4o/chat/completions": "gpt-4o", "/v1/engines/gpt-4o/completions": "gpt-4o",
		"/engines/azure%2Fgpt-4o/chat/completions": "azure/gpt-4o",
		"/engines/azure/gpt-4o/embeddings":         "azure/gpt-4o",
	} {
		if c := parse(t, p, path, `{"model":"gpt-4o-mini","messages":[]}`); c.Model != want || c.Family != "gpt-4o" {
			t.Errorf("%s: model %q of the family %q, want %q", path, c.Model, c.Family, want)
		}
	}
}

// TestOtherSpellingsOfPaths: a path that a server may take for that of an operation is counted.
func TestOtherSpellingsOfPaths(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]llm.Operation{
		"/v1/chat/completions/": llm.OpChat, "/V1/Chat/Completions": llm.OpChat, "/v1/responses//": llm.OpResponses,
		"/v1/embeddings/?x": llm.OpEmbeddings,
		"/v1/files/":        llm.OpOther, "/": llm.OpOther, "": llm.OpOther,
	} {
		if c := parse(t, profile(t, "openai"), path, `{}`); c.Operation != want {
			t.Errorf("%q is %s, want %s", path, c.Operation, want)
		}
	}
	if c := parse(t, profile(t, "anthropic"), "/v1/Messages/", `{}`); c.Operation != llm.OpMessages {
		t.Errorf("it is %s", c.Operation)
	}
}
