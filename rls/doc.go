// Package rls implements Envoy's rate limit service, version 3, with an engine.
//
// A [Service] answers ShouldRateLimit. All descriptors of a request are one take: if one is
// refused, none is spent. Descriptors of a domain in a [Config], which is read from files in the
// format of envoyproxy/ratelimit, are matched by its trees; those of other domains are attributes
// for the engine's rules. docs/envoy.md lists what is the same as in envoyproxy/ratelimit and what
// differs.
package rls
