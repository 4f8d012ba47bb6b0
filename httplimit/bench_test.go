package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
)

// nowhere is a response writer that costs as little as one can, so that what is measured is the middleware.
type nowhere struct{ h http.Header }

func (w *nowhere) Header() http.Header         { return w.h }
func (w *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (w *nowhere) WriteHeader(int)             {}

func serve(b *testing.B, h http.Handler, remote string) {
	b.Helper()
	w, r := &nowhere{h: http.Header{}}, httptest.NewRequest(http.MethodGet, "/api/things/17", http.NoBody)
	r.RemoteAddr = remote
	b.ReportAllocs()
	for b.Loop() {
		clear(w.h)
		h.ServeHTTP(w, r)
	}
}

var done = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

func plenty(b testing.TB) *drawgate.Limiter {
	b.Helper()
	return limiter(b, policy("per-ip", bucket(drawgate.MaxAmount/1000, time.Minute, 5)))
}

// BenchmarkHeadersOnly is the floor: a middleware that writes five headers of the same lengths and does nothing else.
func BenchmarkHeadersOnly(b *testing.B) {
	b.Run("write=set", func(b *testing.B) {
		serve(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("X-RateLimit-Limit", "1000000000")
			h.Set("X-RateLimit-Remaining", "4")
			h.Set("X-RateLimit-Reset", "1795251600")
			h.Set("RateLimit", `"per-ip";r=4;t=1`)
			h.Set("RateLimit-Policy", `"per-ip";q=1000000000;w=60;drawgate-burst=5`)
			done.ServeHTTP(w, r)
		}), "192.0.2.1:1234")
	})
	b.Run("write=canonical", func(b *testing.B) {
		serve(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("X-Ratelimit-Limit", "1000000000")
			h.Set("X-Ratelimit-Remaining", "4")
			h.Set("X-Ratelimit-Reset", "1795251600")
			h.Set("Ratelimit", `"per-ip";r=4;t=1`)
			h.Set("Ratelimit-Policy", `"per-ip";q=1000000000;w=60;drawgate-burst=5`)
			done.ServeHTTP(w, r)
		}), "192.0.2.1:1234")
	})
	b.Run("write=assign", func(b *testing.B) {
		serve(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			v := []string{"1000000000", "4", "1795251600", `"per-ip";r=4;t=1`, `"per-ip";q=1000000000;w=60;drawgate-burst=5`}
			h["X-Ratelimit-Limit"] = v[0:1:1]
			h["X-Ratelimit-Remaining"] = v[1:2:2]
			h["X-Ratelimit-Reset"] = v[2:3:3]
			h["Ratelimit"] = v[3:4:4]
			h["Ratelimit-Policy"] = v[4:5:5]
			done.ServeHTTP(w, r)
		}), "192.0.2.1:1234")
	})
}

func BenchmarkMiddleware(b *testing.B) {
	b.Run("take=plain", func(b *testing.B) {
		serve(b, middleware(b, nil, httplimit.Bucket{Limiter: plenty(b)}).Handler(done), "192.0.2.1:1234")
	})
	b.Run("take=ipv6", func(b *testing.B) {
		serve(b, middleware(b, nil, httplimit.Bucket{Limiter: plenty(b)}).Handler(done), "[2001:db8::1]:1234")
	})
	b.Run("take=refused", func(b *testing.B) {
		lim := limiter(b, policy("per-ip", bucket(1, time.Hour, 1)))
		serve(b, middleware(b, nil, httplimit.Bucket{Limiter: lim}).Handler(done), "192.0.2.1:1234")
	})
	b.Run("take=two", func(b *testing.B) {
		lim := plenty(b)
		api := with(b, lim, policy("api", bucket(drawgate.MaxAmount/1000, time.Minute, 5)))
		m := middleware(b, nil, httplimit.Bucket{Limiter: lim}, httplimit.Bucket{Limiter: api, Key: httplimit.Fixed("global"), Shared: true})
		serve(b, m.Handler(done), "192.0.2.1:1234")
	})
	b.Run("take=hold", func(b *testing.B) {
		lim := limiter(b, policy("slots", drawgate.Limit{Name: "slots", Kind: drawgate.Concurrency, Amount: 10}))
		serve(b, middleware(b, nil, httplimit.Bucket{Limiter: lim}).Handler(done), "192.0.2.1:1234")
	})
}
