package api

import "time"

// PoliciesAnswer lists the policies in force, by name.
type PoliciesAnswer struct {
	Policies []Policy `json:"policies"`
}

// Policy describes a policy.
type Policy struct {
	Name          string      `json:"name"`
	Limits        []LimitSpec `json:"limits"`
	Shadow        bool        `json:"shadow,omitempty"`         // evaluated, not enforced
	DisabledUntil *time.Time  `json:"disabled_until,omitempty"` // it is switched off until then
	// during an outage: closed, share, open; missing: the server's default
	Fallback string `json:"fallback,omitempty"`
}

// LimitSpec describes a limit as it was configured.
type LimitSpec struct {
	Name   string `json:"name"`
	Unit   string `json:"unit"`
	Kind   string `json:"kind"` // bucket, rolling, calendar, concurrency
	Amount int64  `json:"amount"`
	// the most that may be used at priority 0: the amount, or a bucket's burst, less headroom and
	// what is kept for higher priorities
	Most        int64  `json:"most"`
	WindowMS    int64  `json:"window_ms,omitempty"` // rolling: the window; bucket: the period of the amount
	Every       string `json:"every,omitempty"`     // calendar: its window, such as month
	Zone        string `json:"zone,omitempty"`      // calendar
	Burst       int64  `json:"burst,omitempty"`     // bucket
	Description string `json:"description"`         // for people: "10 requests per rolling 1m"
}

// DisableRequest switches a policy off for a time: takes pass as if it did not exist, and nothing
// is counted under it. Exactly one field must be set.
type DisableRequest struct {
	ForMS int64      `json:"for_ms,omitempty"` // from now; at most MaxDisable
	Until *time.Time `json:"until,omitempty"`
}

// MaxDisable is the longest time for which a policy may be switched off.
const MaxDisable = 366 * 24 * time.Hour
