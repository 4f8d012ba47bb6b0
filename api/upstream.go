package api

// MaxQuotas is the largest number of quotas in an answer whose buckets are read.
const MaxQuotas = 1000

// UpstreamsAnswer lists the upstreams of a gateway, in the order of its configuration.
type UpstreamsAnswer struct {
	Upstreams []Upstream `json:"upstreams"`
}

// Upstream describes one account of a provider that the gateway makes calls to.
type Upstream struct {
	Name     string  `json:"name"`
	Provider string  `json:"provider"`        // the name of its profile, such as openai
	Owner    string  `json:"owner"`           // the key of its quotas' buckets
	Calls    *Calls  `json:"calls,omitempty"` // of the process that answers; absent if that is no gateway
	Quotas   []Quota `json:"quotas"`          // one for each policy, in the order of the models
}

// The states of an upstream's circuit.
const (
	CircuitClosed   = "closed"    // calls are made
	CircuitOpen     = "open"      // calls failed: none is made
	CircuitHalfOpen = "half-open" // one call at a time tries
)

// Calls says what one process does with an upstream. Other processes have circuits of their own.
type Calls struct {
	// of the connections and the models: the one that is open longest
	Circuit      string    `json:"circuit"`
	RetryAfterMS Millis    `json:"retry_after_ms"`     // while that is open: until a call may try
	Circuits     []Circuit `json:"circuits,omitempty"` // all that are not closed, also of single callers
	UnderWay     int       `json:"under_way"`          // calls that hold units
	Waiting      int       `json:"waiting"`            // calls that are not granted yet
}

// Circuit is a circuit that is not closed: calls of a model fail, or no connection can be made.
type Circuit struct {
	Model string `json:"model,omitempty"` // absent: no connection to the upstream can be made
	// "key NAME" or "team NAME": only their calls fail; absent: everybody's
	Caller       string `json:"caller,omitempty"`
	State        string `json:"state"`          // open or half-open
	RetryAfterMS Millis `json:"retry_after_ms"` // while it is open: until a call may try
}

// Quota is the bucket that counts some models of an upstream.
type Quota struct {
	Policy string `json:"policy"`
	// as the configuration names them: exact, or a prefix with * at the end
	Models []string      `json:"models"`
	Status *StatusAnswer `json:"status,omitempty"` // what is used and what is left
	Error  *Problem      `json:"error,omitempty"`  // in place of Status: why that is not known
}
