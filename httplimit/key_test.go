package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/httplimit"
)

// keyOf returns the key of a request.
func keyOf(k httplimit.Key, change func(r *http.Request)) (string, bool) {
	r := httptest.NewRequest(http.MethodGet, "/a/b", http.NoBody)
	if change != nil {
		change(r)
	}
	return k(r)
}

func from(remote string) func(*http.Request) {
	return func(r *http.Request) { r.RemoteAddr = remote }
}

func TestByIP(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"192.0.2.1:1234": "192.0.2.1", "192.0.2.1": "192.0.2.1", "[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64",
		"[::ffff:192.0.2.1]:80": "192.0.2.1",
		"[fe80::1%eth0]:80":     "fe80::/64", "@": "", "": "", "2001:db8::7": "2001:db8::/64",
	} {
		for _, p := range []*httplimit.Proxies{nil, proxies(t, nil), proxies(t, nil, "10.0.0.0/8")} {
			if got, ok := keyOf(httplimit.ByIP(p), from(remote)); got != want || !ok {
				t.Errorf("%q: key %q, %v; want %q", remote, got, ok, want)
			}
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	header := func(v string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("X-Api-Key", v) }
	}
	route := func(pattern string) func(*http.Request) {
		return func(r *http.Request) { r.Pattern = pattern }
	}
	get := func(r *http.Request) bool { return r.Method == http.MethodGet }
	post := func(r *http.Request) bool { return !get(r) }
	byKey := httplimit.ByHeader("x-api-key")
	for _, c := range []struct {
		name   string
		key    httplimit.Key
		change func(*http.Request)
		want   string
		ok     bool
	}{
		{"header", byKey, header("k"), "k", true},
		{"no header: all share a bucket", byKey, nil, "", true},
		{"no header: not counted", httplimit.Given(byKey), nil, "", false},
		{"header given", httplimit.Given(byKey), header("k"), "k", true},
		{"user", httplimit.ByUser(func(r *http.Request) string { return r.URL.Path }), nil, "/a/b", true},
		{"route with method", httplimit.ByRoute(), route("GET /a/{x}"), "/a/{x}", true},
		{"route with host", httplimit.ByRoute(), route("POST example.com/a/{x}"), "example.com/a/{x}", true},
		{"route", httplimit.ByRoute(), route("/a/{x}"), "/a/{x}", true},
		{"no route", httplimit.ByRoute(), nil, "", true},
		{"when", httplimit.When(get, byKey), header("k"), "k", true},
		{"when not", httplimit.When(post, byKey), header("k"), "", false},
		{"join", httplimit.Join(byKey, httplimit.Fixed("a|b%")), header("k"), "k|a%7Cb%25", true},
		{"join of one that is left out", httplimit.Join(byKey, httplimit.When(post, byKey)), header("k"), "", false},
		{
			"hashed", httplimit.Hashed(byKey), header("abc"),
			"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", true,
		},
		{"nothing hashed", httplimit.Hashed(byKey), nil, "", true},
	} {
		if got, ok := keyOf(c.key, c.change); got != c.want || ok != c.ok {
			t.Errorf("%s: key %q, %v; want %q, %v", c.name, got, ok, c.want, c.ok)
		}
	}
}

// A long header gets a short key, which nobody else has.
func TestLongKeysDoNotFillTheStore(t *testing.T) {
	t.Parallel()
	l := limiter(t, policy("p", rolling(1, time.Hour)))
	m := middleware(t, nil, httplimit.Bucket{Limiter: l, Key: httplimit.ByHeader("X-Api-Key")})
	long := strings.Repeat("x", 100_000)
	for i, v := range []string{long, long + "y", strings.Repeat("x", 256), strings.Repeat("x", 257)} {
		for _, want := range []bool{true, false} {
			r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
			r.Header.Set("X-Api-Key", v)
			if p := m.Begin(http.Header{}, r); (p.Problem == nil) != want {
				t.Errorf("key %d: %+v, want passed %v", i, p.Problem, want)
			}
		}
	}
	if st, err := l.Status(t.Context(), strings.Repeat("x", 257)); err != nil || st.States[0].Used != 1 {
		t.Errorf("the same key of another interface is another bucket: %v", err)
	}
}
