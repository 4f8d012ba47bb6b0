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
	After  string   `json:"after,omitempty"` // there are more: give it as after to get them. Its content is not an interface
}

// MaxChanges is how many changes an answer tells.
const MaxChanges = 100

// ResetRequest forgets everything about buckets, open reservations included.
type ResetRequest struct {
	Policy string   `json:"policy,omitempty"` // may be left out where there is only one
	Tenant string   `json:"tenant,omitempty"`
	Key    string   `json:"key,omitempty"`
	Keys   []string `json:"keys,omitempty"` // instead of key: 1 to MaxTakes
}

// ResetAnswer says how many buckets were reset.
type ResetAnswer struct {
	Reset int `json:"reset"`
}

// MaxPause is the longest pause.
const MaxPause = 31 * 24 * time.Hour

// PauseRequest lets a bucket refuse every take until an instant. A pause is never made shorter by
// another one; a reset ends it.
type PauseRequest struct {
	Policy string     `json:"policy,omitempty"` // may be left out where there is only one
	Tenant string     `json:"tenant,omitempty"`
	Key    string     `json:"key,omitempty"`
	ForMS  int64      `json:"for_ms,omitempty"`
	Until  *time.Time `json:"until,omitempty"`  // instead, by the store's clock
	Reason string     `json:"reason,omitempty"` // for people: at most 256 bytes, without control characters
}

// PauseAnswer says when the pause ends: later than was asked if the bucket was paused for longer
// already.
type PauseAnswer struct {
	Until time.Time `json:"until"`
}

// ReloadAnswer says what a new configuration changed: names of policies, and whether the rules
// differ.
type ReloadAnswer struct {
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	Changed []string `json:"changed,omitempty"`
	Rules   bool     `json:"rules,omitempty"`
	Changes []string `json:"changes,omitempty"` // each in a sentence; the first MaxChanges
	Restart []string `json:"restart,omitempty"` // keys of the configuration whose new values are not in force: they need a restart
}
