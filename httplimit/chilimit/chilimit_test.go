package chilimit_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/httplimit/chilimit"
	"github.com/drawgate/drawgate/httplimit/httplimittest"
)

// TestChi holds chi against what every adapter promises, with the middleware at the routes.
func TestChi(t *testing.T) {
	t.Parallel()
	httplimittest.Run(t, httplimittest.Harness{Serve: func(t *testing.T, limit *httplimit.Middleware,
		routes []httplimittest.Route,
	) string {
		r := chi.NewRouter()
		for _, route := range routes {
			r.With(limit.Handler).HandleFunc(route.Pattern, handler(route))
		}
		return serve(t, r)
	}})
}

func handler(route httplimittest.Route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		route.Serve(&httplimittest.Call{
			Context: r.Context(),
			Write:   func(s string) { _, _ = io.WriteString(w, s) },
			Flush:   func() { _ = http.NewResponseController(w).Flush() },
		})
	}
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestRoute asks for the route wherever a middleware can stand.
func TestRoute(t *testing.T) {
	t.Parallel()
	var got []string
	note := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got = append(got, chilimit.Route(r))
			next.ServeHTTP(w, r)
		})
	}
	nothing := func(http.ResponseWriter, *http.Request) {}
	r := chi.NewRouter()
	r.Use(note)
	r.With(note).Get("/users/{id}", nothing)
	r.Get("/files/*", nothing)
	r.Route("/api/{version}", func(r chi.Router) {
		r.Use(note)
		r.With(note).Get("/things/{id}", nothing)
	})
	for path, want := range map[string][]string{
		"/users/17":         {"/users/{id}", "/users/{id}"},
		"/files/a/b":        {"/files/*"},
		"/api/v1/things/17": {"/api/{version}/things/{id}", "/api/{version}/things/{id}", "/api/{version}/things/{id}"},
		"/nothing":          {""},
	} {
		got = nil
		r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, http.NoBody))
		if len(got) != len(want) {
			t.Fatalf("%s: %q, want %q", path, got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: middleware %d sees %q, want %q", path, i, got[i], want[i])
			}
		}
	}
	if p := chilimit.Route(httptest.NewRequest(http.MethodGet, "/", http.NoBody)); p != "" {
		t.Errorf("without chi: %q, want none", p)
	}
}

// TestByRouteInFront shows one limit for all users' pages, from in front of the router.
func TestByRouteInFront(t *testing.T) {
	t.Parallel()
	key := chilimit.ByRoute()
	r := chi.NewRouter()
	r.Use(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			k, ok := key(r)
			if k != "/users/{id}" || !ok {
				t.Errorf("%s: key %q, %v", r.URL.Path, k, ok)
			}
			next.ServeHTTP(w, r)
		})
	})
	r.Get("/users/{id}", func(http.ResponseWriter, *http.Request) {})
	for _, path := range []string{"/users/1", "/users/2"} {
		r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, http.NoBody))
	}
}
