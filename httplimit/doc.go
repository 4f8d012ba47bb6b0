// Package httplimit is net/http middleware. It takes units from drawgate buckets for each request
// before the handler runs, and answers 429 if they are not granted.
//
//	lim, err := drawgate.New(memstore.New(nil), drawgate.PerMinute("api", 10), nil)
//	limit, err := httplimit.New([]httplimit.Bucket{{Limiter: lim, Key: httplimit.ByIP(nil)}}, nil)
//	http.ListenAndServe(":8080", limit.Handler(mux))
//
// Several buckets (one per IP address, one for the whole API) are one atomic take: a request that
// one of them refuses costs nothing in the others. With a concurrency limit, units are held while
// the handler runs, and given back when it ends, even by a panic.
//
// The parts can be used separately: [Proxies] finds the address of a client behind trusted proxies,
// [Headers] writes a decision to X-RateLimit-*, RateLimit, RateLimit-Policy
// (draft-ietf-httpapi-ratelimit-headers-11) and Retry-After, [Problem] describes a refusal in
// application/problem+json (RFC 9457). Adapters for gin, echo, fiber and chi are separate modules,
// in folders of this one; they use [Middleware.Begin].
package httplimit
