package asynqlimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/failure"
	"github.com/drawgate/drawgate/internal/hold"
	"github.com/drawgate/drawgate/internal/sleep"
)

// Options holds what a Limit can do without. The zero value is ready to use. Some fields are in
// config.Queue as well: the section queue of a file, or the variables that are named here.
type Options struct {
	Wait time.Duration // how long a task waits in its worker; 0 means 5m
	// of a task that waited in vain, until it runs again; 0 means 60s (QUEUE_RETRY_DELAY_SECONDS)
	RetryDelay  time.Duration
	MaxAttempts int // how often it is queued again; 0 means 3 (RATE_LIMIT_RETRY_MAX_ATTEMPTS)
	// Multiplier is what the delay after each failure is multiplied by: it is 1s first, and an hour
	// at most; 0 means 2 (RATE_LIMIT_RETRY_BACKOFF_MULTIPLIER). How often a task that fails runs
	// again is asynq's option MaxRetry.
	Multiplier float64
	// how long units stay held if the worker dies; 0 means 30s. While it lives, holds are renewed
	Hold   time.Duration
	Report func(error) // receives errors of holds: one that was not renewed or not given back; nil ignores them
}

// Defaults of Options.
const (
	defaultWait        = 5 * time.Minute
	defaultRetryDelay  = time.Minute
	defaultMaxAttempts = 3
	defaultMultiplier  = 2
	defaultHold        = 30 * time.Second
	firstBackoff       = time.Second
	lastBackoff        = time.Hour
)

// Errors of tasks.
var (
	// ErrGivenUp is the error of a task that waited in vain, and was queued again as often as it
	// may.
	ErrGivenUp = errors.New("asynqlimit: given up")
	// ErrHoldLost is the cause with which a handler's context ends if the task's units are not held
	// any more, because the hold could not be renewed.
	ErrHoldLost = errors.New("asynqlimit: the task's hold was lost")
)

// RequeuedError is the error of a task that is queued again because it did not get its units.
type RequeuedError struct {
	Count, Max int // it is the Count-th time of Max; 0 if nothing was decided, which is not counted
	Err        error
}

// requeued begins the text of a RequeuedError that counts. asynq keeps the text with the task, so
// the next attempt finds the count there.
const requeued = "asynqlimit: queued again, time %d of %d"

// Error implements error.
func (e *RequeuedError) Error() string {
	if e.Count == 0 {
		return "asynqlimit: queued again, because nothing was decided: " + e.Err.Error()
	}
	return fmt.Sprintf(requeued+": %v", e.Count, e.Max, e.Err)
}

// Unwrap returns the reason.
func (e *RequeuedError) Unwrap() error { return e.Err }

// Asks says what a task takes: buckets, priority, labels. Whether to wait and for how long to hold
// is the Limit's. An error is the task's.
//
// The policies of package engine work as well: Engine.Ask returns a bucket.
type Asks func(ctx context.Context, task *asynq.Task) (drawgate.Request, error)

// Limit lets tasks run within a quota. It is safe for concurrent use.
type Limit struct {
	asks  Asks
	opts  Options
	tasks *asynq.Inspector
}

// New returns a Limit. The client is of the Redis server of asynq. opts may be nil.
func New(client redis.UniversalClient, asks Asks, opts *Options) (*Limit, error) {
	if client == nil || asks == nil {
		return nil, errors.New("asynqlimit: the client or the function that says what a task takes is nil")
	}
	l := &Limit{asks: asks, tasks: asynq.NewInspectorFromRedisClient(client)}
	if opts != nil {
		l.opts = *opts
	}
	o := &l.opts
	o.Wait, o.RetryDelay, o.MaxAttempts = cmp.Or(o.Wait, defaultWait), cmp.Or(o.RetryDelay, defaultRetryDelay),
		cmp.Or(o.MaxAttempts, defaultMaxAttempts)
	o.Multiplier, o.Hold = cmp.Or(o.Multiplier, defaultMultiplier), cmp.Or(o.Hold, defaultHold)
	if o.Report == nil {
		o.Report = func(error) {}
	}
	if o.Wait < 0 || o.RetryDelay < 0 || o.MaxAttempts < 0 || !(o.Multiplier >= 1) || o.Hold < hold.Min ||
		o.Hold > drawgate.MaxHold {
		return nil, fmt.Errorf("asynqlimit: options %+v are out of bounds: nothing may be negative, Multiplier must be at least 1, and Hold between %v and %v", *opts, hold.Min, drawgate.MaxHold)
	}
	return l, nil
}

// Middleware is an [asynq.MiddlewareFunc]. The handler's context ends with the cause [ErrHoldLost]
// if its units are lost.
func (l *Limit) Middleware(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		held, err := l.take(ctx, task)
		if err != nil {
			return err
		}
		defer held.End()
		return next.ProcessTask(held.Context(), task)
	})
}

var _ asynq.MiddlewareFunc = (*Limit)(nil).Middleware

// RetryDelay is an [asynq.RetryDelayFunc].
func (l *Limit) RetryDelay(n int, err error, _ *asynq.Task) time.Duration {
	if !l.IsFailure(err) {
		return l.opts.RetryDelay
	}
	delay := firstBackoff.Seconds() * math.Pow(l.opts.Multiplier, float64(n))
	return time.Duration(min(delay, lastBackoff.Seconds()) * float64(time.Second))
}

// IsFailure is for IsFailure of [asynq.Config]: a task that is queued again for want of units has
// not failed.
func (l *Limit) IsFailure(err error) bool {
	_, ok := errors.AsType[*RequeuedError](err)
	return err != nil && !ok
}

// take takes a task's units, and waits for them. On the task's last attempt, it does so several
// times.
func (l *Limit) take(ctx context.Context, task *asynq.Task) (*hold.Hold, error) {
	count := -1 // not read yet
	for {
		held, err := l.try(ctx, task)
		again, ok := errors.AsType[*RequeuedError](err)
		if !ok {
			return held, err
		}
		if again.Max > 0 {
			if count < 0 {
				count = l.count(ctx)
			}
			if count >= again.Max {
				return nil, fmt.Errorf("%w after being queued again %d times: %w (%w)", ErrGivenUp, count, again.Err,
					asynq.SkipRetry)
			}
			count++
			again.Count = count
		}
		if !last(ctx) {
			return nil, again
		}
		if !sleep.For(ctx, l.opts.RetryDelay) {
			return nil, ctx.Err()
		}
	}
}

// count returns how often the task was queued again.
func (l *Limit) count(ctx context.Context) (n int) {
	id, ok := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	if !ok {
		return 0
	}
	info, err := l.tasks.GetTaskInfo(queue, id)
	if err != nil {
		return 0 // then it may be queued again more often
	}
	var most int
	if _, err := fmt.Sscanf(info.LastErr, requeued, &n, &most); err != nil {
		return 0 // its last error was another one, or there was none
	}
	return n
}

// last reports whether asynq would archive the task after any error.
func last(ctx context.Context) bool {
	retried, ok := asynq.GetRetryCount(ctx)
	most, _ := asynq.GetMaxRetry(ctx)
	return ok && retried >= most
}

// try takes a task's units once. The error is a *RequeuedError, with Max 0 if nothing was decided,
// if the task may try again later.
func (l *Limit) try(ctx context.Context, task *asynq.Task) (*hold.Hold, error) {
	req, err := l.asks(ctx, task)
	if err != nil {
		return nil, err
	}
	if len(req.Buckets) == 0 || req.Buckets[0].Limiter == nil {
		return nil, fmt.Errorf("asynqlimit: the take of task type %q names no bucket, or one without its Limiter (%w)",
			task.Type(), asynq.SkipRetry)
	}
	req.Wait, req.Hold.For = true, l.opts.Hold
	until, cancel := context.WithTimeoutCause(ctx, l.opts.Wait, drawgate.ErrDeadline)
	defer cancel()
	_, res, err := req.Buckets[0].Limiter.Take(until, req)
	switch kind := failure.Of(err); {
	case err == nil:
		return hold.Keep(ctx, res, hold.Options{
			Package: "asynqlimit", For: l.opts.Hold, Lost: ErrHoldLost,
			Report: l.opts.Report,
		}), nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case kind == failure.TimedOut, kind == failure.QueueFull:
		return nil, &RequeuedError{Max: l.opts.MaxAttempts, Err: err}
	case kind == failure.Unavailable, kind == failure.Closed:
		return nil, &RequeuedError{Err: err}
	case kind.Mistake():
		return nil, fmt.Errorf("%w (%w)", err, asynq.SkipRetry)
	}
	return nil, err
}
