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
	Provider string  `json:"provider"`        // openai, anthropic or gemini
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
	Circuit      string `json:"circuit"`
	RetryAfterMS Millis `json:"retry_after_ms"` // while the circuit is open: until a call may try
	UnderWay     int    `json:"under_way"`      // calls that hold units
	Waiting      int    `json:"waiting"`        // calls that are not granted yet
}

// Quota is the bucket that counts some models of an upstream.
type Quota struct {
	Policy string        `json:"policy"`
	Models []string      `json:"models"`           // as the configuration names them: exact, or a prefix with * at the end
	Status *StatusAnswer `json:"status,omitempty"` // what is used and what is left
	Error  *Problem      `json:"error,omitempty"`  // in place of Status: why that is not known
}
