package llm_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/llm"
)

// TestAnotherModel: only the model's name changes, wherever a call has it.
//
// req: C8
func TestAnotherModel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		profile            *llm.Profile
		path, body         string
		model              string
		wantPath, wantBody string
	}{
		{
			profile: llm.OpenAI(), path: "/v1/chat/completions",
			body:  `{ "messages":[{"role":"user","content":"model"}], "model" : "gpt\u002d4o" ,"n":1}`,
			model: "gpt-4.1-mini", wantPath: "/v1/chat/completions",
			wantBody: `{ "messages":[{"role":"user","content":"model"}], "model" : "gpt-4.1-mini" ,"n":1}`,
		},
		{
			profile: llm.OpenAI(), path: "/openai/deployments/big/chat/completions", body: `{"messages":[]}`,
			model: "small", wantPath: "/openai/deployments/small/chat/completions", wantBody: `{"messages":[]}`,
		},
		{
			profile: llm.OpenAI(), path: "/openai/deployments/big/chat/completions",
			body:  `{"messages":[],"model":null}`,
			model: "small", wantPath: "/openai/deployments/small/chat/completions",
			wantBody: `{"messages":[],"model":"small"}`,
		},
		{
			profile: llm.OpenAI(), path: "/v1/engines/azure/big/embeddings/?version=1:2", body: `{"input":"x"}`,
			model: "small", wantPath: "/v1/engines/small/embeddings/?version=1:2", wantBody: `{"input":"x"}`,
		},
		{
			profile: llm.Gemini(), path: "/v1beta/models/gemini-2.5-pro:generateContent?at=1:2",
			body:  `{"contents":[]}`,
			model: "gemini-2.5-flash", wantPath: "/v1beta/models/gemini-2.5-flash:generateContent?at=1:2",
			wantBody: `{"contents":[]}`,
		},
		{
			profile: llm.Anthropic(), path: "/v1/messages", body: `{"max_tokens":5,"model":"claude-opus-4-1"}`,
			model: "claude-haiku-4-5", wantPath: "/v1/messages",
			wantBody: `{"max_tokens":5,"model":"claude-haiku-4-5"}`,
		},
		{
			profile: llm.Gemini(), path: "/v1beta/models/small:batchEmbedContents",
			body: `{"requests":[{"model":"models/small","content":{}},{"model" : "small"},` +
				`{"model":null},{"model":"models\u002fsmall"}]}`,
			model: "large", wantPath: "/v1beta/models/large:batchEmbedContents",
			wantBody: `{"requests":[{"model":"models/large","content":{}},{"model" : "large"},` +
				`{"model":null},{"model":"models/large"}]}`,
		},
		{
			profile: llm.Gemini(), path: "/v1beta/models/gemini-2.5-pro:countTokens",
			body:  `{"generateContentRequest":{"contents":[{"parts":[{"text":"models/x"}]}],"model":"models/gemini-2.5-pro"}}`,
			model: "gemini-2.5-flash", wantPath: "/v1beta/models/gemini-2.5-flash:countTokens",
			wantBody: `{"generateContentRequest":{"contents":[{"parts":[{"text":"models/x"}]}],"model":"models/gemini-2.5-flash"}}`,
		},
		{
			profile: llm.Gemini(), path: "/v1beta/models/gemini-2.5-pro:streamGenerateContent", body: `{"contents":[]}`,
			model: "gemini-2.5-flash", wantPath: "/v1beta/models/gemini-2.5-flash:streamGenerateContent",
			wantBody: `{"contents":[]}`,
		},
	} {
		call, err := c.profile.Parse(http.MethodPost, c.path, nil, []byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		path, body, err := call.WithModel(c.path, []byte(c.body), c.model)
		if err != nil || path != c.wantPath || string(body) != c.wantBody {
			t.Errorf("%s %s as %s: got %s %s, %v; want %s %s", c.path, c.body, c.model, path, body, err, c.wantPath,
				c.wantBody)
			continue
		}
		if again, err := c.profile.Parse(http.MethodPost, path, nil, body); err != nil || again.Model != c.model {
			t.Errorf("read again: model %q, %v; want %q", again.Model, err, c.model)
		}
		if _, _, err := call.WithModel(c.path, append([]byte(c.body), ' '), c.model); err == nil {
			t.Error("another body was changed")
		}
		for _, bad := range []string{"", `a","x":"b`, "a b", "a\x00"} {
			if _, body, err := call.WithModel(c.path, []byte(c.body), bad); err == nil {
				t.Errorf("%q became a model: %s", bad, body)
			}
		}
	}
	call, err := llm.OpenAI().Parse(http.MethodPost, "/v1/chat/completions", nil, []byte(`{"messages":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := call.WithModel("/v1/chat/completions", []byte(`{"messages":[]}`), "gpt-4o"); err == nil {
		t.Error("a call without a model got one")
	}
}

// TestNoOtherModelOfTwo: a call that names two models, or its model very often, is not changed.
func TestNoOtherModelOfTwo(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"requests":[{"model":"models/small"},{"model":"models/other"}]}`,
		`{"requests":[` + strings.Repeat(`{"model":"small"},`, 1000) + `{"model":"small"}]}`,
	} {
		const path = "/v1beta/models/small:batchEmbedContents"
		call, err := llm.Gemini().Parse(http.MethodPost, path, nil, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if _, got, err := call.WithModel(path, []byte(body), "large"); err == nil {
			t.Errorf("%.60s became %.60s", body, got)
		}
	}
}

// TestCheckModel: what passes can stand wherever a provider's calls have their model.
func TestCheckModel(t *testing.T) {
	t.Parallel()
	for name, fits := range map[string]map[string]bool{
		"gpt-4.1-mini":               {"openai": true, "anthropic": true, "gemini": true},
		"meta-llama/llama-4:free":    {"openai": true, "anthropic": true, "gemini": false},
		"ft:gpt-4.1:acme::1":         {"openai": true, "anthropic": true, "gemini": false},
		"models/x":                   {"openai": true, "anthropic": true, "gemini": false},
		"":                           {},
		"..":                         {},
		"a/../b":                     {},
		"a//b":                       {},
		"/a":                         {},
		"a/":                         {},
		"a b":                        {},
		`a"`:                         {},
		"a\x00":                      {},
		"ä":                          {},
		strings.Repeat("a", 257):     {},
		strings.Repeat("a", 256):     {"openai": true, "anthropic": true, "gemini": true},
		"gemini-2.5-pro:countTokens": {"openai": true, "anthropic": true},
	} {
		for _, p := range llm.Profiles() {
			api := p.Name
			if api != "anthropic" && api != "gemini" {
				api = "openai" // the others' paths are like its own
			}
			if err := p.CheckModel(name); (err == nil) != fits[api] {
				t.Errorf("%s, %.40q: got %v", p.Name, name, err)
			}
		}
	}
}

// TestEveryKindOfErrorIsSaid: each kind has a status, and a body in the provider's own form.
//
// req: C7
func TestEveryKindOfErrorIsSaid(t *testing.T) {
	t.Parallel()
	want := map[llm.ErrorKind]int{
		llm.NotFound: http.StatusNotFound, llm.Forbidden: http.StatusForbidden,
		llm.TooLarge:    http.StatusRequestEntityTooLarge,
		llm.Unavailable: http.StatusServiceUnavailable, llm.Lost: http.StatusBadGateway,
		llm.Unauthorized: http.StatusUnauthorized, llm.KeyExpired: http.StatusUnauthorized,
		llm.KeyDisabled: http.StatusUnauthorized, llm.NoCredit: http.StatusTooManyRequests,
	}
	for _, p := range llm.Profiles() {
		for kind, status := range want {
			r := p.Error(kind, "the reason", 0)
			if r.Status != status || len(r.Body) == 0 || r.Header.Get("X-Should-Retry") != "false" {
				t.Errorf("%s, kind %d: got %d %v %s, want %d that is not retried", p.Name, kind, r.Status, r.Header,
					r.Body, status)
			}
		}
	}
}
