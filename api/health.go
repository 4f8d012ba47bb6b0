package api

// Status is the state of a process, its store or a policy.
type Status string

// The states.
const (
	StatusOK Status = "ok"
	// the store is unavailable; fallbacks decide: of a process, about some policies at least.
	StatusDegraded    Status = "degraded"
	StatusUnavailable Status = "unavailable" // nothing can be decided
	StatusDisabled    Status = "disabled"    // a policy: switched off
)

// Health answers /healthz and /readyz.
type Health struct {
	Status   Status         `json:"status"` // ok, degraded or unavailable
	Store    *StoreHealth   `json:"store,omitempty"`
	Policies []string       `json:"policies,omitempty"` // names
	States   []PolicyHealth `json:"states,omitempty"`   // one per policy
	Waiting  int64          `json:"waiting"`            // takes that are waiting in this process
	UptimeMS int64          `json:"uptime_ms"`          // of this process
}

// StoreHealth says whether the store can decide. The server's log says why not.
type StoreHealth struct {
	Status    Status `json:"status"` // ok or unavailable
	LatencyMS int64  `json:"latency_ms"`
}

// PolicyHealth says how a policy is decided right now.
type PolicyHealth struct {
	Name string `json:"name"`
	// ok: by the store; degraded: by its fallback; unavailable: not at all; disabled
	Status   Status `json:"status"`
	Fallback string `json:"fallback,omitempty"` // what decides during an outage: closed, share, open; missing: nothing
	Shadow   bool   `json:"shadow,omitempty"`

	// NotApplied are the limits that are open during an outage, if others are not.
	NotApplied []string `json:"not_applied,omitempty"`
}
