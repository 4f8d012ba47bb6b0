package store

import (
	"slices"
	"time"
)

// Event is one line of a store's history.
type Event struct {
	At     time.Time
	Op     string // "take", "settle", "cancel", "charge", "refund", "pause", "unpause" or "expire"
	ID     string // of the reservation, if any
	Key    Key
	Units  []Cost  // take: admitted; settle: used; refund: given back; per unit
	Labels []Label // of the take; charge, refund, pause, unpause: its own; for pauses with "until" and "reason"
}

// EventQuery says which events of a history are wanted. The zero value wants all of them.
type EventQuery struct {
	From, To    time.Time // from From on and before To; the zero time is no bound
	Policy, Op  string    // "": any
	Tenant, Key *string   // nil: any
	Labels      []Label   // all of these
}

// Match reports whether an event is wanted.
func (q *EventQuery) Match(e *Event) bool {
	if e.At.Before(q.From) || !q.To.IsZero() && !e.At.Before(q.To) {
		return false
	}
	for _, l := range q.Labels {
		if !slices.Contains(e.Labels, l) {
			return false
		}
	}
	return (q.Policy == "" || e.Key.Policy == q.Policy) && (q.Op == "" || e.Op == q.Op) &&
		(q.Key == nil || e.Key.Name == *q.Key) && (q.Tenant == nil || e.Key.Tenant == *q.Tenant)
}

// Cost is a number of units.
type Cost struct {
	Unit string // "" means requests
	N    int64  // 0 to MaxAmount
}
