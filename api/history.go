package api

import "time"

// HistoryType is the media type of a history: one [Event] as JSON per line.
const HistoryType = "application/x-ndjson"

// MaxLast is the largest number of events that can be asked for as the newest ones.
const MaxLast = 10_000

// The names of events: what was admitted, and what became of it.
const (
	EventTake   = "take"
	EventSettle = "settle" // what a reservation used
	EventCancel = "cancel" // a reservation was cancelled
	EventExpire = "expire" // a hold ended without a settlement
	EventCharge = "charge" // what was used beyond an estimate, or an adjustment up
	EventRefund = "refund" // given back without a reservation, or an adjustment down

	EventPause   = "pause"   // a pause began, or lasts longer
	EventUnpause = "unpause" // a pause was ended
)

// EventOps lists the names of events.
func EventOps() []string {
	return []string{
		EventTake, EventSettle, EventCancel, EventCharge, EventRefund, EventExpire, EventPause,
		EventUnpause,
	}
}

// Event is one line of the store's history.
type Event struct {
	At     time.Time         `json:"at"`
	Op     string            `json:"op"`
	Policy string            `json:"policy"`
	Tenant string            `json:"tenant,omitempty"`
	Key    string            `json:"key"`
	ID     string            `json:"id,omitempty"` // of the reservation
	Units  map[string]int64  `json:"units"`        // admitted, used or given back
	Labels map[string]string `json:"labels,omitempty"`
}
