package api

// Attributes describe a request, for the rules to choose policies and keys. Missing fields are
// empty.
type Attributes struct {
	Method  string            `json:"method,omitempty"`  // "GET"
	Path    string            `json:"path,omitempty"`    // "/v1/upload", without the query
	Host    string            `json:"host,omitempty"`    // "api.example.com"
	Route   string            `json:"route,omitempty"`   // the route's name in the caller's router
	IP      string            `json:"ip,omitempty"`      // of the client: "192.0.2.7", "2001:db8::1"
	User    string            `json:"user,omitempty"`    // who is signed in
	Class   string            `json:"class,omitempty"`   // of the client's API key: "default", "privileged", "internal"
	Headers map[string]string `json:"headers,omitempty"` // by name, which is not case-sensitive
	Attrs   map[string]string `json:"attrs,omitempty"`   // anything else that rules use
}

// Applied is a policy that a rule applied to attributes.
type Applied struct {
	Rule   string `json:"rule"` // its name, or "#" and its position from 1 if it has none
	Policy string `json:"policy"`
	Tenant string `json:"tenant,omitempty"`
	Key    string `json:"key"`
	// position among the buckets of the answer's limits; missing if it is not enforced
	Bucket   *int `json:"bucket,omitempty"`
	Shadow   bool `json:"shadow,omitempty"`   // evaluated, not enforced
	Disabled bool `json:"disabled,omitempty"` // the policy is switched off
}

// How a shadow's answer differs from the enforced one.
const (
	DivergenceRefuse = "would_refuse" // it would have refused what was allowed
	DivergenceAllow  = "would_allow"  // it would have allowed what was refused
)

// Shadow is the answer of a policy that is evaluated with its own buckets, but not enforced.
type Shadow struct {
	Policy       string     `json:"policy"`
	Rule         string     `json:"rule,omitempty"`       // the rule that applied it
	Allowed      bool       `json:"allowed"`              // what it would have answered
	Divergence   string     `json:"divergence,omitempty"` // how that differs from what was enforced; "" if it does not
	RefusedBy    *LimitName `json:"refused_by,omitempty"`
	RetryAfterMS Millis     `json:"retry_after_ms"`
	Remaining    int64      `json:"remaining"`       // of its tightest limit
	Error        bool       `json:"error,omitempty"` // it was not evaluated: the other fields are not set
}

// ExplainRequest asks what would apply to a take, and what is left there. Nothing is spent.
type ExplainRequest struct {
	Bucket
	Buckets    []Bucket    `json:"buckets,omitempty"`
	Attributes *Attributes `json:"attributes,omitempty"`
	Priority   int         `json:"priority,omitempty"`
}

// ExplainAnswer lists what would apply to a take.
type ExplainAnswer struct {
	Allowed   bool          `json:"allowed"`             // what a take would get right now
	Exempt    bool          `json:"exempt,omitempty"`    // a rule exempts these attributes from all limits
	Unmatched bool          `json:"unmatched,omitempty"` // no rule applies a policy to these attributes
	Applied   []Explanation `json:"applied"`             // in the order of the rules
}

// Explanation is one policy that would apply, and the state of its bucket.
type Explanation struct {
	Applied
	Status *StatusAnswer `json:"status,omitempty"` // of its bucket, with the amounts for this key
	Error  *Problem      `json:"error,omitempty"`  // why there is no status
}
