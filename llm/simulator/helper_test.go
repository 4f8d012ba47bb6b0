package simulator_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/llm/simulator"
)

// newServer returns a simulator, or ends the test.
func newServer(t testing.TB, o *simulator.Options) *simulator.Server {
	t.Helper()
	s, err := simulator.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// reply is an answer that was read to its end. err is why that end came early.
type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

// newRequest returns a request with the headers that every provider wants.
func newRequest(ctx context.Context, t testing.TB, path, body string, headers ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://simulator"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Anthropic-Version", "2023-06-01")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	return r
}

// post sends a request in this process.
func post(t testing.TB, s *simulator.Server, path, body string, headers ...string) reply {
	t.Helper()
	return do(s, newRequest(t.Context(), t, path, body, headers...))
}

func do(s *simulator.Server, r *http.Request) (got reply) {
	resp, err := s.Transport().RoundTrip(r)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(b), err}
}

// chat is a request of OpenAI's, with more fields if there are any.
func chat(prompt string, more ...string) string {
	return `{"model":"gpt-4.1","messages":[{"role":"user","content":` + quote(prompt) + `}]` + fields(more) + `}`
}

// message is a request of Anthropic's.
func message(prompt string, more ...string) string {
	if len(more) == 0 {
		more = []string{`"max_tokens":1000`}
	}
	return `{"model":"claude-sonnet-4-5","messages":[{"role":"user","content":` + quote(prompt) + `}]` + fields(more) +
		`}`
}

// contents is a request of Gemini's.
func contents(prompt string, more ...string) string {
	return `{"contents":[{"role":"user","parts":[{"text":` + quote(prompt) + `}]}]` + fields(more) + `}`
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func fields(more []string) (s string) {
	for _, m := range more {
		s += "," + m
	}
	return s
}

const (
	chatPath     = "/v1/chat/completions"
	responsePath = "/v1/responses"
	embedPath    = "/v1/embeddings"
	messagePath  = "/v1/messages"
	countPath    = "/v1/messages/count_tokens"
	geminiPath   = "/v1beta/models/gemini-2.5-flash:generateContent"
	streamPath   = "/v1beta/models/gemini-2.5-flash:streamGenerateContent"
	tokensPath   = "/v1beta/models/gemini-2.5-flash:countTokens"
	genericPath  = "/generic/anything"
)

// at returns what a path of names and indexes, such as "error.details.0.reason", leads to in JSON.
func at(t testing.TB, body, path string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	for name := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[name]
		case []any:
			i := strings.IndexAny("0123456789", name)
			if i < 0 || i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

// last returns the latest call in the ledger.
func last(t testing.TB, s *simulator.Server) simulator.Call {
	t.Helper()
	calls := s.Calls()
	if len(calls) == 0 {
		t.Fatal("the ledger is empty")
	}
	return calls[len(calls)-1]
}
