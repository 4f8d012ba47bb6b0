package api

import "time"

// MaxRefusals is the largest number of refusals in a [RefusalsAnswer], and how many a server keeps.
const MaxRefusals = 1000

// RefusalsAnswer lists what this server process refused lately, the latest first. A server keeps at
// most [MaxRefusals] of them, and drops those whose last refusal is the longest ago.
type RefusalsAnswer struct {
	At       time.Time `json:"at"` // this server's time
	Refusals []Refusal `json:"refusals"`
	Total    int       `json:"total"`             // of those that were asked for, how many the server keeps
	Dropped  bool      `json:"dropped,omitempty"` // older ones were dropped since the server started
}

// Refusal describes all takes that were refused for one bucket by the same limit. A take that
// several limits refuse counts for the one that would have refused it the longest.
type Refusal struct {
	Policy    string    `json:"policy"`
	Tenant    string    `json:"tenant,omitempty"`
	Key       string    `json:"key"`
	Reason    Reason    `json:"reason"`          // limited, paused, unavailable or queued, as in an [Answer]
	Limit     string    `json:"limit,omitempty"` // that refused; missing if none did, as during a pause
	Unit      string    `json:"unit,omitempty"`  // of the limit
	Count     int64     `json:"count"`           // takes that were refused, since First
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
	Asked     int64     `json:"asked,omitempty"` // by the last one, of the limit
	Remaining int64     `json:"remaining"`       // of the limit, for the last one
	Max       int64     `json:"max,omitempty"`   // of the limit, for the last one
	// the last one was decided while the store was unavailable: the numbers are this process's
	Fallback bool `json:"fallback,omitempty"`
}
