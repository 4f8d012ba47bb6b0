package api

import "time"

// UsageAnswer lists buckets in use, the most used first: those of which the largest part of a limit
// is used.
type UsageAnswer struct {
	At      time.Time     `json:"at"` // when reading the buckets began, according to the server's clock
	Buckets []BucketUsage `json:"buckets"`
	// of those that were asked for, how many are in use: at least so many with Partial
	Total int  `json:"total"`
	More  bool `json:"more"` // there are others, which are used less, unless Partial is set
	// not all buckets in use were read, because there are too many, or it takes too long
	Partial bool `json:"partial,omitempty"`
}

// BucketUsage says what is used of the limits of a bucket.
type BucketUsage struct {
	Policy string `json:"policy"` // ends with ~shadow for a bucket in which only rules in shadow count
	Tenant string `json:"tenant,omitempty"`
	Key    string `json:"key"`
	Open   int    `json:"open"` // reservations
	// it refuses every take until then, according to the store's clock
	PausedUntil *time.Time `json:"paused_until,omitempty"`
	// the store was unavailable: the numbers are those of the process that answers
	Fallback bool       `json:"fallback,omitempty"`
	Limits   []LimitUse `json:"limits"` // in the policy's order
}

// LimitUse says what is used of a limit.
type LimitUse struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	Used int64  `json:"used"` // units that count now, including held ones
	Max  int64  `json:"max"`  // the most that may be used at priority 0
	Held int64  `json:"held"` // those of the used ones that are held and do not age
	Debt int64  `json:"debt"` // by how much use exceeds the limit
}
