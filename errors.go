package drawgate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors. A refusal is not one of them: it is a [Decision].
var (
	// ErrNeverFits means that a take asks for more than a limit can ever grant at its priority: no
	// wait will help. See [NeverFitsError].
	ErrNeverFits = errors.New("drawgate: the cost can never fit")
	// ErrUnknownUnit means that a cost names a unit that no limit of the policy has, or that a take
	// names none and none of its policies counts requests.
	ErrUnknownUnit = errors.New("drawgate: unknown unit")
	// ErrInvalid means that an argument is out of bounds.
	ErrInvalid = errors.New("drawgate: invalid argument")
	// ErrNeedsReserve means that a policy with a concurrency limit was used without a hold.
	ErrNeedsReserve = errors.New("drawgate: the policy has a concurrency limit: use Reserve")
	// ErrStoreUnavailable means that the store did not decide: it could not be reached, did not
	// answer in time, or failed. See [StoreError].
	ErrStoreUnavailable = errors.New("drawgate: the store is unavailable")
	// ErrNothingDone is in a [StoreError] whose store is certain that the call was not carried
	// out.
	ErrNothingDone = errors.New("nothing was done")
	// ErrPaused means that a lease was not renewed because one of its buckets is paused: its
	// deadline does not change, and it should be returned with Settle before then.
	ErrPaused = errors.New("drawgate: the bucket is paused: the lease is not renewed")
	// ErrQueueFull means that the queue of the bucket is full.
	ErrQueueFull = errors.New("drawgate: the queue is full")
	// ErrDeadline means that the caller's deadline, or the policy's bound on waiting, cannot be met
	// or has passed. An error that is ErrDeadline is context.DeadlineExceeded as well, and the
	// *[LimitedError] of the last refusal if there was one, or a Queued one if callers are ahead.
	ErrDeadline = errors.New("drawgate: the deadline cannot be met")
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
	// ErrGone means that a reservation is no longer open: it was settled, its hold ended, or its
	// bucket was reset.
	ErrGone = errors.New("drawgate: the reservation is gone")
	// ErrClosed means that the limiter or the store was closed.
	ErrClosed = errors.New("drawgate: closed")
	// ErrLimited is what [Decision.Err] returns for a refusal. See [LimitedError].
	ErrLimited = errors.New("drawgate: rate limit exceeded")
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

// NeverFitsError says which limit can never grant a take. It matches [ErrNeverFits].
type NeverFitsError struct {
	Policy, Limit, Unit string
	Amount              int64 // units per window of the limit, as configured; of a concurrency limit its slots
	N, Max              int64 // what was asked; the most that this limit ever grants at once: without headroom and what is kept for higher priorities
}

func (e *NeverFitsError) Error() string {
	return fmt.Sprintf("drawgate: %d %s can never fit limit %q of policy %q, which grants at most %d at this priority", e.N, e.Unit, e.Limit, e.Policy, e.Max)
}

// Is makes the error match ErrNeverFits.
func (e *NeverFitsError) Is(target error) bool { return target == ErrNeverFits }

// StoreError says which store failed, and in which operation. No decision was made; if the outcome
// is unknown, the units count as spent. It matches [ErrStoreUnavailable].
type StoreError struct {
	Store, Op string // "sqlite", "take"
	Err       error
	Fault     Fault // what kind of failure it is, as far as the store knows
}

// Fault says what kind of failure a [StoreError] is: who must do something before the store comes
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

func (e *StoreError) Error() string {
	return fmt.Sprintf("drawgate: %s store: %s: %v", e.Store, e.Op, e.Err)
}

func (e *StoreError) Unwrap() error { return e.Err }

// Is makes the error match ErrStoreUnavailable.
func (e *StoreError) Is(target error) bool { return target == ErrStoreUnavailable }

// LimitedError is a refusal as an error. It matches [ErrLimited].
type LimitedError struct {
	Policy, Limit string        // the limit that refuses longest
	RetryAfter    time.Duration // until this take would fit if nothing else happened
	ResetAt       time.Time     // when that limit is unused, or its window ends
	Queued        bool          // refused because other callers are ahead in the queue
	Decision      Decision      // the refusal, with what it says about every limit
}

func (e *LimitedError) Error() string {
	if e.Queued {
		return fmt.Sprintf("drawgate: rate limit exceeded: others are waiting for policy %q; retry after %v", e.Policy, e.RetryAfter)
	}
	if e.Decision.Reason == Unavailable {
		return fmt.Sprintf("drawgate: rate limit exceeded: the store is unavailable, and limit %q of policy %q does not admit this take without it; retry after %v",
			e.Limit, e.Policy, e.RetryAfter)
	}
	if e.Decision.UsageUnknown() {
		return fmt.Sprintf("drawgate: rate limit exceeded: the store is unavailable, and usage before this outage is unknown: "+
			"limit %q of policy %q; retry after %v", e.Limit, e.Policy, e.RetryAfter)
	}
	after := "retry after " + e.RetryAfter.String()
	if e.RetryAfter == Never {
		after = "it can never fit"
	}
	if e.Decision.Reason == Paused {
		return fmt.Sprintf("drawgate: rate limit exceeded: policy %q is paused for this key; %s", e.Policy, after)
	}
	return fmt.Sprintf("drawgate: rate limit exceeded: limit %q of policy %q; %s, resets at %s",
		e.Limit, e.Policy, after, e.ResetAt.UTC().Format(time.RFC3339))
}

// deadlineError ends waiting. It matches ErrDeadline, context.DeadlineExceeded and the last
// refusal.
type deadlineError struct {
	text    string // "" if refusal says it; always set if that is because others wait in front
	refusal error  // may be nil
}

func (e *deadlineError) Error() string {
	text := ErrDeadline.Error()
	if e.text != "" {
		text += ": " + e.text
	}
	if q, ok := errors.AsType[*LimitedError](e.refusal); e.refusal != nil && (!ok || !q.Queued) {
		text += ": " + strings.TrimPrefix(e.refusal.Error(), "drawgate: ")
	}
	return text
}

func (e *deadlineError) Unwrap() []error {
	if e.refusal == nil {
		return []error{ErrDeadline, context.DeadlineExceeded}
	}
	return []error{ErrDeadline, context.DeadlineExceeded, e.refusal}
}

// Is makes the error match ErrLimited.
func (e *LimitedError) Is(target error) bool { return target == ErrLimited }
