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

// Pause makes the bucket of a policy's key refuse every take for a time: see
// [drawgate.Limiter.Pause]. The Costs of a are ignored. The reason must be UTF-8 without control
// characters.
func (e *Engine) Pause(ctx context.Context, a Ask, p drawgate.Pause) (out drawgate.PauseOutcome, err error) {
	if err := checkPause(&p); err != nil {
		return out, err
	}
	ask, err := e.Ask(a.Policy, a.Tenant, a.Key)
	if err != nil {
		return out, err
	}
	return ask.Pause(ctx, p)
}

// Unpause ends the pause of the bucket of a policy's key that ends at p.Until: see
// [drawgate.Limiter.Unpause]. The Costs of a are ignored. The reason must be UTF-8 without control
// characters.
func (e *Engine) Unpause(ctx context.Context, a Ask, p drawgate.Pause) (out drawgate.PauseOutcome, err error) {
	if err := checkReason(p.Reason); err != nil {
		return out, err
	}
	ask, err := e.Ask(a.Policy, a.Tenant, a.Key)
	if err != nil {
		return out, err
	}
	return ask.Unpause(ctx, p)
}

func checkPause(p *drawgate.Pause) error {
	switch {
	case (p.For == 0) == p.Until.IsZero():
		return fmt.Errorf("%w: give either For or Until for a pause", drawgate.ErrInvalid)
	case p.For != 0 && p.For < time.Millisecond:
		return fmt.Errorf("%w: a pause of %v is shorter than 1ms", drawgate.ErrInvalid, p.For)
	}
	return checkReason(p.Reason)
}

func checkReason(reason string) error {
	if !utf8.ValidString(reason) || strings.ContainsFunc(reason, unicode.IsControl) {
		return fmt.Errorf("%w: the reason has control characters, or is not UTF-8", drawgate.ErrInvalid)
	}
	return nil
}
