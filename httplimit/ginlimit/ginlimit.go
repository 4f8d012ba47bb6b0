// Package ginlimit adapts package httplimit to gin.
//
//	limit, err := httplimit.New([]httplimit.Bucket{{Limiter: lim, Key: httplimit.ByIP(nil)}}, nil)
//	engine.Use(ginlimit.Middleware(limit))
//
// [httplimit.ByRoute] counts by the pattern that gin matched. Key and cost functions get the
// *gin.Context of a request with [Context].
package ginlimit

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/drawgate/drawgate/httplimit"
)

// Middleware returns limit as a gin handler. A refused request ends here. While units are held, the
// handlers' request has a context that ends if they are lost.
func Middleware(limit *httplimit.Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		r := c.Request.WithContext(context.WithValue(c.Request.Context(), contextKey{}, c))
		r.Pattern = c.FullPath()
		p := limit.Begin(c.Writer.Header(), r)
		if p.Problem != nil {
			c.Abort()
			limit.Refuse(c.Writer, r, p.Problem)
			return
		}
		if p.Held() {
			defer p.End()
			c.Request = c.Request.WithContext(p.Context(r.Context()))
		}
		c.Next()
	}
}

type contextKey struct{}

// Context returns the gin context of a request passed to a key or cost function; nil for any other
// request.
func Context(r *http.Request) *gin.Context {
	c, _ := r.Context().Value(contextKey{}).(*gin.Context)
	return c
}
