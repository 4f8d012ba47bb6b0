package store

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"
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

// Grant is a random number that identifies one logical take with an id. The caller chooses it
// before sending, by [NewGrant], and sends the same number with every resend, renewal, settlement
// and cancellation of that take. An id is a name that may be used again once its reservation has
// ended; the grant tells such uses apart, so that a late settlement of an earlier one changes
// nothing.
//
// It is 16 hexadecimal digits on the wire. Zero is no grant.
type Grant uint64

// SendLife is the time after sending during which a take with an id may open a reservation: see
// [Take.NotAfter].
const SendLife = 2 * time.Second

// MaxReason is the maximum length of a pause's reason, in bytes.
const MaxReason = 256

// NewGrant returns a random number for a new take with an id.
func NewGrant() Grant {
	return Grant(rand.Uint64N(math.MaxUint64) + 1) //nolint:gosec // it must be another one, not a secret
}

// String returns the 16 hexadecimal digits that stand for the grant on the wire.
func (g Grant) String() string { return fmt.Sprintf("%016x", uint64(g)) }

// ParseGrant reads what [Grant.String] returns. The error is ErrInvalid for anything else, and for
// the grant 0.
func ParseGrant(s string) (Grant, error) {
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil || len(s) != 16 || n == 0 || s[0] == '+' {
		return 0, fmt.Errorf("%w: a grant is 16 hexadecimal digits, and not all zero", ErrInvalid)
	}
	return Grant(n), nil
}

// Take asks for units from one or several buckets: all or nothing, in one step.
type Take struct {
	ID string // of the reservation; "" for a plain take, otherwise Hold > 0
	// of a take with an id: not 0; the same on each resend of one logical take, and on no other
	// take
	Grant   Grant
	Buckets []BucketCost  // 1 to MaxBuckets, all of different keys
	Hold    time.Duration // 0: settled at once
	// units do not age while open, and may be granted in part (at least 1 of each that is asked);
	// needs a hold
	Lease    bool
	Priority int8    // 0 to MaxPriority
	Labels   []Label // for the history

	// NotAfter bounds how late a take with an id may arrive, according to the store's clock: after
	// that the store opens nothing for it, and fails with ErrTooLate. Zero: a store to which
	// messages can be late sets it, [SendLife] after it sends.
	NotAfter time.Time

	// Ahead lets the take be granted for a later instant, at most this far ahead, if it does not
	// fit now: its units count from then, and its work must not start earlier. See
	// [Verdict.Delay]. Takes of a higher priority that are granted until then may use what is kept
	// for them. Zero: now or not.
	Ahead time.Duration

	// Given says that the take was already allowed without the store, which learns of it only now:
	// a pause does not refuse it.
	Given bool

	// Ticket is the take's place in the line if it may wait; nil: it stands behind all who do.
	Ticket *Ticket
	// Barge says that it pays no heed to who waits.
	Barge bool

	// Known is what is known of the history of each bucket, or nil; see [Historian].
	Known []Known
	// Recovery makes it the reopening of a reservation that was lost, in its only bucket, whatever
	// others were admitted; nil otherwise. It needs Known.
	Recovery *Recovery
}

// Op is what a [Settlement] does.
type Op uint8

// The ways to end or change a reservation, and to count what was used without one.
const (
	OpSettle  Op = iota + 1 // end it with what was used
	OpCancel                // end it and give everything back
	OpRenew                 // hold it for longer
	OpCharge                // count units unconditionally
	OpRefund                // give back units that were taken without an id; see drawgate.Ask.Refund
	OpPause                 // make the buckets refuse takes until an instant; see drawgate.Limiter.Pause
	OpUnpause               // end the pause that ends at an instant; see drawgate.Limiter.Unpause
)

// String returns "settle", "cancel", "renew", "charge", "refund", "pause" or "unpause"; "none" for
// a value that is not an Op.
func (o Op) String() string {
	names := [...]string{"none", "settle", "cancel", "renew", "charge", "refund", "pause", "unpause"}
	if int(o) >= len(names) {
		o = 0
	}
	return names[o]
}

// Settlement changes an open reservation, or charges or gives back units.
//
// An OpRefund with an instant At gives nothing back in a calendar window that was opened after it,
// and nothing at all [SendLife] after it: what others have used since was not seen. An OpCharge
// with Once counts nothing [SendLife] after At, and fails with [ErrTooLate].
type Settlement struct {
	Op    Op
	ID    string // of the reservation; for OpSettle, OpCancel and OpRenew
	Grant Grant  // of the take that opened the reservation; for OpSettle, OpCancel and OpRenew
	// the take's buckets; OpSettle: N is what was used ([KeepEstimate] where the estimate stands);
	// OpCharge: what to count; OpRefund: the most to give back
	Buckets []BucketCost
	// OpRenew: the hold ends this long from now, never earlier than it did; OpPause: how long,
	// never shorter than it was
	Hold time.Duration
	// OpCharge: when the units were used; OpPause: until when, according to the store's clock,
	// unless Hold says how long; OpUnpause: the end of the pause to end, to the microsecond;
	// OpRefund: when the units were seen
	At     time.Time
	Reason string  // OpPause, OpUnpause: why, for people; at most MaxReason bytes
	Labels []Label // OpCharge, OpRefund, OpPause, OpUnpause: for the history

	// Once says that an OpCharge is not to be kept and delivered later by a store that does so
	// while another one is away, nor to be carried out if it was held up: its caller learns that it
	// failed, and looks what is used first.
	Once bool

	// Ended has an OpSettle or OpCancel also correct what a hold of this grant left that has ended
	// without a settlement, in the buckets that remember it: what was not used of it comes back.
	// Somebody else has charged, or will, whatever was used beyond that. A store need not remember
	// any.
	Ended bool

	// Known is what is known of the history of each bucket, or nil; see [Historian].
	Known []Known
	// Recovery makes an OpCharge one of units that were lost, in its only bucket: then its N is not
	// used; nil otherwise. It needs Known.
	Recovery *Recovery
}

// Outcome answers a [Settlement].
type Outcome struct {
	Gone bool // this grant of the id is not open: settled, its hold over, or reset. Nothing was credited
	// OpRenew, for a lease with a paused bucket: nothing was renewed; End is unchanged, the
	// earliest of all buckets. OpPause: all buckets are paused for longer already. OpUnpause: a
	// bucket stays paused, until another instant
	Kept bool
	// OpRenew: when the hold ends now, the earliest of all buckets; OpPause, OpUnpause: when the
	// pause ends, the latest of all buckets; zero if none is paused
	End time.Time
	// OpRefund, and what is Corrected: the units that were given back, per bucket, of a bucket
	// limit rounded up; nil: none
	Back      []Amounts
	Corrected []bool // per bucket, of a settlement with Ended: it remembered the hold; nil: none did
	Err       error  // why this settlement failed; the others in the batch may have succeeded

	Histories []History // per bucket, if the settlement has Known and the store is a [Historian]
}
