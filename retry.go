package drawgate

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/drawgate/drawgate/internal/queue"
	"github.com/drawgate/drawgate/internal/sleep"
)

// Attempts to get an answer where asking again is safe, because the id makes it so.
const (
	attempts   = 3
	firstRetry = 20 * time.Millisecond
)

// ask gets an answer of the store, in at most step per attempt and all in all; 0 bounds nothing. A
// take with an id is sent again if the store is unavailable: if it had arrived, it is answered
// again at no cost. A plain take may have been spent, and is not sent again.
func (l *Limiter) ask(ctx context.Context, t *take, step, all time.Duration) (Decision, error) {
	if t.ID == "" {
		return l.once(ctx, t, step)
	}
	start := time.Now()
	for i := 0; ; i++ {
		d, err := l.once(ctx, t, step)
		if !errors.Is(err, ErrStoreUnavailable) || i == attempts-1 || ctx.Err() != nil {
			return d, err
		}
		pause := backoff(i)
		if all > 0 {
			if step = all - time.Since(start) - pause; step <= 0 {
				return d, err
			}
		}
		if !sleep.For(ctx, pause) {
			return d, err
		}
	}
}

// backoff returns the pause after failed attempt i, with jitter.
func backoff(i int) time.Duration {
	d := firstRetry << (2 * i)
	return d/2 + rand.N(d) //nolint:gosec // jitter needs no secrecy
}

// inTime shortens a pause so that its jitter does not carry it over ctx's deadline.
func inTime(ctx context.Context, pause, retryAfter time.Duration) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return pause
	}
	left := time.Until(end)
	if retryAfter < left && left <= pause && pause-retryAfter <= queue.MaxJitter {
		return retryAfter + (left-retryAfter)/2
	}
	return pause
}

// pausePoll is how often the one in front looks whether a pause was ended.
const pausePoll = 5 * time.Second

// early reports whether t may be granted a little before it fits: not if it was refused although it
// could have been, not where what is held may come back at any time, and not where the policy says
// when to ask.
func (d *Decision) early(t *take) bool {
	r, ok := d.Refusing()
	return ok && d.RetryAfter > t.Ahead && d.EarliestRetry == d.RetryAfter &&
		len(d.bucket(r.Bucket-int(d.first)).policy.Wait.Backoff) == 0
}

// pause returns how long to wait after a refusal.
func (d *Decision) pause(attempt int) time.Duration {
	r, ok := d.Refusing()
	if !ok { // it is paused, perhaps for a day: another process may end that, which nothing tells
		return min(max(time.Millisecond, d.RetryAfter), pausePoll)
	}
	window := r.Limit.Window
	if r.Limit.Kind == Calendar {
		window = r.ResetAfter()
	}
	plan := d.bucket(r.Bucket)
	return queue.Refusal{
		Attempt: attempt, RetryAfter: d.RetryAfter, EarliestRetry: d.EarliestRetry,
		Spread: queue.Spread(window, r.Limit.Amount),
	}.Delay(plan.policy.Wait.Backoff, rand.Float64()) //nolint:gosec // jitter needs no secrecy
}
