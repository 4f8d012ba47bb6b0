package drawgate

import (
	"context"
	"time"

	"github.com/drawgate/drawgate/internal/cells"
)

// Key says who is counted. Its parts may hold any bytes; no two different keys share a bucket.
type Key struct{ Tenant, Policy, Name string }

// Label is a note on a take, for the history: a task's type, its id.
type Label struct{ Name, Value string }

// BucketCost is one bucket's part of a take: N units per limit of Plan.
type BucketCost struct {
	Key  Key // Key.Policy is Plan.Name()
	Plan *Plan
	N    Amounts
}

// Take asks for units of one or several buckets: all or nothing, in one step.
type Take struct {
	ID       string        // of the reservation; "" for a plain take, otherwise Hold > 0
	Buckets  []BucketCost  // 1 to MaxBuckets, all of different keys
	Hold     time.Duration // 0: settled at once
	Lease    bool          // units do not age while open, and may be granted in part (at least 1 of each that is asked); needs a hold
	Priority int8          // 0 to MaxPriority
	Labels   []Label       // for the history

	renew func(int) *Limiter // of who waits; may be nil
}

// Op is what a [Settlement] does.
type Op uint8

// The ways to end or change a reservation, and to count what was used without one.
const (
	OpSettle Op = iota + 1 // end it with what was used
	OpCancel               // end it and give everything back
	OpRenew                // hold it for longer
	OpCharge               // count units unconditionally
	OpRefund               // give back units that were taken without an id; see [Limiter.Refund]
)

// String returns "settle", "cancel", "renew", "charge" or "refund"; "none" for what is not an Op.
func (o Op) String() string {
	names := [...]string{"none", "settle", "cancel", "renew", "charge", "refund"}
	if int(o) >= len(names) {
		o = 0
	}
	return names[o]
}

// Settlement changes an open reservation, or charges or gives back units.
type Settlement struct {
	Op      Op
	ID      string        // of the reservation; unused by OpCharge and OpRefund
	Buckets []BucketCost  // the take's buckets; OpSettle: N is what was used ([Unnamed] where the estimate stands); OpCharge: what to count; OpRefund: the most to give back
	Hold    time.Duration // OpRenew: the hold ends this long from now, never earlier than it did
	At      time.Time     // OpCharge: when the units were used
}

// Outcome answers a [Settlement].
type Outcome struct {
	Gone bool      // the id is not open: settled, its hold over, or reset. Nothing was credited
	End  time.Time // OpRenew: when the hold ends now
	Back []Amounts // OpRefund: the units that were given back, per bucket, of a bucket limit rounded up; nil: none
	Err  error     // this settlement failed; the others of the batch may not have
}

// Status describes a bucket without spending anything.
type Status struct {
	Decision              // what a take of the asked amounts would get
	States   []LimitUsage // per limit
	Open     int          // open reservations
}

// LimitUsage is what one limit of a bucket has used.
type LimitUsage struct {
	Used  int64     // units that count now, rounded up, Held included
	Held  int64     // of these, units held that do not age yet
	Debt  int64     // how far Used exceeds what may be used
	Most  int64     // what a take of the asked priority may use in all
	Start time.Time // calendar: the open window
	End   time.Time
}

// Store is where buckets live. It is safe for concurrent use. Package storetest is the definition of what an implementation must do.
//
// A batch may be answered in part: each element has an error of its own, and the method's error says that nothing at all was done. Where the outcome
// of a take is unknown (a reply was lost), the error is a [StoreError] and the units may be spent. Neither arguments nor results are kept.
type Store interface {
	// Take decides each take of the batch in one atomic step, in order. len(out) == len(batch). One that fits, but would open more reservations in a
	// bucket than may be, fails with ErrTooManyOpen.
	Take(ctx context.Context, batch []Take, out []Decision) error
	// Settle carries out each settlement in one atomic step, in order. len(out) == len(batch). What is in its history of an OpRefund, and in the
	// outcome, is what was given back.
	Settle(ctx context.Context, batch []Settlement, out []Outcome) error
	// Peek describes buckets, each for itself: what a take of N at this priority would get. It spends nothing. len(out) == len(buckets).
	Peek(ctx context.Context, buckets []BucketCost, priority int8, out []Status) error
	// Close ends the store; calls under way are finished, later ones fail with ErrClosed.
	Close() error
}

// What a store may offer beside. Each is checked once.
type (
	// Resetter forgets everything about buckets, open reservations included: their ids are gone.
	Resetter interface {
		Reset(ctx context.Context, keys []Key) error
	}
	// Lister lists the keys of buckets that are in use, in no order, until yield returns false.
	Lister interface {
		List(ctx context.Context, tenant, policy string, yield func(Key) bool) error
	}
	// Journal keeps a history of what was admitted.
	Journal interface {
		Read(ctx context.Context, from, to time.Time, yield func(Event) bool) error
	}
	// Pinger checks that the store can decide.
	Pinger interface {
		Ping(ctx context.Context) error
	}
	// Watcher tells when units of a bucket come free early. The channel is given keys, never blocks, and may miss some.
	Watcher interface {
		Watch(keys chan<- Key) (stop func())
	}
	// Opener is a store that decides in the caller's process, without I/O: plain takes of one bucket go to its buckets directly.
	Opener interface {
		Open(tenant string, plan *Plan) *cells.Buckets
	}
)

// Event is one line of a store's history.
type Event struct {
	At     time.Time
	Op     string // "take", "settle", "cancel", "charge", "refund" or "expire"
	ID     string // of the reservation, if any
	Key    Key
	Units  []Cost  // take: admitted; settle: used; refund: given back; per unit
	Labels []Label // of the take
}
