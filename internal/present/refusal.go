package present

import (
	"context"
	"errors"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/failure"
)

// Refusal describes a refusal that was returned as an error, by a wait or a reservation. If the
// error does not have enough information, it peeks at the buckets. ok is false if err is not a
// refusal; then err is returned, or the error of the peek.
//
// ctx is the context of the take. If it bounded the wait, its cause must be [drawgate.ErrDeadline].
func Refusal(ctx context.Context, l *drawgate.Limiter, r *drawgate.Request, err error) (a api.Answer, ok bool,
	_ error,
) {
	reason, ok := refusalReason(ctx, err)
	if !ok {
		return a, false, err
	}
	e, limited := errors.AsType[*drawgate.LimitedError](err)
	if limited && !e.Queued && e.Decision.Buckets() == len(r.Buckets) {
		return Answer(&e.Decision), true, nil
	}
	var f Draft
	for i, b := range r.Buckets {
		if b.Limiter == nil {
			b.Limiter = l
		}
		st, err := b.Status(context.WithoutCancel(ctx), r.Priority)
		if err != nil {
			return a, false, err
		}
		for res := range st.Limits() {
			res.Bucket = i
			f.add(res)
		}
	}
	f.describe(&a)
	// There may be room by now. The refusal stands nevertheless, and so does its limit.
	if limited && a.RefusedBy == nil && e.Limit != "" && reason != api.ReasonPaused {
		a.RefusedBy = &api.LimitName{Policy: e.Policy, Limit: e.Limit}
	}
	if limited && e.Queued { // what is left is for those in front
		a.RetryAfterMS = max(a.RetryAfterMS, retryAfter(e.RetryAfter))
	}
	f.refuse(&a, reason)
	return a, true, nil
}

// RefusalOf is [Refusal] for a request to an engine. Its error says why there is no refusal.
func RefusalOf(ctx context.Context, req *engine.Request, res *engine.Result, err error) (api.Answer, error) {
	r := drawgate.Request{Buckets: res.Asked(), Priority: req.Priority}
	if len(r.Buckets) == 0 {
		return api.Answer{}, err
	}
	out, ok, err := Refusal(ctx, r.Buckets[0].Limiter, &r, err)
	if !ok {
		return api.Answer{}, err
	}
	return out, nil
}

// refusalReason reports whether an error means that a take was refused, and why.
func refusalReason(ctx context.Context, err error) (reason api.Reason, ok bool) {
	e, limited := errors.AsType[*drawgate.LimitedError](err)
	switch {
	case errors.Is(err, drawgate.ErrStoreUnavailable), failure.MaySpend(err):
		return "", false
	case errors.Is(err, drawgate.ErrQueueFull):
		return api.ReasonQueueFull, true
	case limited && e.Decision.Reason == drawgate.Paused:
		return api.ReasonPaused, true
	case limited && !e.Queued:
		return api.ReasonLimited, true
	case limited, errors.Is(err, drawgate.ErrDeadline):
		return api.ReasonQueued, true
	case errors.Is(err, context.DeadlineExceeded) && errors.Is(context.Cause(ctx), drawgate.ErrDeadline):
		return api.ReasonQueued, true // the time ran out during the call to the store
	}
	return "", false
}
