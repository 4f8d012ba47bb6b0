package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/store/memstore"
)

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })

// show sends a request from an address to a handler, and prints its answer.
func show(h http.Handler, path, remote string, headers ...string) {
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	r.RemoteAddr = remote
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("RateLimit"))
}

// Two requests an hour per client.
func Example() {
	store := memstore.New(nil)
	defer store.Close()
	lim, err := drawgate.New(store, drawgate.PerHour("api", 2), nil)
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.New([]httplimit.Bucket{{Limiter: lim, Key: httplimit.ByIP(nil)}}, nil)
	if err != nil {
		panic(err)
	}
	h := limit.Handler(hello)
	for range 3 {
		show(h, "/", "192.0.2.1:1234")
	}
	show(h, "/", "192.0.2.2:1234")
	// Output:
	// 200 "api";r=1;t=3600
	// 200 "api";r=0;t=3600
	// 429 "api";r=0;t=3600
	// 200 "api";r=1;t=3600
}

// An allowance for each client, and one for all of them together. Both are taken, or neither.
func Example_perClientThenGlobal() {
	store := memstore.New(nil)
	defer store.Close()
	perIP, err := drawgate.New(store, drawgate.Policy{Name: "per-ip", Limits: []drawgate.Limit{
		drawgate.BucketLimit("rate", 10, time.Hour, 2),
	}}, nil)
	if err != nil {
		panic(err)
	}
	api, err := perIP.With(drawgate.Policy{Name: "api", Limits: []drawgate.Limit{
		drawgate.BucketLimit("rate", 100, time.Hour, 3),
	}})
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.New([]httplimit.Bucket{
		{Limiter: perIP, Key: httplimit.ByIP(nil)},
		{Limiter: api, Key: httplimit.Fixed("global"), Shared: true}, // headers do not tell how busy the others are
	}, &httplimit.Options{
		Exempt: []string{"/health*"},
		Refuse: func(w http.ResponseWriter, _ *http.Request, p *httplimit.Problem) {
			fmt.Println(p.Scope, "·", p.Detail)
			w.WriteHeader(p.Status)
		},
	})
	if err != nil {
		panic(err)
	}
	h := limit.Handler(hello)
	for range 3 {
		show(h, "/", "192.0.2.1:1234")
	}
	show(h, "/", "192.0.2.2:1234")
	show(h, "/", "192.0.2.2:1234")
	show(h, "/health", "192.0.2.1:1234")
	// Output:
	// 200 "per-ip";r=1;t=360
	// 200 "per-ip";r=0;t=360
	// caller · Your limit has been reached: 10 requests per hour, and at most 2 in a burst. Try again in 360 s.
	// 429 "per-ip";r=0;t=360
	// 200 "per-ip";r=1;t=360
	// api · The limit that all callers of this API share has been reached; it is not your own. Try again in 36 s.
	// 429 "per-ip";r=1;t=36
	// 200
}

// At most one request of a user at a time. The slot is free again when the handler returns.
func Example_concurrency() {
	store := memstore.New(nil)
	defer store.Close()
	lim, err := drawgate.New(store, drawgate.Policy{
		Name:   "at-once",
		Limits: []drawgate.Limit{drawgate.ConcurrencyLimit("slots", 1)},
	}, nil)
	if err != nil {
		panic(err)
	}
	user := func(r *http.Request) string { return r.Header.Get("User") } // what authentication middleware has found
	limit, err := httplimit.New([]httplimit.Bucket{{Limiter: lim, Key: httplimit.ByUser(user)}}, nil)
	if err != nil {
		panic(err)
	}
	var h http.Handler
	h = limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/outer" {
			show(h, "/inner", "", "User", "anna") // while this one is under way
			show(h, "/inner", "", "User", "ben")
		}
	}))
	show(h, "/outer", "", "User", "anna")
	show(h, "/inner", "", "User", "anna")
	// Output:
	// 429 "at-once";r=0
	// 200 "at-once";r=0
	// 200 "at-once";r=0
	// 200 "at-once";r=0
}

// A request that does not pass waits for its turn instead of being refused.
func Example_waiting() {
	store := memstore.New(nil)
	defer store.Close()
	lim, err := drawgate.New(store, drawgate.Rate("api", 10, time.Second, 1), nil)
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.New([]httplimit.Bucket{{Limiter: lim}},
		&httplimit.Options{Wait: 10 * time.Second, Queue: 100})
	if err != nil {
		panic(err)
	}
	h, start := limit.Handler(hello), time.Now()
	for range 3 {
		show(h, "/", "192.0.2.1:1234")
	}
	fmt.Println("waited:", time.Since(start) > 150*time.Millisecond)
	// Output:
	// 200 "api";r=0;t=1
	// 200 "api";r=0;t=1
	// 200 "api";r=0;t=1
	// waited: true
}

// Requests cost what their handlers will need: here, one unit per item asked for.
func Example_costs() {
	store := memstore.New(nil)
	defer store.Close()
	lim, err := drawgate.New(store, drawgate.Policy{Name: "items", Limits: []drawgate.Limit{
		drawgate.RollingLimit("per-hour", 100, time.Hour).Of("items"),
	}}, nil)
	if err != nil {
		panic(err)
	}
	costs := func(r *http.Request) []drawgate.Cost {
		var n int64
		if _, err := fmt.Sscan(r.URL.Query().Get("n"), &n); err != nil || n < 1 {
			n = 1
		}
		return []drawgate.Cost{{Unit: "items", N: min(n, 1000)}}
	}
	limit, err := httplimit.New([]httplimit.Bucket{{Limiter: lim, Costs: costs}}, nil)
	if err != nil {
		panic(err)
	}
	h := limit.Handler(hello)
	show(h, "/?n=60", "192.0.2.1:1234")
	show(h, "/?n=60", "192.0.2.1:1234")
	show(h, "/?n=40", "192.0.2.1:1234")
	show(h, "/?n=101", "192.0.2.1:1234") // more than there ever is
	// Output:
	// 200 "items";r=40;t=3600
	// 429 "items";r=40;t=3600
	// 200 "items";r=0;t=3600
	// 413 "items";r=0;t=3600
}

// Privileged API keys have a limit of their own, and one route has a tighter one for everybody.
// Keys are secrets: what is stored is a hash.
func ExampleWhen() {
	store := memstore.New(nil)
	defer store.Close()
	usual, err := drawgate.New(store, drawgate.Policy{
		Name:   "usual",
		Limits: []drawgate.Limit{drawgate.RollingLimit("rate", 2, time.Hour)},
	}, nil)
	if err != nil {
		panic(err)
	}
	gold, err := usual.With(drawgate.Policy{Name: "gold", Limits: []drawgate.Limit{drawgate.RollingLimit("rate", 1000,
		time.Hour)}})
	if err != nil {
		panic(err)
	}
	export, err := usual.With(drawgate.Policy{
		Name:   "export",
		Limits: []drawgate.Limit{drawgate.RollingLimit("rate", 1, time.Hour)},
	})
	if err != nil {
		panic(err)
	}
	isGold := func(r *http.Request) bool { return r.Header.Get("X-API-Key") == "gold" }
	byKey := httplimit.Hashed(httplimit.ByHeader("X-API-Key"))
	limit, err := httplimit.New([]httplimit.Bucket{
		{Limiter: usual, Key: httplimit.When(func(r *http.Request) bool { return !isGold(r) }, byKey)},
		{Limiter: gold, Key: httplimit.When(isGold, byKey)},
		{Limiter: export, Key: httplimit.When(func(r *http.Request) bool { return r.URL.Path == "/export" }, byKey)},
	}, nil)
	if err != nil {
		panic(err)
	}
	h := limit.Handler(hello)
	show(h, "/", "", "X-API-Key", "plain")
	show(h, "/", "", "X-API-Key", "gold")
	show(h, "/export", "", "X-API-Key", "gold")
	show(h, "/export", "", "X-API-Key", "gold")
	// Output:
	// 200 "usual";r=1;t=3600
	// 200 "gold";r=999;t=3600
	// 200 "gold";r=998;t=3600, "export";r=0;t=3600
	// 429 "gold";r=998;t=3600, "export";r=0;t=3600
}

// One bucket per client and route: behind the router, whose pattern is known there.
func ExampleJoin() {
	store := memstore.New(nil)
	defer store.Close()
	lim, err := drawgate.New(store, drawgate.PerHour("api", 1), nil)
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.New([]httplimit.Bucket{{
		Limiter: lim,
		Key:     httplimit.Join(httplimit.ByIP(nil), httplimit.ByRoute()),
	}}, nil)
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/users/{id}", limit.Handler(hello))
	mux.Handle("/things/{id}", limit.Handler(hello))
	show(mux, "/users/1", "192.0.2.1:1234")
	show(mux, "/users/2", "192.0.2.1:1234")
	show(mux, "/things/1", "192.0.2.1:1234")
	// Output:
	// 200 "api";r=0;t=3600
	// 429 "api";r=0;t=3600
	// 200 "api";r=0;t=3600
}

// Behind a load balancer with addresses in 10.0.0.0/8.
func ExampleProxies_ClientIP() {
	proxies, err := httplimit.NewProxies([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, nil)
	if err != nil {
		panic(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.RemoteAddr = "10.0.0.1:1234"
	r.Header.Set("X-Forwarded-For", "1.1.1.1, 203.0.113.7, 10.0.0.9") // the client wrote the first one itself
	fmt.Println(proxies.ClientIP(r))
	r.RemoteAddr = "198.51.100.1:1234" // somebody who is no proxy
	fmt.Println(proxies.ClientIP(r))
	// Output:
	// 203.0.113.7
	// 198.51.100.1
}

// What a program that decides by itself tells its callers.
func ExampleHeaders_Append() {
	store := memstore.New(nil)
	defer store.Close()
	lim, err := drawgate.New(store, drawgate.PerHour("api", 1), nil)
	if err != nil {
		panic(err)
	}
	headers := httplimit.NewHeaders(&httplimit.HeaderOptions{Fields: httplimit.RateLimit})
	for range 2 {
		d, err := lim.Allow(context.Background(), "somebody")
		if err != nil {
			panic(err)
		}
		h := http.Header{}
		headers.Append(h, &d)
		fmt.Println(d.Allowed, h)
	}
	// Output:
	// true map[Ratelimit:["api";r=0;t=3600] Ratelimit-Policy:["api";q=1;w=3600]]
	// false map[Ratelimit:["api";r=0;t=3600] Ratelimit-Policy:["api";q=1;w=3600] Retry-After:[3600]]
}
