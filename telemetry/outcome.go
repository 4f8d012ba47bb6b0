package telemetry

import (
	"errors"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/failure"
)

// outcome is how a take ended, as metrics distinguish it.
type outcome uint8

const (
	allowed outcome = iota
	// by a limit, because others are ahead in the queue, or because a wait was too long or could
	// not end in time.
	refused
	unavailable // not decided: the store did not answer
	ended       // not decided: the caller gave up or ran out of time, or the process is stopping
	outcomes

	refusedByOther = outcomes // of a policy: it had enough left, but another policy of the same take refused
	policyOutcomes = outcomes + 1
)

var outcomeNames = [policyOutcomes]string{"allowed", "refused", "error", "ended", "refused_by_other"}

func outcomeOf(e *drawgate.Taken) outcome {
	switch {
	case e.Err == nil && e.Decision.Allowed:
		return allowed
	case e.Err == nil:
		return refused
	}
	return failureOf(e)
}

// failureOf is outcomeOf for what ended with an error.
func failureOf(e *drawgate.Taken) outcome {
	gaveUp, unknown := errors.AsType[*drawgate.GaveUpError](e.Err)
	switch {
	case unknown && gaveUp.Store == nil:
		return ended
	case unknown:
		return unavailable
	}
	switch kind := failure.Of(e.Err); {
	case kind == failure.Limited, kind == failure.QueueFull, e.Wait && errors.Is(e.Err, drawgate.ErrDeadline):
		return refused
	case kind == failure.Unavailable:
		return unavailable
	}
	return ended
}

// decided returns the decision of a take, or nil if there is none. An error that ends a wait may
// carry the last refusal.
func decided(e *drawgate.Taken) *drawgate.Decision {
	if e.Decision == nil || e.Decision.Buckets() == 0 || e.Err != nil && !errors.Is(e.Err, drawgate.ErrLimited) &&
		!errors.Is(e.Err, drawgate.ErrQueueFull) {
		return nil
	}
	return e.Decision
}

// reason is why a take was refused, in the words of rate_limit_rejections_total.
type reason uint8

const (
	distributedExhausted reason = iota // by what all processes share
	localExhausted                     // by this process's own limiter
	backendError                       // because the store is unavailable
	paused                             // because a bucket is paused
	reasons
)

var reasonNames = [reasons]string{"distributed_exhausted", "local_exhausted", "backend_error", "paused"}

// reason returns why a take was refused. d is nil if others are ahead of it in the queue.
func (m *Metrics) reason(d *drawgate.Decision) reason {
	switch {
	case d != nil && d.Reason == drawgate.Unavailable:
		return backendError
	case d != nil && d.Reason == drawgate.Paused:
		return paused
	case d != nil && d.Fallback, m.opts.Local:
		return localExhausted
	}
	return distributedExhausted
}
