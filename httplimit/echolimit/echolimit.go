// Package echolimit adapts package httplimit to echo.
//
//	limit, err := httplimit.New([]httplimit.Bucket{{Limiter: lim, Key: httplimit.ByIP(nil)}}, nil)
//	e.Use(echolimit.Middleware(limit))
//
// [httplimit.ByRoute] counts by the pattern that echo matched, which is not known yet in e.Pre. Key
// and cost functions get the *echo.Context of a request with [Context].
package echolimit

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/drawgate/drawgate/httplimit"
)

// Middleware returns limit as middleware for echo. A refused request ends here, without an error
// for echo to handle. While units are held, the handler's request has a context that ends if they
// are lost.
func Middleware(limit *httplimit.Middleware) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			r := c.Request().WithContext(context.WithValue(c.Request().Context(), contextKey{}, c))
			r.Pattern = c.Path()
			p := limit.Begin(c.Response().Header(), r)
			if p.Problem != nil {
				limit.Refuse(c.Response(), r, p.Problem)
				return nil
			}
			if p.Held() {
				defer p.End()
				c.SetRequest(c.Request().WithContext(p.Context(r.Context())))
			}
			return next(c)
		}
	}
}

type contextKey struct{}

// Context returns the echo context of a request passed to a key or cost function; nil for any other
// request.
func Context(r *http.Request) *echo.Context {
	c, _ := r.Context().Value(contextKey{}).(*echo.Context)
	return c
}
