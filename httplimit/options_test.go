package httplimit_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
)

func TestMistakesAreFoundAtOnce(t *testing.T) {
	t.Parallel()
	l, other := limiter(t, policy("a", rolling(1, time.Minute))), limiter(t, policy("b", rolling(1, time.Minute)))
	good := []httplimit.Bucket{{Limiter: l}}
	for _, c := range []struct {
		want    string
		buckets []httplimit.Bucket
		opts    *httplimit.Options
	}{
		{"0 buckets", nil, nil},
		{"no limiter", []httplimit.Bucket{{}}, nil},
		{"two buckets", []httplimit.Bucket{{Limiter: l}, {Limiter: l}}, nil},
		{"cannot be taken together", []httplimit.Bucket{{Limiter: l}, {Limiter: other}}, nil},
		{"hold 1ms", good, &httplimit.Options{Hold: time.Millisecond}},
		{"wait -1s", good, &httplimit.Options{Wait: -time.Second}},
		{"queue -1", good, &httplimit.Options{Queue: -1}},
		{`policy "c"`, good, &httplimit.Options{Describe: "c"}},
		{"exempt: health", good, &httplimit.Options{Exempt: []string{"health"}}},
		{"exempt: /a*b", good, &httplimit.Options{Exempt: []string{"/a*b"}}},
	} {
		if _, err := httplimit.New(c.buckets, c.opts); err == nil || !strings.HasPrefix(err.Error(), "httplimit: ") ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
	tokens := limiter(t, policy("tokens", drawgate.Limit{
		Name: "tpm", Unit: "tokens", Kind: drawgate.Rolling,
		Amount: 10, Window: time.Minute,
	}))
	none := func(*http.Request) []drawgate.Cost { return nil }
	if _, err := httplimit.New([]httplimit.Bucket{{Limiter: tokens}}, nil); !errors.Is(err, drawgate.ErrUnknownUnit) ||
		!strings.Contains(err.Error(), "name a cost in tokens") {
		t.Errorf("a policy that counts no requests, and no costs: %v", err)
	}
	both := []httplimit.Bucket{{Limiter: tokens}, {Limiter: with(t, tokens, policy("a", rolling(1, time.Minute)))}}
	if _, err := httplimit.New(both, nil); err != nil {
		t.Errorf("beside one that counts requests: %v", err)
	}
	m, err := httplimit.New([]httplimit.Bucket{{Limiter: tokens, Costs: none}}, nil)
	if err != nil {
		t.Fatalf("costs that only requests have: %v", err)
	}
	if p := m.Begin(http.Header{}, httptest.NewRequest(http.MethodGet, "/", http.NoBody)).Problem; p == nil ||
		p.Status != http.StatusInternalServerError {
		t.Errorf("a request that names no unit: %+v, want 500", p)
	}
}

// No other path is taken for an exempt one. req: B4.
func TestExempt(t *testing.T) {
	t.Parallel()
	m := one(t, &httplimit.Options{Exempt: []string{"/health*", "/static/*", "/robots.txt"}},
		policy("p", rolling(drawgate.MaxAmount, time.Minute)))
	for path, want := range map[string]bool{
		"/health": true, "/healthz": true, "/health/live": true, "/health/": true, "/static/a/b.css": true,
		"/static/": true, "/robots.txt": true,
		"/": false, "/Health": false, "/static": false, "/robots.txt/x": false, "/robots.txtx": false,
		"/api/health":      false,
		"/health/../login": false, "/health/./x": false, "/health//x": false, "/static/..": false,
		"/health/%2e%2e/login": false, "/static/x/../../login": false,
		"//health": false, "/health/..": false, "/static/a/.": false,
	} {
		h := http.Header{}
		r := httptest.NewRequest(http.MethodGet, "http://example.com"+path, http.NoBody)
		m.Begin(h, r)
		if exempt := h.Get("RateLimit") == ""; exempt != want {
			t.Errorf("%s: exempt %v, want %v", path, exempt, want)
		}
	}
}

func TestSkip(t *testing.T) {
	t.Parallel()
	m := one(t, &httplimit.Options{Skip: func(r *http.Request) bool { return r.Method == http.MethodOptions }},
		policy("p", rolling(1, time.Minute)))
	for range 3 {
		h := http.Header{}
		if p := m.Begin(h, httptest.NewRequest(http.MethodOptions, "/", http.NoBody)); p.Problem != nil || len(h) != 0 {
			t.Errorf("problem %+v, headers %v", p.Problem, h)
		}
	}
}

// Default and privileged keys, internal jobs and routes can each have their own limits. req: E3.
func TestKindsOfCallers(t *testing.T) {
	t.Parallel()
	plain := limiter(t, policy("default-keys", rolling(1, time.Hour)))
	gold := func(r *http.Request) bool { return strings.HasPrefix(r.Header.Get("X-API-Key"), "gold-") }
	job := func(r *http.Request) bool { return r.Header.Get("X-Job") != "" }
	byKey := httplimit.ByHeader("x-api-key")
	upload := func(r *http.Request) bool { return r.URL.Path == "/upload" }
	m := middleware(t, &httplimit.Options{Skip: job},
		httplimit.Bucket{Limiter: plain, Key: httplimit.When(func(r *http.Request) bool { return !gold(r) }, byKey)},
		httplimit.Bucket{
			Limiter: with(t, plain, policy("privileged-keys", rolling(3, time.Hour))),
			Key:     httplimit.When(gold, byKey),
		},
		httplimit.Bucket{
			Limiter: with(t, plain, policy("uploads", rolling(2, time.Hour))),
			Key:     httplimit.When(upload, byKey),
		},
	)
	passes := func(path string, headers ...string) (n int) {
		for range 10 {
			r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
			for i := 0; i < len(headers); i += 2 {
				r.Header.Set(headers[i], headers[i+1])
			}
			if m.Begin(http.Header{}, r).Problem == nil {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		path    string
		headers []string
		want    int
	}{
		{"/", []string{"X-API-Key", "a"}, 1},
		{"/", []string{"X-API-Key", "b"}, 1},
		{"/", nil, 1},
		{"/", []string{"X-API-Key", "a", "X-Job", "1"}, 10},
		{"/", []string{"X-API-Key", "gold-a"}, 3},
		{"/upload", []string{"X-API-Key", "gold-b"}, 2},
		{"/", []string{"X-API-Key", "gold-b"}, 1},
	} {
		if got := passes(c.path, c.headers...); got != c.want {
			t.Errorf("%s %v: %d pass, want %d", c.path, c.headers, got, c.want)
		}
	}
}

// One take can have limits per IP, per user, for the API, and for tasks of one kind. req: B2.
func TestFourLimits(t *testing.T) {
	t.Parallel()
	perIP := limiter(t, policy("ratelimit:ip", bucket(10, time.Hour, 5)))
	m := middleware(t, nil,
		httplimit.Bucket{Limiter: perIP},
		httplimit.Bucket{
			Limiter: with(t, perIP, policy("ratelimit:api", bucket(100, time.Hour, 20))),
			Key:     httplimit.Fixed("global"), Shared: true,
		},
		httplimit.Bucket{
			Limiter: with(t, perIP, policy("ratelimit:user", bucket(20, time.Hour, 10))),
			Key:     httplimit.Given(httplimit.ByHeader("User")),
		},
		httplimit.Bucket{
			Limiter: with(t, perIP, policy("ratelimit:task", bucket(50, time.Hour, 15))),
			Key:     httplimit.Given(httplimit.ByHeader("Task")), Shared: true,
		},
	)
	passed := map[string]int{}
	var why []string
	for i := range 60 { // from ever new addresses, which have 5 each: first one user with 10, then others
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.RemoteAddr = "192.0.2." + string(rune('0'+i/6)) + ":1"
		user := "one"
		if i >= 24 {
			user, r.Header["Task"] = "other", []string{"transcribe"}
		}
		r.Header.Set("User", user)
		if p := m.Begin(http.Header{}, r); p.Problem == nil {
			passed[user]++
		} else {
			why = append(why, strings.Join(p.Problem.Violated, "+"))
		}
	}
	if passed["one"] != 10 || passed["other"] != 10 {
		t.Errorf("passed %v, want 10 each: 10 per user, 20 in all; refused by %v", passed, why)
	}
}

// A limit may reserve a share for higher priorities. req: B7.
func TestPriority(t *testing.T) {
	t.Parallel()
	l := rolling(10, time.Hour)
	l.ReservedByPriority = map[int]drawgate.Share{5: {Percent: 50}}
	priority := func(r *http.Request) int { return len(r.URL.Path) - 1 }
	m := middleware(t, &httplimit.Options{Priority: priority},
		httplimit.Bucket{Limiter: limiter(t, policy("p", l)), Key: httplimit.Fixed("all")})
	passed := map[string]int{}
	for _, path := range []string{"/", "/12345"} {
		for range 20 {
			if m.Begin(http.Header{}, httptest.NewRequest(http.MethodGet, path, http.NoBody)).Problem == nil {
				passed[path]++
			}
		}
	}
	if passed["/"] != 5 || passed["/12345"] != 5 {
		t.Errorf("passed %v, want 5 and 5", passed)
	}
}

// A unit that a policy does not have is a mistake of the server. Its log says so; callers get no
// details.
func TestMistakesOfThePrograms(t *testing.T) {
	t.Parallel()
	var reported error
	m := middleware(t, &httplimit.Options{FailOpen: true, OnError: func(_ *http.Request, err error) { reported = err }},
		httplimit.Bucket{
			Limiter: limiter(t, policy("p", rolling(1, time.Minute))),
			Costs:   func(*http.Request) []drawgate.Cost { return []drawgate.Cost{{Unit: "tokens", N: 1}} },
		})
	_, p := ask(m)
	if p.Problem == nil || p.Problem.Status != http.StatusInternalServerError ||
		strings.Contains(p.Problem.Detail, "tokens") || reported == nil {
		t.Errorf("problem %+v, reported %v", p.Problem, reported)
	}
}
