// Package httplimittest is what every adapter of package httplimit promises, as a suite: the same
// table for net/http and for each framework. An adapter passes it if its answers cannot be told
// from those of any other.
package httplimittest

import (
	"context"
	"testing"

	"github.com/drawgate/drawgate/httplimit"
)

// Harness is what an adapter provides to be tested.
type Harness struct {
	// Serve starts a server of the framework on a loopback address, with routes behind limit, and
	// returns its URL. It ends with t. The middleware must know the route ("/things/{id}", in the
	// framework's own form) when it decides. A panic in a route must not end the server.
	Serve func(t *testing.T, limit *httplimit.Middleware, routes []Route) (url string)
	// Deaf says that the framework does not tell a handler that its client has gone.
	Deaf bool
}

// Route is a page of the program behind the middleware, in words that every framework has.
type Route struct {
	Pattern string // a path, perhaps with one {name} in it
	Serve   func(c *Call)
	Streams bool // it sends its answer in parts
}

// Call is a request that reached its handler.
type Call struct {
	Context context.Context //nolint:containedctx // the handler's, which lives as long as the call
	Write   func(text string)
	Flush   func() // sends what was written; only if Route.Streams
}

type testCase struct {
	name    string
	promise string
	run     func(e *env)
}

// env is what a case runs with.
type env struct {
	t *testing.T
	h Harness
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			t.Log(c.promise)
			c.run(&env{t, h})
		})
	}
}

var cases = []testCase{
	{"headers on success", "a request that passes says what is left, in X-RateLimit-* and in RateLimit", testSuccess},
	{"refusal", "429 with Retry-After in seconds and a problem that says why; the handler does not run", testRefusal},
	{
		"per IP, then global",
		"one take of both buckets; the message says whose limit was hit, the headers describe the caller's own",
		testOwnThenShared,
	},
	{"a refusal costs nothing", "what one bucket refuses is not taken from the other", testRefusalCostsNothing},
	{"HEAD", "a refusal of a HEAD request has the headers, and no body", testHead},
	{"exempt", "exempt paths are not counted and say nothing", testExempt},
	{"never fits", "a request that can never pass is 413 without Retry-After", testNeverFits},
	{
		"store unavailable", "503 and Retry-After if it fails closed; passed and marked if it fails open",
		testStoreUnavailable,
	},
	{"fallback", "a decision without the store is marked", testFallback},
	{"route", "a key can be the pattern that the router matched", testRoute},
	{"proxies", "the client is found from the right of the header, behind trusted proxies only", testProxies},
	{"spoofed", "headers are not believed without trusted proxies", testSpoofed},
	{"waits", "a request that does not pass waits, if it may, and then passes", testWaits},
	{
		"waits in vain", "a request that cannot pass in time is refused at once, or when its waiting time has run out",
		testWaitsInVain,
	},
	{"queue full", "no more requests wait than may", testQueueFull},
	{"gives up its place", "a client that leaves does not wait any longer", testGivesUp},
	{"slots", "as many requests are under way as may be, and a slot becomes free when its handler ends", testSlots},
	{"panic", "a handler that panics gives its slot back", testPanic},
	{"client gone", "a slot becomes free when the handler of a client that left ends", testClientGone},
	{"long answers", "a slot is held for as long as the handler runs, however short the hold", testLong},
	{"lost hold", "a handler whose slot may be another's is told to stop", testLost},
	{"own refusals", "a program may write refusals in its own way", testOwnRefusal},
}
