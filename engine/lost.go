package engine

import (
	"context"
	"errors"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/sleep"
	"github.com/drawgate/drawgate/store"
)

// Lost is what a Take with a Hold, ID and Grant opened, or may have opened, when its answer was
// lost.
type Lost struct{ first, second Result }

// Lost returns what a Take of r may have opened, so that the caller can cancel it. It takes
// nothing, and does not look at what is open. If nothing enforced counts r, the error is
// [drawgate.ErrGone].
func (e *Engine) Lost(r *Request) (*Lost, error) {
	var found Result
	sc, _ := e.pool.Get().(*scratch)
	defer func() {
		sc.clear()
		e.pool.Put(sc)
	}()
	if err := e.gather(e.state.Load(), r, sc, &found); err != nil {
		return nil, err
	}
	if err := e.within(r, &found); err != nil {
		return nil, err
	}
	if len(sc.enforced) == 0 {
		return nil, drawgate.ErrGone
	}
	l := &Lost{}
	for _, res := range []*Result{&l.first, &l.second} { // a reservation is cancelled once
		var err error
		end := time.Now().Add(r.Hold)
		if res.Reservation, err = sc.enforced[0].Limiter.Resume(r.ID, r.Grant, end, sc.enforced...); err != nil {
			return nil, err
		}
		if len(sc.shadow) > 0 { // errors of shadows have no effect
			res.shadowHold, _ = sc.shadow[0].Limiter.Resume(shadowID(r.ID), r.Grant, end, sc.shadow...)
		}
	}
	return l, nil
}

// Cancel gives everything back, by the grant. It returns [drawgate.ErrGone] if nothing is open.
func (l *Lost) Cancel(ctx context.Context) error { return l.first.Cancel(ctx) }

// CancelAll is Cancel, and if nothing was open it cancels again after [store.SendLife], when the
// take can no longer arrive at the store. A take whose caller has left may still be on its way.
func (l *Lost) CancelAll(ctx context.Context) error {
	if err := l.Cancel(ctx); !errors.Is(err, drawgate.ErrGone) {
		return err
	}
	if !sleep.For(ctx, store.SendLife) {
		return ctx.Err()
	}
	return l.second.Cancel(ctx)
}
