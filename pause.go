package drawgate

import (
	"context"
	"fmt"
	"time"

	"github.com/drawgate/drawgate/store"
)

// Pause says until when a bucket refuses every take, and why. Zero is no pause.
type Pause struct {
	Until  time.Time     // by the store's clock, at most MaxHold ahead; for [Ask.Unpause]: the end of the pause to end
	For    time.Duration // for [Ask.Pause]: how long, in place of Until; at most MaxHold
	Reason string        // for people, at most 256 bytes
	By     string        // for [Ask.Pause] and [Ask.Unpause]: who does it, for the history; may be empty
}

// PauseOutcome answers [Ask.Pause] and [Ask.Unpause].
type PauseOutcome struct {
	Until time.Time // when the bucket's pause ends now, according to the store's clock; zero: it is not paused
	Kept  bool      // nothing was changed: the pause lasts longer, or is not the one to end
}

// Pause makes the bucket of key refuse every take for d, at most MaxHold, for everybody who uses
// the store, such as after a 429 of an upstream. reason is for people, at most 256 bytes.
//
// Takes are refused with the reason [Paused]; settlements, renewals and repeated takes with an open
// grant still work; a lease is not renewed. A bucket that is paused for longer stays so. The pause
// ends by itself, or with [Limiter.Unpause].
func (l *Limiter) Pause(ctx context.Context, key string, d time.Duration, reason string) error {
	_, err := l.Ask(key).Pause(ctx, Pause{For: d, Reason: reason})
	return err
}

// Unpause ends the pause of the bucket of key that ends at until: the Pause.Until of a [Status], to
// the microsecond. A pause with another end, which somebody else made, stays; left is its end, or
// zero if the bucket is not paused. So it may be called again. Waiting callers of this process try
// again at once, others within five seconds. A process without contact to the store honours the
// pause that it knows.
func (l *Limiter) Unpause(ctx context.Context, key string, until time.Time, reason string) (left time.Time, err error) {
	out, err := l.Ask(key).Unpause(ctx, Pause{Until: until, Reason: reason})
	return out.Until, err
}

// Pause is [Limiter.Pause] for the bucket that a names, for a time or until an instant of the
// store's clock. An instant that is already past on this process's clock is ErrInvalid. The Costs
// are ignored.
func (a Ask) Pause(ctx context.Context, p Pause) (PauseOutcome, error) {
	return a.setPause(ctx, &p, p.check(), store.Settlement{Op: store.OpPause, Hold: p.For, At: p.Until})
}

// Unpause is [Limiter.Unpause] for the bucket that a names: it ends the pause that ends at p.Until.
// The Costs are ignored.
func (a Ask) Unpause(ctx context.Context, p Pause) (PauseOutcome, error) {
	invalid := p.checkReason()
	if p.Until.IsZero() || p.For != 0 {
		invalid = fmt.Errorf("%w: name the pause to end by its Until, as a Status shows it", ErrInvalid)
	}
	return a.setPause(ctx, &p, invalid, store.Settlement{Op: store.OpUnpause, At: p.Until})
}

func (a Ask) setPause(ctx context.Context, p *Pause, invalid error, s store.Settlement) (PauseOutcome, error) {
	b, err := a.bucket()
	if err == nil {
		err = invalid
	}
	if err != nil {
		return PauseOutcome{}, err
	}
	s.Buckets, s.Reason = []store.BucketCost{b}, p.Reason
	if p.By != "" {
		s.Labels = []Label{{Name: "by", Value: p.By}}
	}
	out, err := a.Limiter.settle(ctx, &s)
	if err == nil && s.Op == store.OpUnpause {
		a.Limiter.queue.wake(b.Key)
	}
	return PauseOutcome{Until: out.End, Kept: out.Kept}, err
}

func (p *Pause) checkReason() error {
	if len(p.Reason) > store.MaxReason {
		return fmt.Errorf("%w: the reason has %d bytes, more than %d", ErrInvalid, len(p.Reason), store.MaxReason)
	}
	return nil
}

func (p *Pause) check() error {
	switch {
	case p.For != 0 && !p.Until.IsZero():
		return fmt.Errorf("%w: give either For or Until for a pause", ErrInvalid)
	case p.For < 0 || p.For > MaxHold || p.For == 0 && p.Until.IsZero():
		return fmt.Errorf("%w: a pause of %v is not between 1µs and %v", ErrInvalid, p.For, MaxHold)
	case p.For == 0 && (!p.Until.After(time.Now()) || time.Until(p.Until) > MaxHold):
		return fmt.Errorf("%w: a pause ends in the future, within 31 days", ErrInvalid)
	}
	return p.checkReason()
}
