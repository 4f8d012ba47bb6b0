package rules

import (
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
	Method  string     // "GET"
	Path    string     // decoded, without the query
	Host    string     // a port is ignored
	Route   string     // the pattern or name from a router
	IP      netip.Addr // of the client, as reported by trusted proxies
	User    string     // the authenticated user
	Class   string     // of the API key: "default", "privileged", "internal"
	Tenant  string     // the tenant that the caller is bound to, for example by an access token; it applies to rules that name no tenant; "": the server's own
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
	Path    string   // "/v1/items", "/v1/*" for everything that begins with "/v1/", "/v1/items/{id}" for any one segment
	Host    string   // "api.example.com", "*.example.com"; not case-sensitive
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
