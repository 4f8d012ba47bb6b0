package gateway_test

import (
	"fmt"
	"net/http"
	"testing"
)

// TestKeysReachNoOtherModel: a key that may use certain models only cannot choose another one by
// what its call has beside its model.
//
// req: C12
func TestKeysReachNoOtherModel(t *testing.T) {
	t.Parallel()
	const openai, responses = `{"model":"gpt-4.1-mini","messages":[]%s}`, `{"model":"gpt-4.1-mini","input":"a"%s}`
	const anthropic = `{"model":"claude-haiku-4-5","max_tokens":5,"messages":[]%s}`
	const chatPath, responsesPath, messagesPath = "/openai/v1/chat/completions", "/openai/v1/responses",
		"/anthropic/v1/messages"
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) })
	for name, c := range map[string]struct {
		change func(*setup)
		status int
	}{
		"a key of some models": {func(s *setup) {
			s.config.Keys[0].Models = []string{"openai/gpt-4.1-mini", "anthropic/claude-haiku-4-5"}
		}, http.StatusBadRequest},
		"a key of all models": {func(*setup) {}, http.StatusOK},
		"a key of all, by patterns": {
			func(s *setup) { s.config.Keys[0].Models = []string{"openai/*", "anthropic/*"} },
			http.StatusOK,
		},
		"a key of all, by a pattern": {func(s *setup) { s.config.Keys[0].Models = []string{"*"} }, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(s *setup) {
				s.upstream = answer
				c.change(s)
			})
			for _, call := range []struct {
				path, body, more string
				passes           bool
			}{
				{chatPath, openai, `,"models":["gpt-5-pro"]`, false},
				{chatPath, openai, `,"model\u0000":"gpt-5-pro"`, false},
				{responsesPath, responses, `,"tools":[{"type":"image_generation","model":"gpt-image-1"}]`, false},
				{messagesPath, anthropic, `,"fallbacks":[{"model":"claude-opus-4-8"}]`, false},
				{
					messagesPath, anthropic,
					`,"tools":[{"type":"advisor_20260301","name":"advisor","model":"claude-opus-4-8"}]`, false,
				},
				{messagesPath, anthropic, `,"fallbacks":null`, true},
				{messagesPath, anthropic, `,"tools":[{"type":"web_search_20250305","name":"web_search"}]`, true},
				{
					responsesPath, responses, `,"tools":[{"type":"web_search_2025_08_26"},{"type":"code_interpreter"}]`,
					true,
				},
				{responsesPath, responses, `,"prompt":{"id":"p"},"tools":[{"type":"mcp"}]`, true},
			} {
				got := b.do(b.raw(t.Context(), http.MethodPost, call.path, fmt.Sprintf(call.body, call.more),
					"Authorization: Bearer "+alice, "X-Api-Key: "+alice))
				want := c.status
				if call.passes {
					want = http.StatusOK
				}
				if got.status != want {
					t.Errorf("%s: got %d %s, want %d", call.more, got.status, got.body, want)
				}
			}
		})
	}
}

// TestNoHeadersInQueries: what stands for headers in a query does not reach Google, and neither
// does the name of another deployment or server.
//
// req: C12
func TestNoHeadersInQueries(t *testing.T) {
	t.Parallel()
	got := make(chan *http.Request, 1)
	b := newBench(t, func(s *setup) {
		s.upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got <- r
			fmt.Fprint(w, `{}`)
		})
	})
	const path = "/gemini/v1beta/models/gemini-2.5-flash:generateContent"
	const query = "?$alt=json&%24httpHeaders=X-Goog-FieldMask:candidates%0D%0A&$httpMethod=GET&$ct=text/plain&$fields=a&fields=b&userProject=p&$key=k&a=b"
	b.do(b.raw(t.Context(), http.MethodPost, path+query, `{"contents":[]}`, "X-Goog-Api-Key: "+alice))
	if r := <-got; r.URL.RawQuery != "$alt=json&a=b" {
		t.Errorf("the provider got %q", r.URL.RawQuery)
	}
	b.do(b.raw(t.Context(), http.MethodPost, "/openai/v1/chat/completions", `{"model":"gpt-4o","messages":[]}`,
		"Authorization: Bearer "+alice, "x-ms-spillover-deployment: gpt-5-pro",
		"Helicone-Target-URL: https://evil.test",
		"x-portkey-custom-host: https://evil.test", "X-Original-URL: /v1/responses"))
	r := <-got
	for _, name := range []string{
		"X-Ms-Spillover-Deployment", "Helicone-Target-Url", "X-Portkey-Custom-Host",
		"X-Original-Url",
	} {
		if r.Header.Get(name) != "" {
			t.Errorf("the provider got %s", name)
		}
	}
}
