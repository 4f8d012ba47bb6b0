package httplimit_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/httplimit/httplimittest"
)

// net/http keeps the promises of all adapters.
func TestMiddleware(t *testing.T) {
	t.Parallel()
	httplimittest.Run(t, httplimittest.Harness{Serve: serveMux})
}

// serveMux serves routes by a ServeMux, with the middleware behind it so that it knows the route.
func serveMux(t *testing.T, limit *httplimit.Middleware, routes []httplimittest.Route) string {
	t.Helper()
	mux := http.NewServeMux()
	for _, r := range routes {
		pattern := r.Pattern
		if pattern == "/" {
			pattern = "/{$}"
		}
		mux.Handle(pattern, limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			r.Serve(&httplimittest.Call{
				Context: req.Context(), Write: func(s string) { _, _ = w.Write([]byte(s)) },
				Flush: func() { _ = http.NewResponseController(w).Flush() },
			})
		})))
	}
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.ErrorLog = quiet
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL
}

// quiet is for servers whose handlers panic on purpose.
var quiet = log.New(io.Discard, "", 0)
