// Package httplimit is net/http middleware: it takes units of drawgate buckets for each request
// before the handler runs, and answers 429 where they are not granted.
//
//	lim, err := drawgate.New(memstore.New(nil), drawgate.PerMinute("api", 10), nil)
//	limit, err := httplimit.New([]httplimit.Bucket{{Limiter: lim, Key: httplimit.ByIP(nil)}}, nil)
//	http.ListenAndServe(":8080", limit.Handler(mux))
//
// Several buckets (one per IP address, one for the whole API) are one atomic take: a request that
// one of them refuses costs nothing in the others. Where a policy has a concurrency limit, units
// are held while the handler runs, and given back when it ends, however it ends.
//
// The parts can be used by themselves: [Proxies] finds the address of a client behind trusted
// proxies, [Headers] says a decision in X-RateLimit-*, RateLimit, RateLimit-Policy
// (draft-ietf-httpapi-ratelimit-headers-11) and Retry-After, [Problem] says a refusal in
// application/problem+json (RFC 9457). Adapters for gin, echo, fiber and chi are modules of their
// own, in folders of this one; they are made with [Middleware.Begin].
package httplimit
