package chat_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/benchmarks/internal/chat"
)

// TestBody: a request is JSON of the size that was asked for, however it is to be answered.
func TestBody(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		for _, usage := range []bool{false, true} {
			var q struct {
				Model   string `json:"model"`
				Stream  bool   `json:"stream"`
				Options struct {
					Usage bool `json:"include_usage"`
				} `json:"stream_options"`
			}
			body := chat.Body(4096, stream, usage)
			if err := json.Unmarshal(body, &q); err != nil || q.Model != chat.Model || q.Stream != stream ||
				q.Options.Usage != usage {
				t.Errorf("stream %v, usage %v: got %+v, %v", stream, usage, q, err)
			}
			if len(body) < 4096 || len(body) > 4096+16 {
				t.Errorf("a body of %d bytes, want about 4096", len(body))
			}
		}
	}
}

// TestEvents: every event is JSON, and the same seed gives the same stream, but for the usage.
func TestEvents(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		var shown [][]byte
		for _, e := range chat.Events(seed, true) {
			data := bytes.TrimSpace(bytes.TrimPrefix(e, []byte("data: ")))
			if !json.Valid(data) && string(data) != "[DONE]" {
				t.Fatalf("seed %d: %q is not JSON", seed, data)
			}
			if chat.Shown(e) {
				shown = append(shown, e)
			}
		}
		if got, want := bytes.Join(shown, nil), bytes.Join(chat.Events(seed, false), nil); !bytes.Equal(got, want) {
			t.Fatalf("seed %d: got %q, want %q", seed, got, want)
		}
	}
}

// TestConn: a connection is used again after an answer of known length and after a stream, and one
// that was cut off is an error.
func TestConn(t *testing.T) {
	t.Parallel()
	want := bytes.Join(chat.Events(7, false), nil)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/stream", "/cut":
			for _, e := range chat.Events(7, false) {
				_, _ = w.Write(e)
				_ = http.NewResponseController(w).Flush()
			}
			if r.URL.Path == "/cut" {
				panic(http.ErrAbortHandler)
			}
		default:
			_, _ = w.Write([]byte(chat.Answer))
		}
	}))
	t.Cleanup(s.Close)
	addr := strings.TrimPrefix(s.URL, "http://")
	c := chat.NewConn(addr)
	defer c.Close()
	for _, path := range []string{"/", "/stream", "/cut", "/stream", "/"} {
		var got []byte
		_, err := c.Call(t.Context(), chat.Request(addr, path, "key", chat.Body(100, false, false)),
			func(p []byte) { got = append(got, p...) })
		switch {
		case (err != nil) != (path == "/cut"):
			t.Fatalf("%s: error %v", path, err)
		case path == "/" && string(got) != chat.Answer, path == "/stream" && !bytes.Equal(got, want):
			t.Fatalf("%s: got %q", path, got)
		}
	}
}
