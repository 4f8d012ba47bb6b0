package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/store/memstore"
)

// limiter returns a limiter over a store of its own in memory.
func limiter(t testing.TB, p drawgate.Policy) *drawgate.Limiter {
	t.Helper()
	l, err := drawgate.New(limiterStore(t), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// limiterStore returns a store of its own in memory.
func limiterStore(t testing.TB) drawgate.Store {
	t.Helper()
	store := memstore.New(nil)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func with(t testing.TB, l *drawgate.Limiter, p drawgate.Policy) *drawgate.Limiter {
	t.Helper()
	o, err := l.With(p)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func policy(name string, limits ...drawgate.Limit) drawgate.Policy {
	return drawgate.Policy{Name: name, Limits: limits}
}

func bucket(n int64, window time.Duration, burst int64) drawgate.Limit {
	return drawgate.Limit{Name: "rate", Kind: drawgate.Bucket, Amount: n, Window: window, Burst: burst}
}

func rolling(n int64, window time.Duration) drawgate.Limit {
	return drawgate.Limit{Name: "rolling", Kind: drawgate.Rolling, Amount: n, Window: window, Precision: drawgate.Exact}
}

func slots(n int64) drawgate.Limit {
	return drawgate.Limit{Name: "slots", Kind: drawgate.Concurrency, Amount: n}
}

func middleware(t testing.TB, opts *httplimit.Options, buckets ...httplimit.Bucket) *httplimit.Middleware {
	t.Helper()
	m, err := httplimit.New(buckets, opts)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// one returns a middleware with one bucket that everybody shares, but that is not marked as Shared.
func one(t testing.TB, opts *httplimit.Options, p drawgate.Policy) *httplimit.Middleware {
	t.Helper()
	return middleware(t, opts, httplimit.Bucket{Limiter: limiter(t, p), Key: httplimit.Fixed("all")})
}

// ask begins a request, without a server.
func ask(m *httplimit.Middleware) (http.Header, httplimit.Pass) {
	h := http.Header{}
	return h, m.Begin(h, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
}

// wantHeaders fails the test unless the headers have these values; "" means that a header is
// missing. Names and values alternate.
func wantHeaders(t *testing.T, h http.Header, want ...string) {
	t.Helper()
	for i := 0; i < len(want); i += 2 {
		if got := strings.Join(h.Values(want[i]), " + "); got != want[i+1] {
			t.Errorf("%s: %q, want %q", want[i], got, want[i+1])
		}
	}
}

// item is one of a list of structured fields.
type item struct {
	name   string
	params map[string]any // int64 or string
}

// parseList reads a List of RFC 9651 strictly, as far as this package writes one.
func parseList(t *testing.T, h http.Header, name string) (all []item) {
	t.Helper()
	rest := strings.Join(h.Values(name), ", ")
	for rest != "" {
		it := item{params: map[string]any{}}
		it.name, rest = parseString(t, rest)
		for strings.HasPrefix(rest, ";") {
			key, value, ok := strings.Cut(rest[1:], "=")
			if !ok || key == "" || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789_-.*") != "" ||
				strings.Trim(key[:1], "abcdefghijklmnopqrstuvwxyz*") != "" {
				t.Fatalf("%s: %q is no parameter", name, rest)
			}
			if strings.HasPrefix(value, `"`) {
				it.params[key], rest = parseString(t, value)
				continue
			}
			end := strings.IndexAny(value, ";,")
			if end < 0 {
				end = len(value)
			}
			n, err := strconv.ParseInt(value[:end], 10, 64)
			if err != nil || n < 0 || n > 999_999_999_999_999 || strconv.FormatInt(n, 10) != value[:end] {
				t.Fatalf("%s: %q is no Integer: %v", name, value[:end], err)
			}
			it.params[key], rest = n, value[end:]
		}
		all = append(all, it)
		if rest != "" {
			var ok bool
			if rest, ok = strings.CutPrefix(rest, ", "); !ok || rest == "" {
				t.Fatalf("%s: %q does not go on after %q", name, rest, it.name)
			}
		}
	}
	return all
}

func parseString(t *testing.T, text string) (value, rest string) {
	t.Helper()
	if !strings.HasPrefix(text, `"`) {
		t.Fatalf("%q is no String", text)
	}
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return value, text[i+1:]
		case c == '\\' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\'):
			i++
			value += text[i : i+1]
		case c < ' ' || c > '~' || c == '\\':
			t.Fatalf("%q: a String has no %q", text, c)
		default:
			value += text[i : i+1]
		}
	}
	t.Fatalf("%q does not end", text)
	return "", ""
}
