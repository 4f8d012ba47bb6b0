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

import (
	"fmt"
	"net/http"
	"net/netip"
)

// Bounds on rules.
const (
	MaxRules   = 10_000
	MaxApply   = 8    // policies of one rule
	MaxSource  = 4096 // bytes of an expression
	MaxNodes   = 200  // nodes of an expression's tree
	MaxPattern = 1024 // bytes of a path, a value, a name
)

// Attributes describe a request. Unknown fields stay empty: rules that use them do not match.
// Nothing is changed or kept.
type Attributes struct {
	Method string     // "GET"
	Path   string     // decoded, without the query
	Host   string     // a port is ignored
	Route  string     // the pattern or name from a router
	IP     netip.Addr // of the client, as reported by trusted proxies
	User   string     // the authenticated user
	Class  string     // of the API key: "default", "privileged", "internal"
	// the tenant that the caller is bound to, for example by an access token; it applies to rules
	// that name no tenant; "": the server's own
	Tenant  string
	Headers http.Header
	Extra   map[string]string // anything else that the caller sends
}

// Rule says what is applied to the requests that it matches. All of Match, When and Schedule must
// hold; empty ones always do.
type Rule struct {
	Name     string    // for errors and answers; may be empty
	Match    Match     // indexed
	When     string    // an expression that is true or false
	Schedule *Schedule // nil: always
	Tenant   string    // an expression that yields the tenant; without one, or if it is empty: the caller's own
	Apply    []Apply   // at most MaxApply
	Exempt   bool      // nothing is applied, by this rule or later ones
	Final    bool      // later rules are not evaluated
	Shadow   bool      // what it applies is evaluated but not enforced; Final then ends only the shadows
}

// Match is a rule's conditions on single attributes. All that are given must hold.
//
// A value is exact, or "prefix*" for anything that begins with the prefix, or "*" for anything that
// is not empty. For a header, the first value is used.
type Match struct {
	Methods []string // one of these; not case-sensitive
	// "/v1/items", "/v1/*" for everything that begins with "/v1/", "/v1/items/{id}" for any one
	// segment
	Path    string
	Host    string // "api.example.com", "*.example.com"; not case-sensitive
	Route   string
	User    string
	Class   string
	IPs     []netip.Prefix    // in one of these
	Headers map[string]string // names are not case-sensitive
	Attrs   map[string]string // of Attributes.Extra
}

// Apply is one policy that a rule applies.
type Apply struct {
	Policy string
	// Key is an expression that determines who is counted: ip, user, path,
	// hash(header("X-Api-Key")), attr("team"), join(user, route), or "global" for one bucket for
	// all. If an attribute is missing, the key is empty: all requests without it are counted
	// together.
	Key     string
	Amounts map[string]int64 // per limit (and "limit.burst"): its amount for this rule; the bucket stays the same
	Costs   map[string]int64 // per unit; none means one request
	Shadow  bool             // evaluated but not enforced
}

// Error is a mistake in a rule, or an error in its evaluation. It never shows the value of an
// attribute.
type Error struct {
	Rule  int    // position in the list
	Name  string // of the rule; may be empty
	Field string // "match.path", "when", "apply[0].key"
	Err   error
}

func (e *Error) Error() string {
	name := ""
	if e.Name != "" {
		name = fmt.Sprintf(" (%q)", e.Name)
	}
	return fmt.Sprintf("rules: rule %d%s: %s: %v", e.Rule+1, name, e.Field, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }
