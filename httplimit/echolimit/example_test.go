package echolimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v5"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/httplimit/echolimit"
	"github.com/drawgate/drawgate/store/memstore"
)

// Two requests an hour for each user whom a middleware in front has found.
func Example() {
	store := memstore.New(nil)
	defer store.Close()
	lim, err := drawgate.New(store, drawgate.PerHour("api", 2), nil)
	if err != nil {
		panic(err)
	}
	byUser := httplimit.ByUser(func(r *http.Request) string {
		user, _ := echolimit.Context(r).Get("user").(string)
		return user
	})
	limit, err := httplimit.New([]httplimit.Bucket{{Limiter: lim, Key: byUser}}, nil)
	if err != nil {
		panic(err)
	}
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Set("user", c.QueryParam("user"))
			return next(c)
		}
	}, echolimit.Middleware(limit))
	e.GET("/", func(c *echo.Context) error { return c.String(http.StatusOK, "hello") })
	for _, user := range []string{"anna", "anna", "anna", "ben"} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?user="+user, http.NoBody))
		fmt.Println(user, w.Code, w.Header().Get("RateLimit"))
	}
	fmt.Println(echolimit.Context(httptest.NewRequest(http.MethodGet, "/", http.NoBody)) == nil)
	// Output:
	// anna 200 "api";r=1;t=3600
	// anna 200 "api";r=0;t=3600
	// anna 429 "api";r=0;t=3600
	// ben 200 "api";r=1;t=3600
	// true
}
