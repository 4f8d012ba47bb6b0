package api

// Attributes describe a request of somebody's, for the rules to choose policies and keys by. What
// is left out is empty.
type Attributes struct {
	Method  string            `json:"method,omitempty"`  // "GET"
	Path    string            `json:"path,omitempty"`    // "/v1/upload", without the query
	Host    string            `json:"host,omitempty"`    // "api.example.com"
	Route   string            `json:"route,omitempty"`   // what the caller's router calls it
	IP      string            `json:"ip,omitempty"`      // of the client: "192.0.2.7", "2001:db8::1"
	User    string            `json:"user,omitempty"`    // who is signed in
	Class   string            `json:"class,omitempty"`   // of the client's API key: "default", "privileged", "internal"
	Headers map[string]string `json:"headers,omitempty"` // by name, whose case does not matter
	Attrs   map[string]string `json:"attrs,omitempty"`   // anything else that rules ask for
}

// Applied is a policy that a rule applied to attributes.
type Applied struct {
	Rule     string `json:"rule"` // its name, or "#" and its position from 1 if it has none
	Policy   string `json:"policy"`
	Tenant   string `json:"tenant,omitempty"`
	Key      string `json:"key"`
	Bucket   *int   `json:"bucket,omitempty"`   // position among the buckets of the answer's limits; left out where it is not enforced
	Shadow   bool   `json:"shadow,omitempty"`   // evaluated, not enforced
	Disabled bool   `json:"disabled,omitempty"` // the policy is switched off
}

// How a shadow's answer differs from the one that was enforced.
const (
	DivergenceRefuse = "would_refuse" // enforced, it would have refused what was allowed
	DivergenceAllow  = "would_allow"  // it would have allowed what was refused
)

// Shadow is what a policy says that is evaluated with its own buckets, and not enforced.
type Shadow struct {
	Policy       string     `json:"policy"`
	Rule         string     `json:"rule,omitempty"`       // that applied it
	Allowed      bool       `json:"allowed"`              // what it would have answered
	Divergence   string     `json:"divergence,omitempty"` // how that differs from what was enforced; "": it does not
	RefusedBy    *LimitName `json:"refused_by,omitempty"`
	RetryAfterMS Millis     `json:"retry_after_ms"`
	Remaining    int64      `json:"remaining"`       // of its tightest limit
	Error        bool       `json:"error,omitempty"` // it was not evaluated: nothing else is known
}

// ExplainRequest asks what would apply to a take, and what is left there. Nothing is spent.
type ExplainRequest struct {
	Bucket
	Buckets    []Bucket    `json:"buckets,omitempty"`
	Attributes *Attributes `json:"attributes,omitempty"`
	Priority   int         `json:"priority,omitempty"`
}

// ExplainAnswer says what would apply to a take.
type ExplainAnswer struct {
	Allowed   bool          `json:"allowed"`             // what a take would get right now
	Exempt    bool          `json:"exempt,omitempty"`    // a rule exempts these attributes from all limits
	Unmatched bool          `json:"unmatched,omitempty"` // no rule applies a policy to these attributes
	Applied   []Explanation `json:"applied"`             // in the order of the rules
}

// Explanation is one policy that would apply, and the state of its bucket.
type Explanation struct {
	Applied
	Status *StatusAnswer `json:"status,omitempty"` // of its bucket, with the amounts that hold for this key
	Error  *Problem      `json:"error,omitempty"`  // why there is no status
}
