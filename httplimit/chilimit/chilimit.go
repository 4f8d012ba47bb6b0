// Package chilimit counts requests by the routes of chi, for package httplimit. Its middleware
// needs no adapter: r.Use(limit.Handler).
package chilimit

import (
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/drawgate/drawgate/httplimit"
)

// ByRoute counts by the pattern of the route that chi serves r with: see [Route].
func ByRoute() httplimit.Key {
	return func(r *http.Request) (string, bool) { return Route(r), true }
}

// Route returns the whole pattern of the route that chi serves r with, such as /users/{id},
// sub-routers included; "" if there is none. It may be asked before chi has found the route, in a
// middleware that stands in front of all routes ([chi.Router.Use]): then it looks for it.
func Route(r *http.Request) string {
	c := chi.RouteContext(r.Context())
	if c == nil {
		return ""
	}
	if p := c.RoutePattern(); p != "" && !strings.HasSuffix(p, "*") {
		return p
	}
	if c.Routes == nil { // sub-routers and middlewares behind them are still to come
		return ""
	}
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	if path == "" {
		path = "/"
	}
	return c.Routes.Find(chi.NewRouteContext(), r.Method, path)
}
