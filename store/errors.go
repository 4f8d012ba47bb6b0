package store

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// Errors of a store. A refusal is not one of them: it is a [Verdict].
var (
	// ErrInvalid means that an argument is out of bounds.
	ErrInvalid = errors.New("drawgate: invalid argument")
	// ErrNeedsReserve means that a policy with a concurrency limit was used without a hold.
	ErrNeedsReserve = errors.New("drawgate: the policy has a concurrency limit: use Reserve")
	// ErrStoreUnavailable means that the store did not decide: it could not be reached, did not
	// answer in time, or failed. See [Error].
	ErrStoreUnavailable = errors.New("drawgate: the store is unavailable")
	// ErrNothingDone is in an [Error] whose store is certain that the call was not carried
	// out.
	ErrNothingDone = errors.New("nothing was done")
	// ErrUnknownOutcome is in an [Error] whose store does not know whether the call was carried
	// out, or not all of it: it was sent, and its answer was lost.
	ErrUnknownOutcome = errors.New("the outcome is unknown")
	// ErrIDOpen means that a reservation with this id but another grant is open: an earlier use of
	// the id that has not ended. Nothing was taken.
	ErrIDOpen = errors.New("drawgate: the id is in use: settle or cancel that reservation first, or use another id")
	// ErrTooLate means that a take with an id arrived after its [Take.NotAfter], or a charge with
	// [Settlement.Once] more than [SendLife] after its At. Nothing was taken; it may be sent again.
	ErrTooLate = errors.New("drawgate: it arrived too late, and nothing was taken")
	// ErrIDReused means that a reservation with this id and grant is open, with different content.
	// Nothing was taken.
	ErrIDReused = errors.New("drawgate: this grant of the id is open with different content: give each take its own grant")
	// ErrTooManyOpen means that [MaxOpen] reservations are open in one of a take's buckets. Nothing
	// was taken. A take can succeed again when one of them is settled or ends.
	ErrTooManyOpen = errors.New("drawgate: too many reservations are open in this bucket")
	// ErrClosed means that the limiter or the store was closed.
	ErrClosed = errors.New("drawgate: closed")
)

// LimitError is a mistake in a limit.
type LimitError struct {
	Policy, Limit string
	Index         int // of the limit in its policy
	Err           error
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("drawgate: policy %q, limit %d (%q): %v", e.Policy, e.Index+1, e.Limit, e.Err)
}

func (e *LimitError) Unwrap() error { return e.Err }

// Error says which store failed, and in which operation. No decision was made; if the outcome
// is unknown, the units count as spent. It matches [ErrStoreUnavailable].
type Error struct {
	Store, Op string // "sqlite", "take"
	Err       error
	Fault     Fault // what kind of failure it is, as far as the store knows

	counted *atomic.Bool // whether the failure was counted, if several callers share it
}

// Fault says what kind of failure an [Error] is: who must do something before the store comes
// back.
type Fault uint8

const (
	// FaultTransient goes away by itself: no connection, no answer in time, a busy or loading
	// server, a locked file.
	FaultTransient Fault = iota
	// FaultConfiguration goes away once somebody has fixed the store; this process need not be
	// restarted: credentials, permissions, full memory or a full disk, a server or file that is
	// read-only.
	FaultConfiguration
	// FaultBucket concerns the buckets of this call only: a record that is damaged, of a newer
	// version, or something else.
	FaultBucket
	// FaultPermanent stays until the store is repaired and opened again: its data are damaged, or
	// were removed.
	FaultPermanent
)

// String returns "transient", "configuration", "bucket" or "permanent".
func (f Fault) String() string {
	return [...]string{"transient", "configuration", "bucket", "permanent"}[min(f, FaultPermanent)]
}

func (e *Error) Error() string {
	return fmt.Sprintf("drawgate: %s store: %s: %v", e.Store, e.Op, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Is makes the error match ErrStoreUnavailable.
func (e *Error) Is(target error) bool { return target == ErrStoreUnavailable }
