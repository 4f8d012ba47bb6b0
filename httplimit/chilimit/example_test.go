package chilimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/go-chi/chi/v5"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/httplimit/chilimit"
	"github.com/drawgate/drawgate/store/memstore"
)

// Two requests an hour for each route, from in front of all of them.
func Example() {
	store := memstore.New(nil)
	defer store.Close()
	lim, err := drawgate.New(store, drawgate.PerHour("api", 2), nil)
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.New([]httplimit.Bucket{{Limiter: lim, Key: chilimit.ByRoute()}}, nil)
	if err != nil {
		panic(err)
	}
	r := chi.NewRouter()
	r.Use(limit.Handler)
	r.Get("/users/{id}", func(http.ResponseWriter, *http.Request) {})
	r.Get("/things/{id}", func(http.ResponseWriter, *http.Request) {})
	for _, path := range []string{"/users/1", "/users/2", "/users/3", "/things/1"} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		fmt.Println(path, w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// /users/1 200 "api";r=1;t=3600
	// /users/2 200 "api";r=0;t=3600
	// /users/3 429 "api";r=0;t=3600
	// /things/1 200 "api";r=1;t=3600
}
