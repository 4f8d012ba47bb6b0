package drawgate

import (
	"context"
	"fmt"
	"time"
)

// Pause says until when a bucket refuses every take, and why. The zero value is no pause.
type Pause struct {
	Until  time.Time     // according to the store's clock
	For    time.Duration // for [Ask.Pause]: how long, in place of Until
	Reason string        // for people, at most MaxReason bytes
}

// Pause makes the bucket of key refuse every take for d, for everybody who uses the store, for
// example because an upstream said 429, or an operator said so. reason is for people, at most
// MaxReason bytes.
//
// It stops takes only: settlements, renewals and repeated takes with an open grant still work; a
// lease is not renewed. A bucket that is already paused for longer stays paused. The pause ends by
// itself, or with [Limiter.Reset]. Takes are refused with the reason [Paused], from the first that
// is decided after Pause returned.
func (l *Limiter) Pause(ctx context.Context, key string, d time.Duration, reason string) error {
	_, err := l.Ask(key).Pause(ctx, Pause{For: d, Reason: reason})
	return err
}

// Pause is [Limiter.Pause] for the bucket that a names, for a time or until an instant of the
// store's clock. It returns when the pause ends, according to that clock. An instant that is
// already past on this process's clock is ErrInvalid. The Costs are ignored.
func (a Ask) Pause(ctx context.Context, p Pause) (until time.Time, err error) {
	b, err := a.bucket()
	if err == nil {
		err = p.check()
	}
	if err != nil {
		return until, err
	}
	s := &Settlement{Op: OpPause, Buckets: []BucketCost{b}, Hold: p.For, At: p.Until, Reason: p.Reason}
	out, err := a.Limiter.settle(ctx, s)
	return out.End, err
}

func (p *Pause) check() error {
	switch {
	case len(p.Reason) > MaxReason:
		return fmt.Errorf("%w: the reason has %d bytes, more than %d", ErrInvalid, len(p.Reason), MaxReason)
	case p.For != 0 && !p.Until.IsZero():
		return fmt.Errorf("%w: give either For or Until for a pause", ErrInvalid)
	case p.For < 0 || p.For > MaxHold || p.For == 0 && p.Until.IsZero():
		return fmt.Errorf("%w: a pause of %v is not between 1µs and %v", ErrInvalid, p.For, MaxHold)
	case p.For == 0 && (!p.Until.After(time.Now()) || time.Until(p.Until) > MaxHold):
		return fmt.Errorf("%w: a pause ends in the future, within 31 days", ErrInvalid)
	}
	return nil
}
