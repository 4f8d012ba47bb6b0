package drawgate

import (
	"time"

	"github.com/drawgate/drawgate/internal/cells"
	"github.com/drawgate/drawgate/store"
)

// Store is where buckets live, such as one of package memstore. Package store says what it must do.
type Store = store.Store

// Key says who is counted: its fields Tenant, Policy and Name may hold any bytes; no two different
// keys share a bucket.
type Key = store.Key

// Label is a note on a take, for the history, such as the Name "task" and a Value.
type Label = store.Label

// Grant is a random number, not 0, that identifies one logical take with an id: the caller sends
// the same number with each resend, renewal, settlement and cancellation of that take: see [Hold].
// [store.ParseGrant] reads its String.
type Grant = store.Grant

// NewGrant returns a random number for a new take with an id.
func NewGrant() Grant { return store.NewGrant() }

// Status describes a bucket without spending anything.
type Status struct {
	Decision                    // what a take of the asked amounts would get
	States   []store.LimitUsage // per limit
	Open     int                // open reservations
	Pause    Pause              // zero if the bucket is not paused

	// Line says who waits for the bucket, in all processes, in their order, as far as the store
	// keeps a line: of each process those who come to its front next, 128 in all.
	Line []store.Waiter

	// The limiter adds what it knows of the callers that wait for the bucket in this process.

	Waiting int           // how many callers of this process wait
	NextTry time.Duration // until the first of them tries again; 0: it is doing so, or nobody waits
}

// opener is a store that decides in the caller's process, without I/O: plain takes of one bucket go
// to its buckets directly.
type opener interface {
	Open(tenant string, plan *store.Plan) *cells.Buckets
}

// holder is a store that decides some plain takes of one bucket in the caller's process, without
// I/O, as package lease does. ok is false if it has to ask.
type holder interface {
	TakeHeld(b store.BucketCost, priority int8) (v store.Verdict, ok bool)
}
