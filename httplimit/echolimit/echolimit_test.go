package echolimit_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/httplimit/echolimit"
	"github.com/drawgate/drawgate/httplimit/httplimittest"
)

// TestEcho holds echo against what every adapter promises.
func TestEcho(t *testing.T) {
	t.Parallel()
	httplimittest.Run(t, httplimittest.Harness{Serve: serve})
}

func serve(t *testing.T, limit *httplimit.Middleware, routes []httplimittest.Route) string {
	t.Helper()
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	e.Use(middleware.Recover(), echolimit.Middleware(limit))
	for _, r := range routes {
		e.Any(strings.NewReplacer("{", ":", "}", "").Replace(r.Pattern), func(c *echo.Context) error {
			w := c.Response()
			r.Serve(&httplimittest.Call{
				Context: c.Request().Context(),
				Write:   func(s string) { _, _ = io.WriteString(w, s) },
				Flush:   func() { _ = http.NewResponseController(w).Flush() },
			})
			return nil
		})
	}
	srv := httptest.NewServer(e)
	t.Cleanup(srv.Close)
	return srv.URL
}
