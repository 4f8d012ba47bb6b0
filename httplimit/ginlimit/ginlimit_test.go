package ginlimit_test

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/httplimit/ginlimit"
	"github.com/drawgate/drawgate/httplimit/httplimittest"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	m.Run()
}

// TestGin holds gin against what every adapter promises.
func TestGin(t *testing.T) {
	t.Parallel()
	httplimittest.Run(t, httplimittest.Harness{Serve: serve})
}

func serve(t *testing.T, limit *httplimit.Middleware, routes []httplimittest.Route) string {
	t.Helper()
	engine := gin.New()
	engine.Use(gin.RecoveryWithWriter(io.Discard), ginlimit.Middleware(limit))
	for _, r := range routes {
		engine.Any(strings.NewReplacer("{", ":", "}", "").Replace(r.Pattern), func(c *gin.Context) {
			r.Serve(&httplimittest.Call{
				Context: c.Request.Context(),
				Write:   func(s string) { _, _ = c.Writer.WriteString(s) }, Flush: c.Writer.Flush,
			})
		})
	}
	srv := httptest.NewServer(engine)
	t.Cleanup(srv.Close)
	return srv.URL
}
