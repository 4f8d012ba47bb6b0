package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/drawgate/drawgate"
)

// ErrHoldLost is the cause of the end of a handler's context whose slot may be another's: its hold could not be renewed in time, or its bucket was reset.
// The handler should stop.
var ErrHoldLost = errors.New("httplimit: the hold of this request is lost")

// Times of a hold.
const (
	minHold      = 100 * time.Millisecond // less cannot be renewed in time
	renewParts   = 3                      // a hold is renewed after this part of it, so that more attempts fit
	lastParts    = 20                     // of a hold lie between the last attempts
	renewTimeout = 2 * time.Second
	endTimeout   = time.Second // for giving back, while the client waits for the end of the answer
)

// hold is what a request holds while its handler runs. This process renews it: one that dies renews nothing, and the store ends the hold.
type hold struct {
	m      *Middleware
	r      *http.Request
	res    *drawgate.Reservation
	ctx    context.Context //nolint:containedctx // the handler's, which this ends
	cancel context.CancelCauseFunc
	life   context.Context //nolint:containedctx // of the hold, for renewals: it does not end with the client
	stop   context.CancelFunc
	once   sync.Once
	first  *time.Timer   // starts renewing: most requests are served before
	done   chan struct{} // closed when renewing has ended
	lost   bool          // set before done is closed
}

func (m *Middleware) newHold(r *http.Request, res *drawgate.Reservation) *hold {
	h := &hold{m: m, r: r, res: res, done: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(r.Context())
	h.life, h.stop = context.WithCancel(context.WithoutCancel(r.Context()))
	h.first = time.AfterFunc(m.opts.Hold/renewParts, h.keep)
	return h
}

// keep renews the hold until it ends. It ends the handler's context when the holder must have stopped, and not later.
func (h *hold) keep() {
	defer close(h.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-h.life.Done():
			return
		case <-timer.C:
		}
		err := h.renew()
		if h.life.Err() != nil {
			return
		}
		next, lost := h.next(err)
		switch {
		case lost:
			h.lost = true
			h.cancel(ErrHoldLost)
			h.m.report(h.r, fmt.Errorf("%w: %w", ErrHoldLost, err))
			return
		case err != nil:
			h.m.report(h.r, err)
		}
		timer.Reset(next)
	}
}

// renew renews once, in the time that is left.
func (h *hold) renew() error {
	limit := min(renewTimeout, h.m.opts.Hold/renewParts)
	if !h.m.opts.FailOpen {
		limit = min(limit, time.Until(h.res.Deadline()))
	}
	ctx, cancel := context.WithTimeout(h.life, max(0, limit))
	defer cancel()
	if err := h.res.Renew(ctx, h.m.opts.Hold); err != nil {
		return fmt.Errorf("httplimit: a hold was not renewed: %w", err)
	}
	return nil
}

// next says when to renew again after a renewal that ended with err, or that the hold is lost. While the store is away, who fails open keeps going.
func (h *hold) next(err error) (after time.Duration, lost bool) {
	every := h.m.opts.Hold / renewParts
	left := time.Until(h.res.Deadline())
	switch {
	case err == nil:
		return every, false
	case errors.Is(err, drawgate.ErrGone):
		return 0, true
	case left > 0:
		return min(left, max(left/renewParts, h.m.opts.Hold/lastParts)), false
	}
	return every, !h.m.opts.FailOpen
}

// end settles what was held as it was estimated: what was asked for counts as used, slots come free. It does not depend on the client: one that went away
// has used them too. If the store is away the hold ends by itself.
func (h *hold) end() {
	h.once.Do(func() {
		h.stop()
		if !h.first.Stop() {
			<-h.done
		}
		h.cancel(nil)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(h.r.Context()), endTimeout)
		defer cancel()
		if err := h.res.Settle(ctx); err != nil && !h.lost {
			h.m.report(h.r, fmt.Errorf("httplimit: what a request held was not given back, and ends by itself: %w", err))
		}
	})
}
