package api

import "time"

// PathMe is where the gateway tells a virtual key about itself: GET, at the address for callers.
const PathMe = "/v1/me"

// MeAnswer is what a virtual key of the gateway may use, and what it has used.
type MeAnswer struct {
	At        time.Time    `json:"at"` // this gateway's time
	Key       string       `json:"key"`
	Team      string       `json:"team,omitempty"`
	Until     *time.Time   `json:"until,omitempty"` // no call passes from then on
	Priority  int          `json:"priority"`        // the highest that its calls may have
	Upstreams []MeUpstream `json:"upstreams"`
	Aliases   []string     `json:"aliases"` // that it may use
	Limits    []MeLimit    `json:"limits"`
	Spend     *SpendAnswer `json:"spend,omitempty"` // of this month, by upstream and model; absent if nothing counts it
	Waiting   []MeWaiting  `json:"waiting"`         // at this gateway, the longest-waiting first
	Refusals  []MeRefusal  `json:"refusals"`        // by this gateway lately, the latest first
}

// MeUpstream is an upstream that a key may use.
type MeUpstream struct {
	Name     string   `json:"name"` // the first segment of the path of calls
	Provider string   `json:"provider"`
	Models   []string `json:"models"` // as the gateway's configuration or the key's has them, with * at the end
}

// MeLimit is a limit of a bucket that counts calls of a key, and not those of other teams.
type MeLimit struct {
	LimitStatus
	ResetAt *time.Time `json:"reset_at,omitempty"` // as in LimitStatus; absent: never, of a prepaid budget
	Team    bool       `json:"team,omitempty"`     // it counts other keys of the team, too
	Paused  *Pause     `json:"paused,omitempty"`   // the bucket refuses every call
}

// MeWaiting is a call that waits.
type MeWaiting struct {
	Upstream string `json:"upstream"`
	Model    string `json:"model"`
	WaitedMS int64  `json:"waited_ms"`
}

// MeRefusal is a call that was refused.
type MeRefusal struct {
	At       time.Time `json:"at"`
	Upstream string    `json:"upstream"`
	Status   int       `json:"status"`
	Message  string    `json:"message"`
}
