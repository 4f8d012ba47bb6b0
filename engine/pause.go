package engine

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/drawgate/drawgate"
)

// MaxPause is the longest pause.
const MaxPause = drawgate.MaxHold

// Pause says how long a bucket refuses takes, and why.
type Pause struct {
	For    time.Duration // 1ms to MaxPause; 0: until Until
	Until  time.Time     // by the store's clock; not with For
	Reason string        // for people: at most drawgate.MaxReason bytes, without control characters; may be empty
}

// Pause lets the bucket of a policy's key refuse every take for a time, whoever asks, in every process: settlements, renewals and takes that are sent again
// go on. A pause is never made shorter by another one; a reset ends it. It returns when the pause ends, by the store's clock. The Costs of a play no part.
func (e *Engine) Pause(ctx context.Context, a Ask, p Pause) (until time.Time, err error) {
	if err := p.check(time.Now()); err != nil {
		return until, err
	}
	ask, err := e.Ask(a.Policy, a.Tenant, a.Key)
	if err != nil {
		return until, err
	}
	plan := ask.Limiter.Plan()
	s := drawgate.Settlement{
		Op: drawgate.OpPause, Hold: p.For, At: p.Until, Reason: p.Reason,
		Buckets: []drawgate.BucketCost{{Key: drawgate.Key{Tenant: e.tenant(a.Tenant), Policy: plan.Name(), Name: a.Key}, Plan: plan}},
	}
	ctx, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	var out [1]drawgate.Outcome
	if err := e.store.Settle(ctx, []drawgate.Settlement{s}, out[:]); err != nil {
		return until, err
	}
	return out[0].End, out[0].Err
}

// pauseTimeout bounds the store call of a pause.
const pauseTimeout = 2 * time.Second

func (p *Pause) check(now time.Time) error {
	switch {
	case (p.For == 0) == p.Until.IsZero():
		return fmt.Errorf("%w: a pause is for a time, or until an instant: give one of them", drawgate.ErrInvalid)
	case p.For != 0 && (p.For < time.Millisecond || p.For > MaxPause):
		return fmt.Errorf("%w: a pause for %v is not between 1ms and %v", drawgate.ErrInvalid, p.For, MaxPause)
	case p.For == 0 && (!p.Until.After(now) || p.Until.Sub(now) > MaxPause):
		return fmt.Errorf("%w: a pause until %s does not end within %v from now", drawgate.ErrInvalid, p.Until.UTC().Format(time.RFC3339), MaxPause)
	case len(p.Reason) > drawgate.MaxReason:
		return fmt.Errorf("%w: the reason has %d bytes, more than %d", drawgate.ErrInvalid, len(p.Reason), drawgate.MaxReason)
	case !utf8.ValidString(p.Reason) || strings.ContainsFunc(p.Reason, unicode.IsControl):
		return fmt.Errorf("%w: the reason has control characters, or is not UTF-8", drawgate.ErrInvalid)
	}
	return nil
}
