package grpclimit

import (
	"context"
	"errors"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/hold"
)

// ErrHoldLost is the cause of the end of a handler's context whose slot may be another's: its hold
// could not be renewed in time, or its bucket was reset. The handler should stop.
var ErrHoldLost = errors.New("grpclimit: the hold of this call is lost")

// keep holds what a call has reserved while its handler runs.
func (l *Limit) keep(ctx context.Context, method string, res *drawgate.Reservation) *hold.Hold {
	return hold.Keep(ctx, res, hold.Options{
		Package: "grpclimit", For: l.opts.Hold, FailOpen: l.opts.FailOpen, Lost: ErrHoldLost,
		Report: func(err error) { l.report(ctx, method, err) },
	})
}
