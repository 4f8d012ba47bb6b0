package rules

import (
	"net/http"
	"net/netip"
)

// Bounds of what rules may say.
const (
	MaxRules   = 10_000
	MaxApply   = 8    // policies that one rule applies
	MaxSource  = 4096 // bytes of an expression
	MaxNodes   = 200  // nodes of an expression's tree
	MaxPattern = 1024 // bytes of a path, a value, a name
)

// Attributes are what is known of a request. A field that is not known stays empty: rules that ask
// for it do not match. Nothing is changed or kept.
type Attributes struct {
	Method  string     // "GET"
	Path    string     // decoded, without the query
	Host    string     // a port is not looked at
	Route   string     // the pattern or name that a router found
	IP      netip.Addr // of the client, as trusted proxies tell it
	User    string     // who is authenticated
	Class   string     // of the API key: "default", "privileged", "internal"
	Tenant  string     // to which the caller is bound, as by an access token: of what is applied by rules that name no other; "": the door's own
	Headers http.Header
	Extra   map[string]string // whatever else the caller sends
}

// Rule says what is applied to the requests that it matches. All of Match, When and Schedule must
// hold; what is empty always does.
type Rule struct {
	Name     string    // for errors and answers; may be empty
	Match    Match     // indexed
	When     string    // an expression that is true or false
	Schedule *Schedule // nil: always
	Tenant   string    // an expression whose value is the tenant; none, or an empty value: the caller's own
	Apply    []Apply   // at most MaxApply
	Exempt   bool      // nothing is applied, of this rule or later ones
	Final    bool      // later rules are not looked at
	Shadow   bool      // what it applies is evaluated and never enforced; Final then ends the shadows alone
}

// Match is a rule's conditions on single attributes. All that are given must hold.
//
// A value is exact, or "prefix*" for whatever begins so, or "*" for whatever is not empty. Of a
// header the first value is looked at.
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
	// Key is an expression that says who is counted: ip, user, path, hash(header("X-Api-Key")),
	// attr("team"), join(user, route), or "global" for one bucket for all. If an attribute is
	// missing, the key is empty: all who lack it are counted together.
	Key     string
	Amounts map[string]int64 // per limit (and "limit.burst"): its amount for this use; the bucket stays the same
	Costs   map[string]int64 // per unit; without any it is one request
	Shadow  bool             // evaluated, never enforced
}
