package gateway_test

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/store/memstore"
)

// BenchmarkCall is what the gateway itself does for a call of 4 KB: no network is involved.
func BenchmarkCall(b *testing.B) {
	h := instant(b)
	body := []byte(`{"model":"gpt-4o","max_tokens":50,"messages":[{"role":"user","content":"` +
		strings.Repeat("The river was calm that evening, and nobody spoke. ", 80) + `"}]}`)
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/openai/v1/chat/completions", bytes.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+alice)
		r.Header.Set("Content-Type", "application/json")
		w := &discarding{header: http.Header{}}
		if h.ServeHTTP(w, r); w.status != http.StatusOK {
			b.Fatalf("status %d", w.status)
		}
	}
}

// instant returns a gateway whose upstream answers at once.
func instant(b *testing.B) *gateway.Handler {
	b.Helper()
	store := memstore.New(nil)
	b.Cleanup(func() { store.Close() })
	policy := drawgate.Policy{Name: "quota", Limits: []drawgate.Limit{
		drawgate.RollingLimit("rpm", 1_000_000_000, time.Minute),
		drawgate.RollingLimit("tpm", 1_000_000_000_000, time.Minute).Of(llm.UnitTokens),
	}}
	eng, err := engine.New(store, engine.Config{Policies: []engine.Policy{{Policy: policy}}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { eng.Close() })
	at, _ := url.Parse("http://provider.test")
	h, err := gateway.New(eng, gateway.Config{
		Upstreams: []gateway.Upstream{{
			Name: "openai", Profile: llm.OpenAI(), URL: at, Key: upstreamKey,
			Models: []gateway.Model{{Name: "*", Policy: "quota"}},
		}},
		Keys: []gateway.Key{{Name: "alice", Sum: sha256.Sum256([]byte(alice))}},
	}, &gateway.Options{Base: answering{}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { h.Close() })
	return h
}

// answering answers every call alike.
type answering struct{}

func (answering) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	const body = `{"id":"chatcmpl-1","object":"chat.completion","model":"gpt-4o","choices":[{"index":0,"message":` +
		`{"role":"assistant","content":"It was."},"finish_reason":"stop"}],"usage":{"prompt_tokens":900,"completion_tokens":50,"total_tokens":950}}`
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {"req_1"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}, nil
}

// discarding is a ResponseWriter that keeps nothing but the status.
type discarding struct {
	header http.Header
	status int
}

func (w *discarding) Header() http.Header         { return w.header }
func (w *discarding) WriteHeader(status int)      { w.status = status }
func (w *discarding) Write(p []byte) (int, error) { return len(p), nil }
