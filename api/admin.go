package api

import "time"

// Bounds of a list of buckets.
const (
	DefaultBuckets = 100  // keys in an answer
	MaxBuckets     = 1000 // keys in an answer, at most
)

// BucketsAnswer lists keys of a policy whose buckets are in use, in the order of their bytes.
type BucketsAnswer struct {
	Policy string   `json:"policy"`
	Tenant string   `json:"tenant,omitempty"`
	Keys   []string `json:"keys"`
	// if there are more: the value of after for the next page. Its content is not part of the
	// interface
	After string `json:"after,omitempty"`
}

// MaxChanges is the largest number of changes in an answer.
const MaxChanges = 100

// ResetRequest forgets everything about buckets, including open reservations.
type ResetRequest struct {
	Policy string   `json:"policy,omitempty"` // optional if there is only one
	Tenant string   `json:"tenant,omitempty"`
	Key    string   `json:"key,omitempty"`
	Keys   []string `json:"keys,omitempty"` // instead of key: 1 to MaxTakes
}

// ResetAnswer has the number of buckets that were reset.
type ResetAnswer struct {
	Reset int `json:"reset"`
}

// MaxPause is the longest pause.
const MaxPause = 31 * 24 * time.Hour

// PauseRequest makes a bucket refuse every take until an instant. A pause is never shortened by
// another one; an [UnpauseRequest] ends it.
type PauseRequest struct {
	Policy string     `json:"policy,omitempty"` // optional if there is only one
	Tenant string     `json:"tenant,omitempty"`
	Key    string     `json:"key,omitempty"`
	ForMS  int64      `json:"for_ms,omitempty"`
	Until  *time.Time `json:"until,omitempty"`  // instead of for_ms, according to the store's clock
	Reason string     `json:"reason,omitempty"` // for people: at most 256 bytes, without control characters
}

// PauseAnswer has the end of the pause: later than requested if the bucket was already paused for
// longer.
type PauseAnswer struct {
	Until   time.Time `json:"until"`
	Kept    bool      `json:"kept,omitempty"`    // it was paused for longer already: nothing was changed
	Message string    `json:"message,omitempty"` // for people: how to end that pause
}

// UnpauseRequest ends the pause of a bucket that ends at Until, and no other.
type UnpauseRequest struct {
	Policy string     `json:"policy,omitempty"` // optional if there is only one
	Tenant string     `json:"tenant,omitempty"`
	Key    string     `json:"key,omitempty"`
	Until  *time.Time `json:"until"`            // the end of the pause, as a status shows it, to the microsecond
	Reason string     `json:"reason,omitempty"` // for people: at most 256 bytes, without control characters
}

// UnpauseAnswer has the end of the pause that was left because it ends at another instant. It has
// none if the bucket is not paused now.
type UnpauseAnswer struct {
	Until   *time.Time `json:"until,omitempty"`
	Message string     `json:"message,omitempty"` // for people
}

// ReloadAnswer lists what a new configuration changed: names of policies, and whether the rules
// differ.
type ReloadAnswer struct {
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	Changed []string `json:"changed,omitempty"`
	Rules   bool     `json:"rules,omitempty"`
	Changes []string `json:"changes,omitempty"` // one sentence each; the first MaxChanges
	Restart []string `json:"restart,omitempty"` // keys whose new values need a restart, and are not in force yet
}

// AdjustRequest corrects what a limit of a bucket has used.
type AdjustRequest struct {
	Policy string `json:"policy,omitempty"` // optional if there is only one
	Tenant string `json:"tenant,omitempty"`
	Key    string `json:"key,omitempty"`
	Limit  string `json:"limit,omitempty"` // its name; optional if the policy has only one that can be adjusted
	Used   *int64 `json:"used"`            // what it has used from now on
	Reason string `json:"reason"`          // for people and the history: 1 to 256 bytes, without control characters
}

// AdjustAnswer says what was changed.
type AdjustAnswer struct {
	Policy string `json:"policy"`
	Limit  string `json:"limit"`
	Was    int64  `json:"was"`
	Used   int64  `json:"used"` // more than requested if open reservations hold more
	Debt   int64  `json:"debt"` // by how much use exceeds the limit: nothing is granted until it has been worked off
}
