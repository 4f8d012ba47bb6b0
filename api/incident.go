package api

import "time"

// Incident describes calls that an upstream refused for its quota although our limits had allowed
// them. It holds no keys, no prompts, and no text of the upstream's but the name of a limit.
type Incident struct {
	ID       string    `json:"id"`       // begins with the time: ids sort by it
	At       time.Time `json:"at"`       // of the first refusal
	Instance string    `json:"instance"` // name of the process that made the calls
	Severity string    `json:"severity"` // SeverityError or SeverityWarning
	Upstream string    `json:"upstream"`
	Model    string    `json:"model,omitempty"` // or its family, as the quota counts it
	// minute, day: a limit per minute or per day; spend, credit: money; not_offered: a limit of 0;
	// unknown
	Meaning string `json:"meaning"`

	Summary   string   `json:"summary"`             // one sentence
	Diagnosis []string `json:"diagnosis,omitempty"` // what the numbers show; the likeliest cause first

	Count     int64      `json:"count"`                // calls that were refused
	Last      time.Time  `json:"last"`                 // when the latest of them was refused
	Until     *time.Time `json:"until,omitempty"`      // until when the quota is closed
	NotPaused bool       `json:"not_paused,omitempty"` // the store could not be told: other processes go on

	// The rest is of the first refused call.

	Status   int            `json:"status,omitempty"`   // of the answer
	Reason   string         `json:"reason,omitempty"`   // what the answer means, in short
	Provider *ProviderLimit `json:"provider,omitempty"` // the limit that the upstream named
	Call     IncidentTake   `json:"call"`
	// it was granted by a fallback, while the store was unavailable
	Fallback bool `json:"fallback,omitempty"`
	// as it was granted: what was left after it. Bucket 0 is the upstream's quota
	Limits []Limit       `json:"limits,omitempty"`
	Now    *StatusAnswer `json:"now,omitempty"` // the quota shortly after the refusal, of all processes
	// calls of this process to the upstream that were under way at the refusal, this one included
	Concurrent int `json:"concurrent"`
	// what this process sent to the model in the minute before the refusal
	Minute *IncidentSum `json:"minute,omitempty"`
	// recent calls of this process to the upstream, the newest last
	Takes []IncidentTake `json:"takes,omitempty"`
}

// Severities of incidents.
const (
	SeverityError   = "error"   // a limit on calls or tokens, which ours were meant to keep
	SeverityWarning = "warning" // money, or a model that is not offered: somebody has to act at the provider
)

// ProviderLimit is a limit as an upstream names it.
type ProviderLimit struct {
	Name   string `json:"name,omitempty"`
	Unit   string `json:"unit,omitempty"`
	Amount *int64 `json:"amount,omitempty"` // missing: not told
}

// IncidentTake is a call as it was granted, and how it ended.
type IncidentTake struct {
	Granted  time.Time  `json:"granted"`
	Sent     *time.Time `json:"sent,omitempty"`
	Answered *time.Time `json:"answered,omitempty"` // when the answer began
	Model    string     `json:"model,omitempty"`
	Priority int        `json:"priority,omitempty"`
	QueuedMS int64      `json:"queued_ms,omitempty"`
	Estimate Costs      `json:"estimate,omitempty"` // units that were held; missing: one request
	// units that count in the end; missing: the estimate, or it was never sent
	Used      Costs  `json:"used,omitempty"`
	Limit     string `json:"limit,omitempty"` // the tightest limit, as policy/limit
	Remaining int64  `json:"remaining"`       // what was left of it after this call
	Outcome   string `json:"outcome"`         // OutcomeUnderWay, succeeded, failed, refused or gave_up
}

// OutcomeUnderWay is the outcome of a call that has not ended yet.
const OutcomeUnderWay = "under_way"

// IncidentSum sums calls up.
type IncidentSum struct {
	Calls   int64 `json:"calls"`
	Costs   Costs `json:"costs,omitempty"`    // what they used, or held
	AtLeast bool  `json:"at_least,omitempty"` // there were more: not all are remembered
}

// MaxIncidents is how many incidents a server lists at most.
const MaxIncidents = 100

// IncidentsAnswer lists incidents, the newest first, without Limits, Now and Takes.
type IncidentsAnswer struct {
	Incidents []Incident `json:"incidents"`
}
