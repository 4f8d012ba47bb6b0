package ginlimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/httplimit/ginlimit"
	"github.com/drawgate/drawgate/store/memstore"
)

// Two requests an hour for each user whom a handler in front has found.
func Example() {
	store := memstore.New(nil)
	defer store.Close()
	lim, err := drawgate.New(store, drawgate.PerHour("api", 2), nil)
	if err != nil {
		panic(err)
	}
	byUser := httplimit.ByUser(func(r *http.Request) string { return ginlimit.Context(r).GetString("user") })
	limit, err := httplimit.New([]httplimit.Bucket{{Limiter: lim, Key: byUser}}, nil)
	if err != nil {
		panic(err)
	}
	engine := gin.New()
	engine.Use(func(c *gin.Context) { c.Set("user", c.Query("user")) }, ginlimit.Middleware(limit))
	engine.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
	for _, user := range []string{"anna", "anna", "anna", "ben"} {
		w := httptest.NewRecorder()
		engine.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?user="+user, http.NoBody))
		fmt.Println(user, w.Code, w.Header().Get("RateLimit"))
	}
	fmt.Println(ginlimit.Context(httptest.NewRequest(http.MethodGet, "/", http.NoBody)) == nil)
	// Output:
	// anna 200 "api";r=1;t=3600
	// anna 200 "api";r=0;t=3600
	// anna 429 "api";r=0;t=3600
	// ben 200 "api";r=1;t=3600
	// true
}
