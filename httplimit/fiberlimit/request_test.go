package fiberlimit_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/timeout"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/httplimit/fiberlimit"
	"github.com/drawgate/drawgate/store/memstore"
)

func slots(t *testing.T, n int64) *drawgate.Limiter {
	t.Helper()
	store := memstore.New(nil)
	l, err := drawgate.New(store, drawgate.Policy{
		Name:   "slots",
		Limits: []drawgate.Limit{{Name: "slots", Kind: drawgate.Concurrency, Amount: n}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(); _ = store.Close() })
	return l
}

// TestWhatKeysSee: all of the request that net/http would show, but its body.
func TestWhatKeysSee(t *testing.T) {
	t.Parallel()
	var seen *http.Request
	key := func(r *http.Request) (string, bool) {
		seen = r
		return "", false
	}
	limit, err := httplimit.New([]httplimit.Bucket{{Limiter: slots(t, 1), Key: key}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	app.Post("/a/:b/*", fiberlimit.Middleware(limit), func(c fiber.Ctx) error { return c.SendString("served") })
	req := httptest.NewRequest(http.MethodPost, "http://example.com/a/x%20y/..%2Fz?q=1&q=2", http.NoBody)
	req.Header.Add("X-Forwarded-For", "198.51.100.1")
	req.Header.Add("X-Forwarded-For", "198.51.100.2")
	resp, err := app.Test(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "served" {
		t.Fatalf("%q, %v", body, err)
	}
	if seen.Method != http.MethodPost || seen.Host != "example.com" || seen.URL.Path != "/a/x y/../z" ||
		seen.URL.RawQuery != "q=1&q=2" || seen.Pattern != "/a/:b/*" ||
		!slices.Equal(seen.Header["X-Forwarded-For"], []string{"198.51.100.1", "198.51.100.2"}) ||
		seen.RemoteAddr == "" || seen.RequestURI == "" {
		t.Errorf("%s %s %s?%s, route %q, from %q, headers %v", seen.Method, seen.Host, seen.URL.Path, seen.URL.RawQuery,
			seen.Pattern, seen.RemoteAddr, seen.Header)
	}
}

// TestAbandoned: a request whose time-out has passed is answered without its handler, and holds
// nothing.
func TestAbandoned(t *testing.T) {
	t.Parallel()
	l := slots(t, 1)
	limit, err := httplimit.New([]httplimit.Bucket{{Limiter: l, Key: httplimit.Fixed("all")}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan struct{})
	defer close(end)
	app := fiber.New()
	app.Get("/", fiberlimit.Middleware(limit), timeout.New(func(fiber.Ctx) error {
		<-end
		return errors.New("too late")
	}, timeout.Config{Timeout: 20 * time.Millisecond}))
	resp, err := (&http.Client{}).Get(listen(t, app) + "/") //nolint:noctx // it ends by itself
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestTimeout {
		t.Errorf("status %d", resp.StatusCode)
	}
	if st, err := l.Status(t.Context(), "all"); err != nil || st.States[0].Used != 0 {
		t.Errorf("%d slots are taken, %v", st.States[0].Used, err)
	}
}
