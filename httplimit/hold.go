package httplimit

import (
	"errors"
	"net/http"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/hold"
)

// ErrHoldLost is the cause of the end of a handler's context whose slot may be another's: its hold
// could not be renewed in time, or its bucket was reset. The handler should stop.
var ErrHoldLost = errors.New("httplimit: the hold of this request is lost")

// keep holds what a request has reserved while its handler runs.
func (m *Middleware) keep(r *http.Request, res *drawgate.Reservation) *hold.Hold {
	return hold.Keep(r.Context(), res, hold.Options{
		Package: "httplimit", For: m.opts.Hold, FailOpen: m.opts.FailOpen, Lost: ErrHoldLost,
		Report: func(err error) { m.report(r, err) },
	})
}
