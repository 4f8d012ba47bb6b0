package fiberlimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/gofiber/fiber/v3"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/httplimit/fiberlimit"
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
	byUser := httplimit.ByUser(func(r *http.Request) string {
		user, _ := fiberlimit.Context(r).Locals("user").(string)
		return strings.Clone(user) // fiber uses its strings again
	})
	limit, err := httplimit.New([]httplimit.Bucket{{Limiter: lim, Key: byUser}}, nil)
	if err != nil {
		panic(err)
	}
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error {
		c.Locals("user", c.Query("user"))
		return c.Next()
	}, fiberlimit.Middleware(limit))
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("hello") })
	for _, user := range []string{"anna", "anna", "anna", "ben"} {
		resp, err := app.Test(httptest.NewRequest(http.MethodGet, "/?user="+user, http.NoBody))
		if err != nil {
			panic(err)
		}
		_ = resp.Body.Close()
		fmt.Println(user, resp.StatusCode, resp.Header.Get("RateLimit"))
	}
	fmt.Println(fiberlimit.Context(httptest.NewRequest(http.MethodGet, "/", http.NoBody)) == nil)
	// Output:
	// anna 200 "api";r=1;t=3600
	// anna 200 "api";r=0;t=3600
	// anna 429 "api";r=0;t=3600
	// ben 200 "api";r=1;t=3600
	// true
}
