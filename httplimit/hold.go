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
	renewParts   = 3                      // a hold is renewed after this part of it, so that two more attempts fit
	endTimeout   = time.Second            // for giving back, while the client waits for the end of the answer
	renewTimeout = 2 * time.Second
)

// hold is what a request holds while its handler runs. It is renewed by a timer: a process that dies renews nothing, and the store ends the hold.
type hold struct {
	m      *Middleware
	r      *http.Request
	res    *drawgate.Reservation
	ctx    context.Context //nolint:containedctx // the handler's, which this ends
	cancel context.CancelCauseFunc
	once   sync.Once

	mu    sync.Mutex  // held while it is being renewed
	timer *time.Timer // guarded by mu
	over  bool        // guarded by mu: ended, or lost
	lost  bool        // guarded by mu
}

func (m *Middleware) newHold(r *http.Request, res *drawgate.Reservation) *hold {
	h := &hold{m: m, r: r, res: res}
	h.ctx, h.cancel = context.WithCancelCause(r.Context())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(m.opts.Hold/renewParts, h.renew)
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
		h.timer.Reset(h.m.opts.Hold / renewParts)
		return
	case !errors.Is(err, drawgate.ErrGone) && (left > 0 || h.m.opts.FailOpen):
		h.m.report(h.r, fmt.Errorf("httplimit: a hold was not renewed: %w", err))
		h.timer.Reset(max(left/renewParts, h.m.opts.Hold/20)) // the last attempt comes after the deadline: then it is lost
		return
	}
	h.over, h.lost = true, true
	h.m.report(h.r, fmt.Errorf("%w: %w", ErrHoldLost, err))
	h.cancel(ErrHoldLost)
}

// try renews once. An end of the handler does not wait for it.
func (h *hold) try() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), min(renewTimeout, h.m.opts.Hold/renewParts))
	defer cancel()
	stop := context.AfterFunc(h.ctx, func() {
		if context.Cause(h.ctx) == errEnded { //nolint:errorlint // it is that one and no other
			cancel()
		}
	})
	defer stop()
	return h.res.Renew(ctx, h.m.opts.Hold)
}

// errEnded is the cause of the end of a handler's context when the handler has returned.
var errEnded = fmt.Errorf("httplimit: the request was served (%w)", context.Canceled)

// end settles what was held as it was estimated: what was asked for counts as used, slots come free. It does not depend on the client: one that went away
// has used them too. If the store is away the hold ends by itself.
func (h *hold) end() {
	h.once.Do(func() {
		h.cancel(errEnded)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.timer.Stop()
		h.over = true
		ctx, cancel := context.WithTimeout(context.WithoutCancel(h.r.Context()), endTimeout)
		defer cancel()
		if err := h.res.Settle(ctx); err != nil && !h.lost {
			h.m.report(h.r, fmt.Errorf("httplimit: what a request held was not given back, and ends by itself: %w", err))
		}
	})
}
