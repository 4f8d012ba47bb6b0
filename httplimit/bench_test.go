package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
)

// nowhere is a response writer that costs as little as possible, so that the benchmark measures the
// middleware.
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

// BenchmarkHeadersOnly is the baseline for the middleware: it formats the same headers from
// changing numbers, and decides nothing.
func BenchmarkHeadersOnly(b *testing.B) {
	b.Run("write=set", func(b *testing.B) { serve(b, &headersOnly{write: setHeaders}, "192.0.2.1:1234") })
	b.Run("write=assign", func(b *testing.B) { serve(b, &headersOnly{write: assignHeaders}, "192.0.2.1:1234") })
	b.Run("write=packed", func(b *testing.B) { serve(b, &headersOnly{write: packHeaders}, "192.0.2.1:1234") })
}

// headersOnly writes headers. The numbers are its own, so that it needs neither a clock nor a
// limit.
type headersOnly struct {
	write func(h http.Header, limit, left, reset, window int64)
	n     int64
}

func (o *headersOnly) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.n++
	o.write(w.Header(), 1_000_000_000, o.n%5, 1_795_251_600+o.n>>20, 1)
	done.ServeHTTP(w, r)
}

// setHeaders is the simple way.
func setHeaders(h http.Header, limit, left, reset, window int64) {
	h.Set("X-RateLimit-Limit", strconv.FormatInt(limit, 10))
	h.Set("X-RateLimit-Remaining", strconv.FormatInt(left, 10))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(reset, 10))
	h.Set("RateLimit", `"per-ip";r=`+strconv.FormatInt(left, 10)+";t="+strconv.FormatInt(window, 10))
	h.Set("RateLimit-Policy", `"per-ip";q=`+strconv.FormatInt(limit, 10)+";w=60;drawgate-burst=5")
}

// assignHeaders is the same without the lookup of canonical names, and describes the policy once.
func assignHeaders(h http.Header, limit, left, reset, window int64) {
	h["X-Ratelimit-Limit"] = []string{strconv.FormatInt(limit, 10)}
	h["X-Ratelimit-Remaining"] = []string{strconv.FormatInt(left, 10)}
	h["X-Ratelimit-Reset"] = []string{strconv.FormatInt(reset, 10)}
	h["Ratelimit"] = []string{`"per-ip";r=` + strconv.FormatInt(left, 10) + ";t=" + strconv.FormatInt(window, 10)}
	h["Ratelimit-Policy"] = []string{`"per-ip";q=1000000000;w=60;drawgate-burst=5`}
}

// packHeaders is the cheapest way that we know, and the one of the middleware. Constant parts are
// formatted once. The rest is one string, in which a number that occurs twice is written once, and
// all values share a slice.
func packHeaders(h http.Header, _, left, reset, window int64) {
	var space [64]byte
	text := append(space[:0], `"per-ip";r=`...)
	a := len(text)
	text = strconv.AppendInt(text, left, 10)
	b := len(text)
	text = strconv.AppendInt(append(text, ";t="...), window, 10)
	c := len(text)
	all := string(strconv.AppendInt(text, reset, 10))
	v := []string{"1000000000", all[a:b], all[c:], all[:c], `"per-ip";q=1000000000;w=60;drawgate-burst=5`}
	h["X-Ratelimit-Limit"] = v[0:1:1]
	h["X-Ratelimit-Remaining"] = v[1:2:2]
	h["X-Ratelimit-Reset"] = v[2:3:3]
	h["Ratelimit"] = v[3:4:4]
	h["Ratelimit-Policy"] = v[4:5:5]
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
		m := middleware(b, nil, httplimit.Bucket{Limiter: lim},
			httplimit.Bucket{Limiter: api, Key: httplimit.Fixed("global"), Shared: true})
		serve(b, m.Handler(done), "192.0.2.1:1234")
	})
	b.Run("take=hold", func(b *testing.B) {
		lim := limiter(b, policy("slots", drawgate.Limit{Name: "slots", Kind: drawgate.Concurrency, Amount: 10}))
		serve(b, middleware(b, nil, httplimit.Bucket{Limiter: lim}).Handler(done), "192.0.2.1:1234")
	})
}
