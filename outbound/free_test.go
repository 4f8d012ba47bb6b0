package outbound_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"weak"

	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store/memstore"
)

// TestBodyIsFreedWhileItsAnswerLasts: a request's body needs no memory any more once its answer has
// begun, however long that takes.
func TestBodyIsFreedWhileItsAnswerLasts(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n")
		_ = http.NewResponseController(w).Flush()
		close(begun)
		<-end
	}))
	defer upstream.Close()
	defer close(end)
	store := memstore.New(nil)
	defer store.Close()
	profile := llm.OpenAI()
	p := units("quota")
	rt := outbound.NewTransport(outbound.New(quotas["buckets"](t, store, p), &outbound.Options{Retries: 2}), profile,
		nil)

	send := func() (*http.Response, weak.Pointer[byte]) {
		body := append([]byte(`{"model":"gpt-4o","max_tokens":5,"stream":true,"messages":[{"role":"user","content":"`),
			bytes.Repeat([]byte("word "), 20_000)...)
		body = append(body, `"}]}`...)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, upstream.URL+"/v1/chat/completions",
			http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		call, err := profile.Parse(req.Method, req.URL.Path, req.Header, body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := rt.Send(req, body, call)
		if err != nil {
			t.Fatal(err)
		}
		return resp, weak.Make(&body[0])
	}
	resp, body := send()
	defer resp.Body.Close()
	<-begun
	for range 1000 { // the connection may let go of it a moment after the answer has begun
		if runtime.GC(); body.Value() == nil {
			return
		}
	}
	t.Error("the body is still in memory")
	runtime.KeepAlive(resp)
}
