package drawgate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/drawgate/drawgate/internal/money"
	"github.com/drawgate/drawgate/store"
)

// Errors. A refusal is not one of them: it is a [Decision].
var (
	// ErrNeverFits means that a take asks for more than a limit can ever grant at its priority: no
	// wait will help. See [NeverFitsError].
	ErrNeverFits = errors.New("drawgate: the cost can never fit")
	// ErrUnknownUnit means that a cost names a unit that no limit of the policy has, or that a take
	// names none and none of its policies counts requests.
	ErrUnknownUnit  = errors.New("drawgate: unknown unit")
	ErrInvalid      = store.ErrInvalid      // an argument is out of bounds
	ErrNeedsReserve = store.ErrNeedsReserve // a policy with a concurrency limit was used without a hold
	// ErrStoreUnavailable means that the store did not decide: it could not be reached, did not
	// answer in time, or failed. See [StoreError].
	ErrStoreUnavailable = store.ErrStoreUnavailable
	// ErrPaused means that a lease was not renewed because one of its buckets is paused: its
	// deadline does not change, and it should be returned with Settle before then.
	ErrPaused    = errors.New("drawgate: the bucket is paused: the lease is not renewed")
	ErrQueueFull = errors.New("drawgate: the queue is full")
	// ErrDeadline means that the caller's deadline, or the policy's MaxWait, cannot be met or has
	// passed. It is context.DeadlineExceeded as well, and the last refusal's *[LimitedError], too.
	ErrDeadline    = errors.New("drawgate: the deadline cannot be met")
	ErrIDOpen      = store.ErrIDOpen      // another grant of the id is open, an earlier use; nothing was taken
	ErrIDReused    = store.ErrIDReused    // this grant of the id is open, with different content; nothing was taken
	ErrTooManyOpen = store.ErrTooManyOpen // 10,000 reservations are open in a bucket; nothing was taken
	ErrClosed      = store.ErrClosed      // the limiter or the store was closed
	// ErrGone means that a reservation is no longer open: it was settled, its hold ended, or its
	// bucket was reset.
	ErrGone    = errors.New("drawgate: the reservation is gone")
	ErrLimited = errors.New("drawgate: rate limit exceeded") // a refusal, of [Decision.Err]: see [LimitedError]
)

// NeverFitsError names the limit that never grants a take. It matches [ErrNeverFits].
type NeverFitsError struct {
	Policy, Limit, Unit string
	Amount              int64 // units per window of the limit, as configured; of a concurrency limit its slots
	N, Max              int64 // what was asked; the most that is ever granted at once at this priority
}

func (e *NeverFitsError) Error() string {
	most := strconv.FormatInt(e.Max, 10)
	if _, ok := money.Currency(e.Unit); ok {
		most = money.Text(e.Max, e.Unit)
	}
	return fmt.Sprintf("drawgate: %s can never fit limit %q of policy %q, which grants at most %s at this priority",
		money.Text(e.N, e.Unit), e.Limit, e.Policy, most)
}

// Is makes the error match ErrNeverFits.
func (e *NeverFitsError) Is(target error) bool { return target == ErrNeverFits }

// LimitError is a mistake in a limit.
type LimitError = store.LimitError

// StoreError says which store failed, and in which operation. No decision was made; if the outcome
// is unknown, the units count as spent. It matches [ErrStoreUnavailable].
type StoreError = store.Error

// LimitedError is a refusal as an error. It matches [ErrLimited].
type LimitedError struct {
	Policy, Limit string        // the limit that refuses longest; Limit is "" if others are ahead, or for a pause
	RetryAfter    time.Duration // until this take would fit if nothing else happened
	ResetAt       time.Time     // when that limit is unused, or its window ends
	Queued        bool          // refused because other callers are ahead in the queue
	Decision      Decision      // the refusal, with what it says about every limit
}

func (e *LimitedError) Error() string {
	if e.Queued {
		return fmt.Sprintf("drawgate: rate limit exceeded: others are waiting for policy %q; retry after %v", e.Policy,
			roundUp(e.RetryAfter))
	}
	if e.Decision.Reason == Unavailable {
		return fmt.Sprintf("drawgate: rate limit exceeded: the store is unavailable, and limit %q of policy %q does not admit this take without it; retry after %v",
			e.Limit, e.Policy, roundUp(e.RetryAfter))
	}
	if e.Decision.UsageUnknown() {
		return fmt.Sprintf("drawgate: rate limit exceeded: the store is unavailable, and usage before this outage is unknown: "+
			"limit %q of policy %q; retry after %v", e.Limit, e.Policy, roundUp(e.RetryAfter))
	}
	after := "retry after " + roundUp(e.RetryAfter).String()
	if e.RetryAfter == Never {
		after = "it can never fit"
	}
	if r, ok := e.Decision.Refusing(); ok && r.Limit.Every == Total && e.Decision.Reason == Limited {
		more := "that is credited"
		if e.Decision.EarliestRetry < e.Decision.RetryAfter {
			more = "open reservations use less than they hold, or " + more
		}
		return fmt.Sprintf("drawgate: rate limit exceeded: limit %q of policy %q has %s left, and gets more only if %s",
			e.Limit, e.Policy, money.Text(r.Remaining, r.Limit.unit()), more)
	}
	if e.Decision.Reason == Paused {
		return fmt.Sprintf("drawgate: rate limit exceeded: policy %q is paused for this key; %s", e.Policy, after)
	}
	return fmt.Sprintf("drawgate: rate limit exceeded: limit %q of policy %q; %s, resets at %s",
		e.Limit, e.Policy, after, e.ResetAt.UTC().Format(time.RFC3339))
}

// roundUp returns a duration as people read it, and no shorter: in milliseconds, or from ten
// seconds on in seconds.
func roundUp(d time.Duration) time.Duration {
	unit := time.Millisecond
	if d >= 10*time.Second {
		unit = time.Second
	}
	if rest := d % unit; rest > 0 && d < Never-unit {
		d += unit - rest
	}
	return d
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
