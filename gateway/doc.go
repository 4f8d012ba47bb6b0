// Package gateway is a reverse proxy in front of LLM providers that keeps all of its callers within
// the providers' quotas, and each caller within its own limits.
//
// Programs use it by changing their SDK's base URL, and give it a virtual key in place of the
// provider's: https://api.openai.com/v1 becomes http://gateway:7881/openai/v1. The first segment of
// the path names an [Upstream]; the rest, and the query, go there. The provider's own key never
// leaves the gateway. Signed tokens of a [TokenIssuer] are keys as well.
//
//	h, err := gateway.New(eng, gateway.Config{Upstreams: upstreams, Keys: keys}, nil)
//	err = h.Serve(ctx, listener)
//
// Callers name the provider's models, or an [Alias]: a name for a model, which the gateway puts in
// its place.
//
// What a call may cost is taken in one step from the upstream's quota, which is a policy by the
// call's model, and from whatever the engine's rules apply to the caller: its key, its team, its
// user. All of them grant it, or nothing is spent. Package outbound says how a call is held, made
// and settled.
//
// A call that does not fit goes down a ladder, as far as its [Model] is configured for it: an exact
// answer from the cache, an answer from the cache that is too old, another model, the queue, and
// last a refusal in the provider's own form that says when to come back. Headers of the answer say
// which of these it was.
package gateway
