package gateway

import (
	"net/http"
	"slices"
	"testing"

	"github.com/drawgate/drawgate/llm"
)

// oddPaths are paths that programs read differently, or that only look like those of calls. None
// may pass, by any method.
var oddPaths = []string{
	"/v1/messages;/messages/count_tokens", "/v1/chat/completions;x", "/v1/chat/completions%20",
	"/v1/chat/completions%09", "/v1/chat/completions/",
	"/v1/chat/completions//", "/v1//chat/completions", "//v1/chat/completions", "/v1/..;/v1/models",
	"/v1/%252e%252e/models", "/v1/%2e%2e/models", "/v1/../models",
	"/v1/./models", "/v1/x%2f..%2fmodels", "/v1%2fmodels", "/v1/models%2fx", "/v1/models%5cx", `/v1\models`,
	"/v1/models%00", "/v1/models%23", "/v1/models%3fx",
	"/;/v1/models", "/v1/;x/models", "/v1/models;x", "/v1/models%3bx", "/v1/models%253bx", "/v1/models%25",
	"/V1/Models", "/v1/Chat/Completions", "/v1/CHAT/COMPLETIONS",
	"/files/file-1/content;/models", "/v1/files/file-1/content/models", "/organization/admin_api_keys/models/",
	"/organization/admin_api_keys/models",
	"/v1/organization/admin_api_keys/models", "/v1/fine_tuning/jobs/x/models", "/v1/models/x/y", "/v1/models/",
	"/v1/files", "/v1/batches", "/v1/threads/runs",
	"/v1/responses/compact", "/v1/responses/resp_1", "/v1/images/variations", "/v1/images/generations/",
	"/v1/images//generations", "/v1/Images/generations",
	"/v1/images/generations;x", "/v1/images/generations%20", "/v1/images/edits/x", "/v1/images;/edits",
	"/images/generations/v1",
	"/v1/moderations/", "/v1/moderations;x", "/v1/moderations%20", "/v1/MODERATIONS", "/v1/moderations/modr_1",
	"/v1/chat/completions/x",
	"/x/v1/chat/completions", "/v1/files/chat/completions",
	"/openai/v1/engines/gpt-4.1-mini/chat/completions", "/v1/engines/gpt-4.1-mini/completions",
	"/x/deployments/gpt-4.1-mini/chat/completions",
	"/deployments/a/b/chat/completions", "/deployments/a:b/chat/completions", "/v1/messages/batches",
	"/v1/messages/count_tokens/x", "/v1/messages/count_tokens;x",
	"/v1beta/models/m:generateContent:countTokens", "/v1beta/models/m%3AgenerateContent:countTokens",
	"/v1beta/models/m:generateContent/models/m:countTokens",
	"/v1beta/models/m:predict", "/v1beta/models/m:batchGenerateContent", "/v1beta/tunedModels/m:generateContent",
	"/v1beta/models/m:GenerateContent", "/v1beta/models/:generateContent",
	"/v1beta/cachedContents", "/v1beta/files/x/models", "/", "", "/v1", "/v1/caf%c3%a9", "/v1/chat/completions\u200b",
}

// TestOddPaths: what is not written exactly as the provider's documentation has it is refused,
// whatever of it a quota would count.
func TestOddPaths(t *testing.T) {
	t.Parallel()
	for _, p := range llm.Profiles() {
		for _, path := range oddPaths {
			plain, why := plainPath(path)
			for _, method := range []string{
				http.MethodPost, http.MethodGet, http.MethodHead, http.MethodPut,
				http.MethodDelete, http.MethodPatch, http.MethodOptions, "post",
			} {
				if why == nil && p.Documented(method, plain) {
					t.Errorf("%s: %s %q passes", p.Name, method, path)
				}
			}
		}
	}
}

// TestUncountedPaths lists all paths that pass and that nothing counts, as docs/gateway.md does.
func TestUncountedPaths(t *testing.T) {
	t.Parallel()
	paths := map[string][]string{
		"openai": {
			"GET /models", "GET /models/m", "GET /openai/models", "GET /openai/models/m", "GET /openai/v1/models",
			"GET /openai/v1/models/m",
			"GET /v1/models", "GET /v1/models/ft:m:x",
		},
		"anthropic": {
			"GET /models", "GET /models/m", "GET /v1/models", "GET /v1/models/m",
			"POST /messages/count_tokens", "POST /v1/messages/count_tokens",
		},
		"gemini": {
			"GET /models", "GET /models/m", "GET /v1/models", "GET /v1/models/m", "GET /v1beta/models",
			"GET /v1beta/models/m", "GET /v1alpha/models",
			"POST /models/m:countTokens", "POST /v1/models/m:countTokens", "POST /v1beta/models/m:countTokens",
			"POST /v1/projects/p/locations/l/publishers/google/models/m:countTokens",
		},
	}
	for name, prefixes := range map[string][]string{
		"xai": {"", "/v1"}, "mistral": {"", "/v1"}, "deepseek": {"", "/v1", "/beta"}, "groq": {"", "/openai/v1"},
		"together": {"", "/v1"}, "vllm": {"", "/v1"}, "ollama": {"", "/v1"},
	} {
		for _, prefix := range prefixes {
			paths[name] = append(paths[name], "GET "+prefix+"/models", "GET "+prefix+"/models/m:x")
		}
	}
	for _, p := range llm.Profiles() {
		want := paths[p.Name]
		if want == nil {
			t.Errorf("no paths of %s are here", p.Name)
		}
		var got []string
		for _, call := range want {
			method, path := call[:len("GET")], call[len("GET "):]
			if method != http.MethodGet {
				method, path = http.MethodPost, call[len("POST "):]
			}
			c, err := p.Parse(method, path, nil, []byte("{}"))
			if plain, why := plainPath(path); why == nil && err == nil && p.Documented(method, plain) &&
				(c.Operation == llm.OpOther || !p.Counts(c.Operation)) {
				got = append(got, call)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q pass uncounted, want %q", p.Name, got, want)
		}
	}
}
