// Package rls is Envoy's rate limit service, version 3, over an engine.
//
// A [Service] answers ShouldRateLimit. All descriptors of a request are one take: if one is
// refused, none is spent. Descriptors of a domain that a [Config] knows, files in the format of
// envoyproxy/ratelimit, are matched by its trees; those of other domains are attributes for the
// engine's rules. docs/envoy.md says what is the same as in envoyproxy/ratelimit and what differs.
package rls
