package llm_test

import (
	"net/http"
	"testing"

	"github.com/drawgate/drawgate/llm"
)

// TestUncounted: what nothing counts is known by its name, wherever its path begins, and nothing of
// that is a call that passes.
func TestUncounted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ provider, path, want string }{
		{"openai", "/v1/files", "files"},
		{"openai", "/files/file-1/content", "files"},
		{"openai", "/openai/v1/batches", "batches"},
		{"openai", "/v1/Images/Variations", "image variations"},
		{"openai", "/v1/audio/speech", "sound"},
		{"openai", "/v1/responses/resp_1/input_items", "stored responses"},
		{"openai", "/v1/threads/thread_1/runs", "assistants"},
		{"openai", "/v1/filesystem", ""},
		{"openai", "/v1/x/files", ""},
		{"anthropic", "/v1/messages/batches", "batches"},
		{"anthropic", "/files", "files"},
		{"gemini", "/upload/v1beta/files", "files"},
		{"gemini", "/v1beta/models/imagen-4:predict", "images and videos of a model of their own"},
		{"gemini", "/v1beta/models/m:batchGenerateContent", "batches"},
		{"gemini", "/v1beta/cachedContents/x", "cached contents"},
		{"gemini", "/v1beta/models/m:generateContent", ""},
	} {
		p, ok := llm.ByName(c.provider)
		if !ok {
			t.Fatal(c.provider)
		}
		group, known := p.Uncounted(c.path)
		if group.Name != c.want || known != (c.want != "") || known != (group.Why != "") ||
			group.Stored && c.want != "files" && c.want != "stored responses" {
			t.Errorf("%s %s: %+v, %t; want %q", c.provider, c.path, group, known, c.want)
		}
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if known && p.Documented(method, c.path) {
				t.Errorf("%s: %s %s passes", c.provider, method, c.path)
			}
		}
	}
}
