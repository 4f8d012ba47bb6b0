package server_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store/memstore"
)

// benched has the policies and rules of the benchmarks.
func benched() engine.Config {
	return engine.Config{
		Policies: enforced(drawgate.Policy{Name: "api", Limits: []drawgate.Limit{{
			Name: "rps", Kind: drawgate.Bucket,
			Window: 1e9, Amount: 1_000_000,
		}}}),
		Rules: []rules.Rule{{Match: rules.Match{Path: "/v1/*"}, Apply: []rules.Apply{{Policy: "api", Key: "ip"}}}},
	}
}

const benchTake = `{"policy":"api","key":"user-17"}`

// BenchmarkTake is a take over keep-alive loopback; handler=none answers the same bytes without
// deciding.
func BenchmarkTake(b *testing.B) {
	s := benchServer(b)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/take", strings.NewReader(benchTake)))
	answer := w.Body.Bytes()
	none := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		h := w.Header()
		for _, name := range []string{"Content-Type", "Cache-Control", "X-Content-Type-Options"} {
			h.Set(name, "application/json")
		}
		_, _ = w.Write(answer)
	})
	mux := http.NewServeMux()
	mux.Handle("/v1/take", none)
	for _, c := range []struct {
		name string
		h    http.Handler
	}{{"handler=take", s}, {"handler=none", mux}} {
		b.Run(c.name, func(b *testing.B) { overLoopback(b, c.h) })
	}
}

func benchServer(b *testing.B) *server.Server {
	b.Helper()
	store := memstore.New(nil)
	e, err := engine.New(store, benched(), nil)
	if err != nil {
		b.Fatal(err)
	}
	s, err := server.New(e, store, nil)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// overLoopback posts takes from several connections, written and read by hand, so that the client
// costs little.
func overLoopback(b *testing.B, h http.Handler) {
	b.Helper()
	ln, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	go func() { _ = srv.Serve(ln) }()
	defer func() { _ = srv.Close() }()
	text := "POST /v1/take HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 32\r\n\r\n" + benchTake
	b.SetParallelism(8)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		c, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", ln.Addr().String())
		if err != nil {
			b.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		buf := make([]byte, 4096)
		for pb.Next() {
			if _, err := io.WriteString(c, text); err != nil {
				b.Error(err)
				return
			}
			if !answered(c, buf) {
				b.Error("no answer")
				return
			}
		}
	})
}

// answered reads one answer, which ends with a line.
func answered(c net.Conn, buf []byte) bool {
	for n := 0; n < len(buf); {
		k, err := c.Read(buf[n:])
		if n += k; err != nil {
			return false
		}
		if bytes.HasSuffix(buf[:n], []byte("}\n")) {
			return bytes.HasPrefix(buf, []byte("HTTP/1.1 200"))
		}
	}
	return false
}

// body is a request's body that can be sent again and again.
type body struct{ strings.Reader }

func (body) Close() error { return nil }

// discard is a writer of answers that nobody reads.
type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// BenchmarkHandler is the server's own part of a request.
func BenchmarkHandler(b *testing.B) {
	s := benchServer(b)
	for _, c := range []struct{ name, path, body string }{
		{"take=explicit", "/v1/take", benchTake},
		{"take=costs", "/v1/take", `{"policy":"api","key":"user-17","costs":{"requests":2}}`},
		{"take=rules", "/v1/take", `{"attributes":{"method":"GET","path":"/v1/items","ip":"192.0.2.7"}}`},
		{"take=auth", "/auth", ""},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodPost, c.path, nil)
			r.RemoteAddr = "127.0.0.1:1"
			for _, h := range asked("GET", "/v1/items", "api.example.com", "192.0.2.7") {
				name, v, _ := strings.Cut(h, ": ")
				r.Header.Set(name, v)
			}
			in := &body{}
			w := discard{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				in.Reset(c.body)
				r.Body = in
				clear(w.h)
				s.ServeHTTP(w, r)
			}
		})
	}
}
