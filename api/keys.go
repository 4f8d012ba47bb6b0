package api

import (
	"fmt"
	"slices"
	"time"
)

// MaxKeys is how many virtual keys the store may have, and the largest number in an answer.
const MaxKeys = 10_000

// MaxKeyEvents is the largest number of changes of keys in an answer; DefaultKeyEvents is how many
// there are otherwise.
const (
	MaxKeyEvents     = 10_000
	DefaultKeyEvents = 100
)

// KeySettings say what a virtual key of the store may do. They mean what those of gateway.keys in a
// file do.
type KeySettings struct {
	Team      string     `json:"team,omitempty"`
	User      string     `json:"user,omitempty"`
	Class     string     `json:"class,omitempty"`
	Priority  int        `json:"priority,omitempty"`
	Models    []string   `json:"models,omitempty"`    // none: everything
	Others    []string   `json:"others,omitempty"`    // none: all
	Paths     []string   `json:"paths,omitempty"`     // none: all
	Addresses []string   `json:"addresses,omitempty"` // networks, or single addresses; none: all
	Expires   *time.Time `json:"expires,omitempty"`   // it is valid before this instant
	Disabled  bool       `json:"disabled,omitempty"`

	// Limits are the key's own amounts, by policy and limit ("limit.burst" is the burst of a
	// bucket). They count where a rule applies the policy by attr("key"). Limits that are not named
	// have those of the rule or the policy.
	Limits map[string]map[string]int64 `json:"limits,omitempty"`
}

// LimitTexts returns the key's own amounts as "policy/limit=amount", sorted.
func (s *KeySettings) LimitTexts() (list []string) {
	for policy, amounts := range s.Limits {
		for limit, n := range amounts {
			list = append(list, fmt.Sprintf("%s/%s=%d", policy, limit, n))
		}
	}
	slices.Sort(list)
	return list
}

// KeySecret says when a secret of a key was made, and until when it is valid. Nobody can see the
// secret again.
type KeySecret struct {
	Made  time.Time  `json:"made"`
	Until *time.Time `json:"until,omitempty"` // absent: it has no end of its own
}

// Key is a virtual key of the store.
type Key struct {
	KeySettings

	Name    string      `json:"name"`
	Version int64       `json:"version"` // the number of its latest change
	Secrets []KeySecret `json:"secrets"`
	Created time.Time   `json:"created"`
	Changed time.Time   `json:"changed"`
	By      string      `json:"by,omitempty"` // the access token that changed it last
}

// CreateKeyRequest makes a key, whose secret the server chooses.
type CreateKeyRequest struct {
	KeySettings

	Name string `json:"name"`
}

// ChangeKeyRequest replaces all settings of a key. Version is the one of which the caller knows:
// nothing is changed if somebody else has changed it since.
type ChangeKeyRequest struct {
	KeySettings

	Version int64 `json:"version"`
}

// RotateKeyRequest gives a key another secret. The secrets so far are valid before Until, or the
// end that they have, if that is earlier.
type RotateKeyRequest struct {
	Until *time.Time `json:"until"`
}

// KeyWithSecret is a key with the secret that was made for it just now. Nobody can see it again.
type KeyWithSecret struct {
	Key

	Secret string `json:"secret"`
}

// KeysAnswer lists the keys of the store, by their names.
type KeysAnswer struct {
	Keys []Key `json:"keys"`
}

// What was done to a key.
const (
	KeyCreated  = "create"
	KeyChanged  = "change"
	KeyRotated  = "rotate"
	KeyDisabled = "disable"
	KeyEnabled  = "enable"
	KeyDeleted  = "delete"
)

// KeyEvent is a change of a key. Long texts are cut.
type KeyEvent struct {
	Version int64      `json:"version"` // changes of all keys are numbered
	At      time.Time  `json:"at"`
	By      string     `json:"by,omitempty"` // the access token
	Op      string     `json:"op"`
	Key     string     `json:"key"`
	Fields  []KeyField `json:"fields,omitempty"` // the settings that are others now
}

// KeyField is a setting of a key that was changed; of a rotation "until", before which the secret
// so far is valid.
type KeyField struct {
	Field  string `json:"field"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// KeyEventsAnswer has changes of keys, the latest first.
type KeyEventsAnswer struct {
	Events []KeyEvent `json:"events"`
}
