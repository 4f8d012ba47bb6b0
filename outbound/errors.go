package outbound

import (
	"errors"
	"fmt"
	"time"
)

// What calls fail with, besides the errors of the call itself. A call that the quota refuses fails
// with a *[drawgate.LimitedError], or with [drawgate.ErrDeadline] or [drawgate.ErrQueueFull] after
// a wait: they say after which time to try again, and what is left of each limit.
var (
	// ErrCircuitOpen means that calls to the upstream have failed so often that none is made for a
	// time. Nothing was spent. See [CircuitOpenError].
	ErrCircuitOpen = errors.New("outbound: the circuit is open")
	// ErrRefused means that the upstream refused a call for its quota. The quota is paused. See
	// [RefusedError].
	ErrRefused = errors.New("outbound: the upstream refused the call for its quota")
	// ErrHoldLost means that a call was ended because what it held could not be renewed: somebody
	// else may use the units, or the slot, by now.
	ErrHoldLost = errors.New("outbound: what the call holds could not be renewed")
	// ErrTooLarge means that a request's body is larger than this process reads to estimate it.
	ErrTooLarge = errors.New("outbound: the request is too large to be estimated")
	// ErrNoPrice means that money is counted, and the call's model has no price.
	ErrNoPrice = errors.New("outbound: what the call costs is not known")
	// ErrNotOffered means that the upstream does not offer the call's model to this account: it
	// refused a call of it within the last day, with a limit of 0. Nothing was sent.
	ErrNotOffered = errors.New("outbound: the upstream does not offer the model to this account")
	// ErrNotSent means that a call failed before anything of it was sent: it may be made elsewhere.
	// It comes with the reason.
	ErrNotSent = errors.New("outbound: nothing was sent")
	// ErrLate means that a call was granted several times, and each time could not be sent within
	// its limits' margin. Nothing was sent, and everything was given back.
	ErrLate = errors.New("outbound: the call could not be sent within its limits' margin")
)

// CircuitOpenError says when the next call may try. It is [ErrCircuitOpen].
type CircuitOpenError struct {
	Upstream   string
	Model      string // whose calls failed; "": no connection to the upstream could be made
	Caller     string // one of [Call].From, if only this caller's calls failed
	RetryAfter time.Duration
	Recovery   time.Time // when a call may try; whether it succeeds, nobody knows
}

func (e *CircuitOpenError) Error() string {
	calls := "calls"
	if e.Model != "" {
		calls += " of " + e.Model
	}
	calls += " to " + e.Upstream
	if e.Caller != "" {
		calls += " by " + e.Caller
	}
	return fmt.Sprintf("%s: %s failed; the next one may try in %v", ErrCircuitOpen, calls,
		e.RetryAfter.Round(time.Millisecond))
}

// Is makes the error match ErrCircuitOpen.
func (e *CircuitOpenError) Is(target error) bool { return target == ErrCircuitOpen }

// notSentError is the reason why nothing of a call was sent. It is [ErrNotSent].
type notSentError struct{ error }

func (e *notSentError) Unwrap() error { return e.error }

// Is makes the error match ErrNotSent.
func (e *notSentError) Is(target error) bool { return target == ErrNotSent }

// RefusedError is how a function that is called by [Do] says that the upstream refused it for the
// quota. It is [ErrRefused].
type RefusedError struct {
	Until  time.Time // until when the quota is closed; zero: a minute from now
	Reason string    // for people and the pause, such as "requests per day"; no secrets
	Err    error     // what the upstream said; may be nil
}

func (e *RefusedError) Error() string {
	s := ErrRefused.Error()
	if e.Reason != "" {
		s += " (" + e.Reason + ")"
	}
	if !e.Until.IsZero() {
		s += ", until " + e.Until.UTC().Format(time.RFC3339)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *RefusedError) Unwrap() error { return e.Err }

// Is makes the error match ErrRefused.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }
