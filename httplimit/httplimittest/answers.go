package httplimittest

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
)

// wantHeaders fails the test unless the headers say this; "" says that there is none.
func (r reply) wantHeaders(t *testing.T, want map[string]string) {
	t.Helper()
	for name, v := range want {
		if got := r.header.Get(name); got != v {
			t.Errorf("%s: %q, want %q", name, got, v)
		}
	}
}

func testSuccess(e *env) {
	t, h := e.t, e.h
	s := open(t, h, nil, one(newLimiter(t, nil, "per-ip", rate(60, time.Hour, 5))))
	r := s.expect(http.StatusOK, "/")
	if r.body != "served" {
		t.Errorf("body %q", r.body)
	}
	r.wantHeaders(t, map[string]string{
		"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "4", "RateLimit": `"per-ip";r=4;t=60`,
		"RateLimit-Policy": `"per-ip";q=60;w=3600;drawgate-burst=5`, "Retry-After": "", "X-RateLimit-Fallback": "",
	})
	wantReset(t, r, time.Minute)
	r = s.expect(http.StatusOK, "/")
	r.wantHeaders(t, map[string]string{"X-RateLimit-Remaining": "3"})
	left, err := strconv.Atoi(strings.TrimPrefix(r.header.Get("RateLimit"), `"per-ip";r=3;t=`))
	if err != nil || left <= 60 || left > 120 { // two minutes, less the time since the first request
		t.Errorf("RateLimit %q, want 3 left, and about 120 s", r.header.Get("RateLimit"))
	}
}

// wantReset fails the test unless X-RateLimit-Reset lies this far ahead.
func wantReset(t *testing.T, r reply, ahead time.Duration) {
	t.Helper()
	sec, err := strconv.ParseInt(r.header.Get("X-RateLimit-Reset"), 10, 64)
	if d := time.Until(time.Unix(sec, 0)) - ahead; err != nil || d < -15*time.Second || d > 2*time.Second {
		t.Errorf("X-RateLimit-Reset %q is %v from where it should be (%v)", r.header.Get("X-RateLimit-Reset"), d, err)
	}
}

func testRefusal(e *env) {
	t, h := e.t, e.h
	s := open(t, h, nil, one(newLimiter(t, nil, "per-ip", rate(60, time.Hour, 2))))
	s.expect(http.StatusOK, "/")
	s.expect(http.StatusOK, "/")
	r := s.expect(http.StatusTooManyRequests, "/")
	if s.served.Load() != 2 {
		t.Errorf("the handler ran %d times, want 2", s.served.Load())
	}
	after, err := strconv.Atoi(r.header.Get("Retry-After"))
	if err != nil || after < 1 || after > 60 {
		t.Errorf("Retry-After %q, want 1 to 60 seconds", r.header.Get("Retry-After"))
	}
	r.wantHeaders(t, map[string]string{
		"Content-Type": "application/problem+json", "X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "0",
		"Cache-Control":    "no-store",
		"RateLimit":        fmt.Sprintf(`"per-ip";r=0;t=%d`, after),
		"RateLimit-Policy": `"per-ip";q=60;w=3600;drawgate-burst=2`,
	})
	p := r.problem
	if p.Status != http.StatusTooManyRequests || p.Code != httplimit.CodeLimited || p.Scope != httplimit.ScopeCaller ||
		p.After != int64(after) ||
		!slices.Equal(p.Violated, []string{"per-ip"}) || !strings.HasSuffix(p.Type, "#quota-exceeded") ||
		!strings.Contains(p.Detail, "60 requests per hour") {
		t.Errorf("problem %s", r.body)
	}
}

// ownThenShared are buckets as document B has them: per IP, and for the whole API.
func ownThenShared(t *testing.T, perIP, api drawgate.Limit) []httplimit.Bucket {
	t.Helper()
	proxies, err := httplimit.NewProxies(httplimit.PrivateNetworks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	l := newLimiter(t, nil, "per-ip", perIP)
	return []httplimit.Bucket{
		{Limiter: l, Key: httplimit.ByIP(proxies)},
		{Limiter: with(t, l, "api", api), Key: httplimit.Fixed("global"), Shared: true},
	}
}

// req: B2, B4.
func testOwnThenShared(e *env) {
	t, h := e.t, e.h
	buckets := ownThenShared(t, rate(10, time.Minute, 5), rate(100, time.Minute, 20))
	s := open(t, h, nil, buckets)
	const from = "X-Forwarded-For"
	s.expect(http.StatusOK, "/", from, "198.51.100.1").wantHeaders(t, map[string]string{
		"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "4", "RateLimit": `"per-ip";r=4;t=6`,
		"RateLimit-Policy": `"per-ip";q=10;w=60;drawgate-burst=5`,
	})
	r := s.until(http.StatusTooManyRequests, 8, "198.51.100.1")
	if p := r.problem; p.Scope != httplimit.ScopeCaller || !strings.Contains(p.Detail, "Your limit") ||
		!slices.Equal(p.Violated, []string{"per-ip"}) {
		t.Errorf("the caller's own limit was hit: %s", r.body)
	}
	r.wantHeaders(t, map[string]string{"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "0"})
	for i := 2; ; i++ { // others, until the API's is hit
		ip := fmt.Sprintf("198.51.100.%d", i)
		if r = s.get("/", from, ip); r.status == http.StatusTooManyRequests || i == 250 {
			break
		}
	}
	if p := r.problem; p.Scope != httplimit.ScopeAPI || !strings.Contains(p.Detail, "not your own") ||
		!slices.Equal(p.Violated, []string{"api"}) {
		t.Errorf("the API's limit was hit: %s", r.body)
	}
	r.wantHeaders(t, map[string]string{"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "5", "Retry-After": "1"})
}

// until repeats a request from an address, at most n times, until it has a status.
func (s *site) until(status, n int, ip string) (r reply) {
	s.t.Helper()
	for range n {
		if r = s.get("/", "X-Forwarded-For", ip); r.status == status {
			return r
		}
	}
	s.t.Fatalf("status %d after %d requests, want %d", r.status, n, status)
	return r
}

func testRefusalCostsNothing(e *env) {
	t, h := e.t, e.h
	buckets := ownThenShared(t, rate(1, time.Hour, 1), rate(10, time.Hour, 2))
	s := open(t, h, nil, buckets)
	s.expect(http.StatusOK, "/", "X-Forwarded-For", "198.51.100.1")
	for range 5 {
		s.expect(http.StatusTooManyRequests, "/", "X-Forwarded-For", "198.51.100.1")
	}
	s.expect(http.StatusOK, "/", "X-Forwarded-For", "198.51.100.2") // the API's second unit is still there
	s.expect(http.StatusTooManyRequests, "/", "X-Forwarded-For", "198.51.100.3")
	r := s.expect(http.StatusTooManyRequests, "/", "X-Forwarded-For", "198.51.100.3")
	r.wantHeaders(t, map[string]string{"X-RateLimit-Remaining": "1"})
}

func testHead(e *env) {
	t, h := e.t, e.h
	s := open(t, h, nil, one(newLimiter(t, nil, "per-ip", rate(1, time.Hour, 1))))
	s.expect(http.StatusOK, "/")
	r := s.do(t.Context(), http.MethodHead, "/")
	if r.status != http.StatusTooManyRequests || r.body != "" || r.header.Get("Retry-After") == "" ||
		r.header.Get("RateLimit") == "" {
		t.Errorf("HEAD: %d, body %q, headers %v", r.status, r.body, r.header)
	}
}

// req: B4.
func testExempt(e *env) {
	t, h := e.t, e.h
	s := open(t, h, &httplimit.Options{Exempt: []string{"/health*"}},
		one(newLimiter(t, nil, "per-ip", rate(1, time.Hour, 1))))
	for range 3 {
		s.expect(http.StatusOK, "/health").wantHeaders(t, map[string]string{
			"X-RateLimit-Limit": "", "RateLimit": "",
			"RateLimit-Policy": "",
		})
		s.expect(http.StatusOK, "/healthz/live")
	}
	s.expect(http.StatusOK, "/")
	s.expect(http.StatusTooManyRequests, "/")
	s.expect(http.StatusOK, "/health")
}

func testNeverFits(e *env) {
	t, h := e.t, e.h
	b := one(newLimiter(t, nil, "upload", drawgate.Limit{
		Name: "bytes", Unit: "content-bytes", Kind: drawgate.Rolling,
		Amount: 100, Window: time.Minute,
	}))
	b[0].Costs = func(*http.Request) []drawgate.Cost { return []drawgate.Cost{{Unit: "content-bytes", N: 101}} }
	r := open(t, h, nil, b).expect(http.StatusRequestEntityTooLarge, "/")
	if r.header.Get("Retry-After") != "" || r.problem.Code != httplimit.CodeNeverFits {
		t.Errorf("Retry-After %q, problem %s", r.header.Get("Retry-After"), r.body)
	}
	r.wantHeaders(t, map[string]string{
		"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "100", "RateLimit": `"upload";r=100;t=0`,
		"RateLimit-Policy": `"upload";q=100;qu="content-bytes";w=60`,
	})
	if r.header.Get("X-RateLimit-Reset") == "" {
		t.Error("there is no X-RateLimit-Reset")
	}
}

func testStoreUnavailable(e *env) {
	t, h := e.t, e.h
	down := func(s drawgate.Store) drawgate.Store {
		f := &faulty{Store: s}
		f.down.Store(true)
		return f
	}
	closed := open(t, h, nil, one(newLimiter(t, down, "per-ip", rate(1, time.Hour, 1))))
	r := closed.expect(http.StatusServiceUnavailable, "/")
	r.wantHeaders(t, map[string]string{"Retry-After": "1", "X-RateLimit-Limit": ""})
	if r.problem.Code != httplimit.CodeStoreUnavailable || strings.Contains(r.body, "a test") ||
		closed.served.Load() != 0 {
		t.Errorf("problem %s", r.body)
	}
	opened := open(t, h, &httplimit.Options{FailOpen: true}, one(newLimiter(t, down, "per-ip", rate(1, time.Hour, 1))))
	for range 3 {
		opened.expect(http.StatusOK, "/").wantHeaders(t, map[string]string{
			"X-RateLimit-Fallback": "true",
			"X-RateLimit-Limit":    "",
		})
	}
}

// PEERS 20: a degraded "allow" that the caller cannot tell from a real one.
func testFallback(e *env) {
	t, h := e.t, e.h
	marked := func(s drawgate.Store) drawgate.Store { return &faulty{Store: s, marked: true} }
	s := open(t, h, nil, one(newLimiter(t, marked, "per-ip", rate(1, time.Hour, 1))))
	s.expect(http.StatusOK, "/").wantHeaders(t, map[string]string{
		"X-RateLimit-Fallback":  "true",
		"X-RateLimit-Remaining": "0",
	})
	s.expect(http.StatusTooManyRequests, "/").wantHeaders(t, map[string]string{"X-RateLimit-Fallback": "true"})
}

// req: E3.
func testRoute(e *env) {
	t, h := e.t, e.h
	l := newLimiter(t, nil, "per-route", rate(1, time.Hour, 1))
	s := open(t, h, nil, []httplimit.Bucket{{Limiter: l, Key: httplimit.ByRoute()}})
	s.expect(http.StatusOK, "/things/1")
	s.expect(http.StatusTooManyRequests, "/things/2")
	s.expect(http.StatusOK, "/others/1")
}

// PEERS 21: the address of the client taken from the left of X-Forwarded-For, where anyone can
// choose a bucket.
func testProxies(e *env) {
	t, h := e.t, e.h
	proxies, err := httplimit.NewProxies([]netip.Prefix{
		netip.MustParsePrefix("127.0.0.0/8"),
		netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("10.0.0.0/8"),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := newLimiter(t, nil, "per-ip", rate(1, time.Hour, 1))
	s := open(t, h, nil, []httplimit.Bucket{{Limiter: l, Key: httplimit.ByIP(proxies)}})
	const from = "X-Forwarded-For"
	s.expect(http.StatusOK, "/", from, "203.0.113.7")
	s.expect(http.StatusTooManyRequests, "/", from, "198.51.100.1, 203.0.113.7") // what the client wrote itself
	s.expect(http.StatusTooManyRequests, "/", from, "198.51.100.2, 203.0.113.7, 10.1.2.3")
	// lines are joined in order
	s.expect(http.StatusTooManyRequests, "/", from, "198.51.100.3", from, "203.0.113.7:4711")
	s.expect(http.StatusTooManyRequests, "/", from, "::ffff:203.0.113.7")
	s.expect(http.StatusOK, "/", from, "2001:db8:1:2::1")
	s.expect(http.StatusTooManyRequests, "/", from, "2001:db8:1:2:ffff::9") // the same /64
	s.expect(http.StatusOK, "/", from, "2001:db8:1:3::1")
}

// PEERS 21, where no proxy is trusted.
func testSpoofed(e *env) {
	t, h := e.t, e.h
	s := open(t, h, nil, one(newLimiter(t, nil, "per-ip", rate(1, time.Hour, 1))))
	s.expect(http.StatusOK, "/", "X-Forwarded-For", "203.0.113.1")
	for i, name := range []string{"X-Forwarded-For", "X-Real-IP", "Forwarded", "True-Client-IP"} {
		s.expect(http.StatusTooManyRequests, "/", name, fmt.Sprintf("203.0.113.%d", i+2), "Forwarded",
			"for=203.0.113.99")
	}
}

func testOwnRefusal(e *env) {
	t, h := e.t, e.h
	opts := &httplimit.Options{Refuse: func(w http.ResponseWriter, _ *http.Request, p *httplimit.Problem) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte("no tea: " + string(p.Code)))
	}}
	s := open(t, h, opts, one(newLimiter(t, nil, "per-ip", rate(1, time.Hour, 1))))
	s.expect(http.StatusOK, "/")
	r := s.expect(http.StatusTeapot, "/")
	if r.body != "no tea: limited" || r.header.Get("Retry-After") == "" || r.header.Get("RateLimit") == "" ||
		r.header.Get("Content-Type") != "text/plain" {
		t.Errorf("body %q, headers %v", r.body, r.header)
	}
}
