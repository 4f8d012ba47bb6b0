// Package hold keeps a reservation's units held while a handler runs, and gives them back when it
// has ended.
package hold

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/drawgate/drawgate"
)

// Min is the shortest hold. A shorter one could not be renewed in time.
const Min = 100 * time.Millisecond

// Times of a hold.
const (
	renewParts   = 3  // a hold is renewed after this fraction of it, so that there is time for more attempts
	lastParts    = 20 // this fraction of a hold lies between the last attempts
	renewTimeout = 2 * time.Second
	endTimeout   = time.Second // for giving back, while the client waits for the end of the answer
)

// Options configure a hold. All but FailOpen are required.
type Options struct {
	Package  string        // prefix of the errors
	For      time.Duration // how long the units were reserved for; at least Min
	FailOpen bool          // continue during an outage, though the hold may have ended
	Lost     error         // the cause with which the handler's context ends if the hold is lost
	Report   func(error)   // receives errors
}

// Held is what is held: a *drawgate.Reservation is one.
type Held interface {
	Renew(ctx context.Context, hold time.Duration) error
	Settle(ctx context.Context, used ...drawgate.Cost) error
	Cancel(ctx context.Context) error
	Deadline() time.Time
}

// Hold is what a handler holds while it runs. This process renews it: if the process dies nobody
// does, and the store ends the hold.
type Hold struct {
	opts   Options
	res    Held
	ctx    context.Context //nolint:containedctx // the handler's, which is ended from here
	cancel context.CancelCauseFunc
	life   context.Context //nolint:containedctx // for renewals: it does not end with the client
	stop   context.CancelFunc
	once   sync.Once
	first  *time.Timer   // starts renewing: most handlers have ended before
	done   chan struct{} // closed when renewing has ended
	lost   bool          // set before done is closed
}

// Keep renews a reservation until End. ctx is the request's.
func Keep(ctx context.Context, res Held, opts Options) *Hold {
	h := &Hold{opts: opts, res: res, done: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	h.life, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	h.first = time.AfterFunc(opts.For/renewParts, h.keep)
	return h
}

// Context returns the handler's context. It ends when the handler must have stopped.
func (h *Hold) Context() context.Context { return h.ctx }

// keep renews the hold until it ends. It ends the handler's context when the handler must have
// stopped, and not later.
func (h *Hold) keep() {
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
			h.cancel(h.opts.Lost)
			h.opts.Report(fmt.Errorf("%w: %w", h.opts.Lost, err))
			return
		case err != nil:
			h.opts.Report(err)
		}
		timer.Reset(next)
	}
}

// renew renews once, within the remaining time.
func (h *Hold) renew() error {
	limit := min(renewTimeout, h.opts.For/renewParts)
	if !h.opts.FailOpen {
		limit = min(limit, time.Until(h.res.Deadline()))
	}
	ctx, cancel := context.WithTimeout(h.life, max(0, limit))
	defer cancel()
	if err := h.res.Renew(ctx, h.opts.For); err != nil {
		return fmt.Errorf("%s: a hold was not renewed: %w", h.opts.Package, err)
	}
	return nil
}

// next returns when to renew again after a renewal that ended with err, or that the hold is lost.
// With FailOpen, it continues during an outage.
func (h *Hold) next(err error) (after time.Duration, lost bool) {
	every := h.opts.For / renewParts
	left := time.Until(h.res.Deadline())
	switch {
	case err == nil:
		return every, false
	case errors.Is(err, drawgate.ErrGone):
		return 0, true
	case left > 0:
		return min(left, max(left/renewParts, h.opts.For/lastParts)), false
	}
	return every, !h.opts.FailOpen
}

// End settles the hold with what was used; a unit that is not named counts as estimated, and slots
// come free. It does not depend on the client: a client that left has used them too. During an
// outage the hold ends by itself. Only the first End or Cancel has an effect; its error, which
// Report receives as well, says that the hold has to end by itself.
func (h *Hold) End(used ...drawgate.Cost) error {
	return h.end(func(ctx context.Context) error { return h.res.Settle(ctx, used...) })
}

// Cancel ends the hold and gives everything back.
func (h *Hold) Cancel() error { return h.end(h.res.Cancel) }

func (h *Hold) end(give func(context.Context) error) (err error) {
	h.once.Do(func() {
		h.stop()
		if !h.first.Stop() {
			<-h.done
		}
		h.cancel(nil)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), endTimeout)
		defer cancel()
		if err = give(ctx); err != nil && !h.lost {
			err = fmt.Errorf("%s: a hold could not be given back, and ends by itself: %w", h.opts.Package, err)
			h.opts.Report(err)
		}
	})
	return err
}
