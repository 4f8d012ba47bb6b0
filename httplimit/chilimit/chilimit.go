// Package chilimit counts requests by chi's routes, for package httplimit. The middleware itself
// needs no adapter: r.Use(limit.Handler).
package chilimit

import (
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/drawgate/drawgate/httplimit"
)

// ByRoute counts by the pattern of the route with which chi serves r: see [Route].
func ByRoute() httplimit.Key {
	return func(r *http.Request) (string, bool) { return Route(r), true }
}

// Route returns the complete pattern of the route with which chi serves r, such as /users/{id},
// including sub-routers; "" if there is none. In a middleware in front of all routes
// ([chi.Router.Use]) chi has not found the route yet: then Route looks it up.
func Route(r *http.Request) string {
	c := chi.RouteContext(r.Context())
	if c == nil {
		return ""
	}
	if p := c.RoutePattern(); p != "" && !strings.HasSuffix(p, "*") {
		return p
	}
	if c.Routes == nil { // sub-routers, and middlewares inside them, come later
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
