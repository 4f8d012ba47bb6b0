// Package rules says which policies count a request, and under which keys.
//
// A list of rules is compiled once by [Compile] and then matched against the [Attributes] of
// requests: method, path, host, route, address, user, class, headers, and whatever else a caller
// sends. What comes out is a list of policies with keys, to be taken as one.
//
// Rules are looked at in order. What every matching rule applies is collected; a policy that an
// earlier rule applied is not applied again by a later one, so the special rules come first. A rule
// that is Final or Exempt is the last.
//
// Finding the rules that match costs well below a microsecond, however many there are: their
// conditions are indexed. What the fields mean is in docs/rules.md.
package rules
