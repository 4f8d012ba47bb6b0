// Package failure tells what kind of failure an error of the library is. Each interface maps the
// kind to its own code: an HTTP status, a gRPC code, an exit code, a label of a metric.
package failure

import (
	"context"
	"errors"

	"github.com/drawgate/drawgate"
)

// Kind is a kind of failure. Failures that need different reactions have different kinds, so that
// an interface needs no second look at the error.
type Kind uint8

const (
	None         Kind = iota // there is no error
	NeverFits                // the take asks for more than a limit can ever grant
	UnknownUnit              // a cost names a unit that nothing counts
	NeedsReserve             // the policy has a concurrency limit, so the take needs a hold
	IDReused                 // the grant of the id is open with different content
	IDOpen                   // another grant of the id is open
	TooManyOpen              // the bucket has the maximum number of open reservations
	Invalid                  // another argument is out of bounds
	Closed                   // the limiter or the store was closed
	Cancelled                // the caller gave up
	Unavailable              // the store could not decide
	TimedOut                 // the caller's time ran out before a decision
	QueueFull                // the maximum number of callers is waiting
	Limited                  // a refusal that was returned as an error
	Other                    // an error that the library does not know
)

// kinds are the errors of each kind. An error may match several: the first one counts. What the
// caller did wrong comes before what happened meanwhile, even where a store reports it. A call to
// the store that ended with its caller is Cancelled, not Unavailable. A call that ended with the
// time limit of the store is Unavailable, not TimedOut. A wait that ended is TimedOut, though it
// carries its last refusal.
var kinds = [...]struct {
	err  error
	kind Kind
}{
	{drawgate.ErrNeverFits, NeverFits},
	{drawgate.ErrUnknownUnit, UnknownUnit},
	{drawgate.ErrNeedsReserve, NeedsReserve},
	{drawgate.ErrIDReused, IDReused},
	{drawgate.ErrIDOpen, IDOpen},
	{drawgate.ErrTooManyOpen, TooManyOpen},
	{drawgate.ErrInvalid, Invalid},
	{drawgate.ErrClosed, Closed},
	{context.Canceled, Cancelled},
	{drawgate.ErrStoreUnavailable, Unavailable},
	{context.DeadlineExceeded, TimedOut},
	{drawgate.ErrDeadline, TimedOut},
	{drawgate.ErrQueueFull, QueueFull},
	{drawgate.ErrLimited, Limited},
}

// Of returns the kind of an error.
func Of(err error) Kind {
	if err == nil {
		return None
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.kind
		}
	}
	return Other
}

// Mistake reports whether the request itself is at fault: sent again unchanged, it fails in the
// same way, or waits for another request to end. The store is not to blame.
func (k Kind) Mistake() bool { return k >= NeverFits && k <= Invalid }

// Undecided reports whether nothing was decided and the same request may be decided later.
func (k Kind) Undecided() bool {
	return k == Closed || k == Cancelled || k == Unavailable || k == TimedOut
}

// MaySpend reports whether a take ended during the call to the store, so that its units may be
// spent or held: that is unknown, and nothing cancels it.
func MaySpend(err error) bool {
	e, ok := errors.AsType[*drawgate.GaveUpError](err)
	return ok && e.MaySpend
}
