// Package rules determines which policies count a request, and under which keys.
//
// [Compile] compiles a list of rules once. The rules are then matched against the [Attributes] of
// requests: method, path, host, route, address, user, class, headers, and anything else that a
// caller sends. The result is a list of policies with keys, for a single take.
//
// Rules are evaluated in order, and what every matching rule applies is collected. A policy that an
// earlier rule applied is not applied again by a later one, so special rules come first. A rule
// that is Final or Exempt is the last.
//
// Finding the matching rules takes well below a microsecond, however many there are, because their
// conditions are indexed. docs/rules.md explains the fields.
package rules
