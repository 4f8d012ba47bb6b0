package guard

import (
	"context"
	"errors"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/ledger"
)

// reserve is how long before a caller's own deadline it is answered.
const reserve = 5 * time.Millisecond

// limit bounds an attempt. whole says that the store had a fair time: one that does not answer a
// caller in a hurry is not away.
func (s *Store) limit(ctx context.Context) (_ context.Context, cancel context.CancelFunc, whole bool) {
	d := s.timeout
	whole = true
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		if left -= min(reserve, left/2); left < d {
			d, whole = left, left >= s.timeout/4
		}
	}
	ctx, cancel = context.WithTimeout(ctx, d)
	return ctx, cancel, whole
}

// attempt asks the store once, and judges by the answer whether it is away. caller is who asks: if
// it gives up, that says nothing.
func (s *Store) attempt(ctx, caller context.Context, op string, whole bool, f func(context.Context) error) error {
	epoch := s.epoch.Load()
	err := f(ctx)
	if err == nil {
		if s.shaky.Load() || s.news.active.Load() {
			s.succeeded(epoch)
		}
		return nil
	}
	fault, unavailable := ledger.Classify(err)
	if !unavailable || gaveUp(caller) {
		return err
	}
	late := errors.Is(err, context.DeadlineExceeded)
	s.failed(epoch, op, err, fault, fault != drawgate.FaultBucket && (whole || !late))
	return err
}

// gaveUp reports whether a caller has left: not because its time was over, but because it wanted
// to.
func gaveUp(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// isOutage reports whether an error means that the store is away for everybody.
func isOutage(err error) bool {
	fault, unavailable := ledger.Classify(err)
	return unavailable && fault != drawgate.FaultBucket
}

func (s *Store) succeeded(epoch uint64) {
	s.mu.Lock()
	s.brk.Succeeded(epoch)
	if !s.brk.Open() && epoch == s.brk.Epoch() {
		s.shaky.Store(false)
	}
	s.news.calm(!s.brk.Open())
	s.mu.Unlock()
}

// failed takes note of a failure. counts says that it is one of the store's as a whole.
func (s *Store) failed(epoch uint64, op string, err error, fault drawgate.Fault, counts bool) {
	se := asStoreError(op, err)
	opened := false
	if counts {
		s.mu.Lock()
		s.fault = se
		s.shaky.Store(true)
		if fault == drawgate.FaultLasting {
			opened = s.brk.Trip(epoch)
		} else {
			opened = s.brk.Failed(epoch)
		}
		if opened {
			s.turned()
		}
		s.mu.Unlock()
	}
	s.news.failed(&BackendError{Op: op, Err: se, Fault: fault})
	if opened {
		s.news.opened(se)
		s.wake()
	}
}

// turned publishes the breaker's state. mu is held.
func (s *Store) turned() {
	s.epoch.Store(s.brk.Epoch())
	s.open.Store(s.brk.Open())
}

// asStoreError makes every failure one of our errors.
func asStoreError(op string, err error) *drawgate.StoreError {
	if se, ok := errors.AsType[*drawgate.StoreError](err); ok {
		return se
	}
	return &drawgate.StoreError{Store: "unknown", Op: op, Err: err}
}

// unavailable returns why the store is not asked for op.
func (s *Store) unavailable(op string) *drawgate.StoreError {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault == nil {
		return &drawgate.StoreError{Store: "unknown", Op: op, Err: errUnavailable}
	}
	return &drawgate.StoreError{Store: s.fault.Store, Op: op, Err: s.fault.Err, Fault: s.fault.Fault}
}

var errUnavailable = errors.New("it is away, and is tried again in the background")

// nap waits a moment before a take with an id is sent again. It reports whether there is time left.
func (s *Store) nap(ctx context.Context) bool {
	t := time.NewTimer(time.Millisecond + time.Duration(s.opts.random()*float64(4*time.Millisecond)))
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
