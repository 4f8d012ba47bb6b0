package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/drawgate/drawgate"
)

// ErrHoldLost is the cause of the end of a handler's context whose slot may be another's: its hold could not be renewed in time, or its bucket was reset.
// The handler should stop.
var ErrHoldLost = errors.New("grpclimit: the hold of this call is lost")

// errEnded is the cause of the end of a handler's context when the handler has returned.
var errEnded = fmt.Errorf("grpclimit: the call was served (%w)", context.Canceled)

// Times of a hold.
const (
	renewParts   = 3           // a hold is renewed after this part of it, so that two more attempts fit
	retryParts   = 20          // a renewal that failed is tried again no sooner than after this part of it
	endTimeout   = time.Second // for giving back, while the client waits for the status
	renewTimeout = 2 * time.Second
)

// hold is what a call holds while its handler runs. A timer renews it: a process that dies renews nothing, and the store ends the hold.
type hold struct {
	l      *Limit
	method string
	res    *drawgate.Reservation
	ctx    context.Context //nolint:containedctx // the handler's, which this ends
	cancel context.CancelCauseFunc

	mu    sync.Mutex  // held while it is being renewed
	timer *time.Timer // guarded by mu
	over  bool        // guarded by mu: ended, or lost
	lost  bool        // guarded by mu
}

func (l *Limit) newHold(ctx context.Context, method string, res *drawgate.Reservation) *hold {
	h := &hold{l: l, method: method, res: res}
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(l.opts.Hold/renewParts, h.renew)
	return h
}

// renew renews the hold, again and again. It ends the handler's context when the holder must have stopped.
func (h *hold) renew() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	err := h.try()
	left := time.Until(h.res.Deadline())
	switch {
	case err == nil:
		h.timer.Reset(h.l.opts.Hold / renewParts)
		return
	case !errors.Is(err, drawgate.ErrGone) && (left > 0 || h.l.opts.FailOpen):
		h.l.report(h.ctx, h.method, fmt.Errorf("grpclimit: a hold was not renewed: %w", err))
		h.timer.Reset(max(left/renewParts, h.l.opts.Hold/retryParts)) // the last attempt comes after the deadline: then it is lost
		return
	}
	h.over, h.lost = true, true
	h.l.report(h.ctx, h.method, fmt.Errorf("%w: %w", ErrHoldLost, err))
	h.cancel(ErrHoldLost)
}

// try renews once. The end of the handler does not wait for it; that of the client does not end it, since the handler may still run.
func (h *hold) try() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), min(renewTimeout, h.l.opts.Hold/renewParts))
	defer cancel()
	stop := context.AfterFunc(h.ctx, func() {
		if context.Cause(h.ctx) == errEnded { //nolint:errorlint // it is that one and no other
			cancel()
		}
	})
	defer stop()
	return h.res.Renew(ctx, h.l.opts.Hold)
}

// end settles what was held as it was estimated: what was asked for counts as used, slots come free. It does not depend on the client: one that went away
// has used them too. If the store is away the hold ends by itself.
func (h *hold) end() {
	h.cancel(errEnded)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer.Stop()
	h.over = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), endTimeout)
	defer cancel()
	if err := h.res.Settle(ctx); err != nil && !h.lost {
		h.l.report(ctx, h.method, fmt.Errorf("grpclimit: what a call held was not given back, and ends by itself: %w", err))
	}
}
