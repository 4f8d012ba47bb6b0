package drawgate

import (
	"context"
	"fmt"
	"time"
)

// Pause lets the bucket of key refuse every take for d, for everybody who uses the store: an
// upstream said 429, or an operator said so. reason is for people, at most MaxReason bytes.
//
// It stops takes only: settlements, renewals and answers that are asked for again go on; a lease is
// not renewed. A bucket that is paused for longer stays so. It ends by itself, or by
// [Limiter.Reset]. Takes are refused with the reason [Paused], from the first that is decided after
// Pause returned.
func (l *Limiter) Pause(ctx context.Context, key string, d time.Duration, reason string) error {
	if d <= 0 || d > MaxHold {
		return fmt.Errorf("%w: a pause of %v is not between 1µs and %v", ErrInvalid, d, MaxHold)
	}
	_, err := l.PauseAsk(ctx, l.Ask(key), d, time.Time{}, reason)
	return err
}

// PauseUntil is like [Limiter.Pause] until an instant of the store's clock. One that is over is
// ErrInvalid by this process's clock.
func (l *Limiter) PauseUntil(ctx context.Context, key string, until time.Time, reason string) error {
	_, err := l.PauseAsk(ctx, l.Ask(key), 0, until, reason)
	return err
}

// PauseAsk is [Limiter.Pause] for the bucket that b names, for d or, if that is 0, until an
// instant. It returns when the pause ends, by the store's clock.
func (l *Limiter) PauseAsk(ctx context.Context, b Ask, d time.Duration, until time.Time, reason string) (end time.Time, err error) {
	o := b.Limiter
	if o == nil {
		o = l
	}
	if err := checkKey(b.Tenant, b.Key); err != nil {
		return end, err
	}
	switch {
	case o.lobby != l.lobby:
		return end, errForeign
	case len(reason) > MaxReason:
		return end, fmt.Errorf("%w: the reason has %d bytes, more than %d", ErrInvalid, len(reason), MaxReason)
	case d < 0 || d > MaxHold || d == 0 && (!until.After(time.Now()) || time.Until(until) > MaxHold):
		return end, fmt.Errorf("%w: a pause ends in the future, within 31 days", ErrInvalid)
	}
	s := &Settlement{Op: OpPause, Buckets: []BucketCost{{Key: o.keyOf(&b), Plan: o.plan}}, Hold: d, At: until, Reason: reason}
	out, err := l.settle(ctx, s)
	return out.End, err
}
