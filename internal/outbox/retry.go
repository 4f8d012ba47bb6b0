package outbox

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/drawgate/drawgate/internal/sleep"
)

// Result is the outcome of an attempt to send an entry, or of the entry.
type Result string

// The results. Each entry has as many of Retried as it takes, and then one of the others.
const (
	Delivered Result = "delivered" // the receiver has accepted it
	Retried   Result = "retried"   // the attempt failed, and another one follows
	Rejected  Result = "rejected"  // the receiver's answer was final: another attempt would not help
	GaveUp    Result = "gave_up"   // the last attempt failed
	Dropped   Result = "dropped"   // the queue was full, or the process ended
)

// Results has all of them.
var Results = [...]Result{Delivered, Retried, Rejected, GaveUp, Dropped}

// The defaults of [Retry], and of how long to go on sending when the process ends.
const (
	defaultTimeout    = 5 * time.Second
	defaultAttempts   = 8
	defaultBackoff    = time.Second
	defaultMaxBackoff = time.Minute
	DefaultClose      = 5 * time.Second
)

// Retry says how often something is sent. Zero, and less, means the default.
type Retry struct {
	Timeout  time.Duration // of one attempt; 5 seconds
	Attempts int           // the most; 8
	// Backoff is the mean pause after the first attempt that fails; it doubles with each further
	// one up to MaxBackoff. One second, and one minute. Each pause is random, between half and one
	// and a half times the mean, but at most MaxBackoff.
	Backoff, MaxBackoff time.Duration
}

// WithDefaults returns r with the defaults in place of what is not set.
func (r Retry) WithDefaults() Retry {
	r.Timeout, r.Attempts = Positive(r.Timeout, defaultTimeout), Positive(r.Attempts, defaultAttempts)
	r.Backoff = Positive(r.Backoff, defaultBackoff)
	r.MaxBackoff = max(r.Backoff, Positive(r.MaxBackoff, defaultMaxBackoff))
	return r
}

// Positive returns n, or otherwise if n is not positive.
func Positive[N int | time.Duration](n, otherwise N) N {
	if n <= 0 {
		return otherwise
	}
	return n
}

// Never is what an attempt returns in place of a pause if another one would not help.
const Never time.Duration = -1

// Attempt sends something. after is how long the receiver asked to wait before the next attempt, 0,
// or [Never].
type Attempt func(context.Context) (after time.Duration, err error)

// Do makes attempts until one succeeds, and returns the last one's error. It waits as long as the
// receiver asked, up to MaxBackoff. ended is told each result, with the attempt's error.
func (r Retry) Do(ctx context.Context, attempt Attempt, ended func(Result, error)) error {
	for i := 1; ; i++ {
		after, err := r.once(ctx, attempt)
		result := Retried
		switch {
		case err == nil:
			result = Delivered
		case ctx.Err() != nil:
			result = Dropped
		case after == Never:
			result = Rejected
		case i == r.Attempts:
			result = GaveUp
		}
		ended(result, err)
		if result != Retried {
			return err
		}
		if !sleep.For(ctx, r.pause(i, after)) {
			ended(Dropped, err)
			return err
		}
	}
}

func (r Retry) once(ctx context.Context, attempt Attempt) (after time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	return attempt(ctx)
}

// pause returns how long to wait after attempt i has failed. after is what the receiver asked for.
func (r Retry) pause(i int, after time.Duration) time.Duration {
	d := r.Backoff
	for range i - 1 {
		d = min(2*d, r.MaxBackoff)
	}
	d = d/2 + rand.N(d) //nolint:gosec // jitter needs no secrecy
	return min(max(d, after), r.MaxBackoff)
}
