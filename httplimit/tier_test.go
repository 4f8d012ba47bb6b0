package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/store/memstore"
)

// begin begins a request with a header X-Tier.
func begin(m *httplimit.Middleware, tier string) (http.Header, httplimit.Pass) {
	h, r := http.Header{}, httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.Header.Set("X-Tier", tier)
	return h, m.Begin(h, r)
}

// A request is counted under its own policy, which the headers describe, and holds what that policy
// holds. A shared bucket is not described.
func TestPolicyOfARequest(t *testing.T) {
	t.Parallel()
	free := limiter(t, policy("free", rolling(1, time.Minute)))
	tiers := map[string]*drawgate.Limiter{
		"gold":    with(t, free, policy("gold", rolling(100, time.Minute))),
		"batch":   with(t, free, policy("batch", slots(1))),
		"foreign": limiter(t, policy("foreign", rolling(1, time.Minute))),
	}
	var failed error
	m := middleware(t, &httplimit.Options{OnError: func(_ *http.Request, err error) { failed = err }},
		httplimit.Bucket{
			Limiter: free, Key: httplimit.Fixed("ann"),
			Policy: func(r *http.Request) *drawgate.Limiter { return tiers[r.Header.Get("X-Tier")] },
		},
		httplimit.Bucket{
			Limiter: with(t, free, policy("api", rolling(1000, time.Minute))), Key: httplimit.Fixed("all"),
			Shared: true,
		})
	for _, c := range []struct{ tier, limits string }{
		{"", `"free";q=1;w=60`},
		{"gold", `"gold";q=100;w=60`},
		{"unknown", `"free";q=1;w=60`},
		{"batch", `"batch";q=1;qu="concurrent-requests"`},
	} {
		h, p := begin(m, c.tier)
		wantHeaders(t, h, "RateLimit-Policy", c.limits)
		if refused := p.Problem != nil; refused != (c.tier == "unknown") || p.Held() != (c.tier == "batch") {
			t.Errorf("%q: got problem %+v, held %v", c.tier, p.Problem, p.Held())
		}
		p.End()
	}
	if _, p := begin(m, "foreign"); p.Problem == nil || p.Problem.Status != http.StatusInternalServerError ||
		failed == nil {
		t.Errorf("a limiter of another store: got %+v, %v, want 500 and an error", p.Problem, failed)
	}
	described := middleware(t, &httplimit.Options{Describe: "gold"}, httplimit.Bucket{
		Limiter: free, Key: httplimit.Fixed("bob"),
		Policy: func(*http.Request) *drawgate.Limiter { return tiers["gold"] },
	})
	h, _ := begin(described, "")
	wantHeaders(t, h, "RateLimit-Policy", `"gold";q=100;w=60`)
}

// Header names and the form of the reset can be chosen.
func TestHeaderNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		names := httplimit.HeaderNames{Limit: "x-rate-limit-limit", Reset: "X-Rate-Limit-Reset", ResetAfter: true}
		m := one(t, &httplimit.Options{HeaderNames: names}, policy("p", rolling(10, 1500*time.Millisecond)))
		h, _ := ask(m)
		wantHeaders(t, h, "X-Rate-Limit-Limit", "10", "X-RateLimit-Remaining", "9", "X-Rate-Limit-Reset", "2",
			"X-RateLimit-Limit", "", "X-RateLimit-Reset", "", "RateLimit", `"p";r=9;t=2`)
	})
	l := limiter(t, policy("p", rolling(1, time.Minute)))
	for _, name := range []string{"a b", "a:", "ä", "a\r\nb"} {
		_, err := httplimit.New([]httplimit.Bucket{{Limiter: l}},
			&httplimit.Options{HeaderNames: httplimit.HeaderNames{Remaining: name}})
		if err == nil || !strings.Contains(err.Error(), "cannot be the name of a header") {
			t.Errorf("%q: got %v, want an error that says so", name, err)
		}
	}
}

// ByIPPrefix counts by as many bits of an address as configured.
func TestByIPPrefix(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		v4, v6       int
		remote, want string
	}{
		{24, 48, "192.0.2.77:1", "192.0.2.0/24"},
		{24, 48, "[::ffff:192.0.2.77]:1", "192.0.2.0/24"},
		{24, 48, "[2001:db8:1:2::3]:1", "2001:db8:1::/48"},
		{0, 0, "192.0.2.77:1", "192.0.2.77"},
		{0, 0, "[2001:db8:1:2::3]:1", "2001:db8:1:2::/64"},
		{32, 128, "[2001:db8::3]:1", "2001:db8::3/128"},
		{99, 999, "192.0.2.77:1", "192.0.2.77"},
		{99, 999, "[2001:db8::3]:1", "2001:db8::3/128"},
		{-1, -1, "192.0.2.77:1", "128.0.0.0/1"},
		{24, 48, "@", ""},
	} {
		if got, ok := keyOf(httplimit.ByIPPrefix(nil, c.v4, c.v6), from(c.remote)); got != c.want || !ok {
			t.Errorf("%s by %d and %d bits: got %q, %v, want %q", c.remote, c.v4, c.v6, got, ok, c.want)
		}
	}
}

// Each request is counted by the policy of its caller's tier. The limiters are made once.
func ExampleBucket() {
	free, err := drawgate.New(memstore.New(nil), drawgate.PerHour("free", 1), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	paid, err := free.With(drawgate.PerHour("paid", 1000))
	if err != nil {
		fmt.Println(err)
		return
	}
	limit, err := httplimit.New([]httplimit.Bucket{{
		Limiter: free, Key: httplimit.ByIPPrefix(nil, 24, 48),
		Policy: func(r *http.Request) *drawgate.Limiter {
			if r.Header.Get("X-Api-Key") == "a customer's" {
				return paid
			}
			return nil // free
		},
	}}, &httplimit.Options{HeaderNames: httplimit.HeaderNames{ResetAfter: true}})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := limit.Handler(hello)
	show(h, "/", "192.0.2.1:1234")
	show(h, "/", "192.0.2.2:1234")
	show(h, "/", "192.0.2.2:1234", "X-Api-Key", "a customer's")
	// Output:
	// 200 "free";r=0;t=3600
	// 429 "free";r=0;t=3600
	// 200 "paid";r=999;t=3600
}
