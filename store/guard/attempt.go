package guard

import (
	"context"
	"errors"
	"time"

	"github.com/drawgate/drawgate/internal/ledger"
	"github.com/drawgate/drawgate/store"
)

// reserve is how long before the caller's own deadline it gets its answer.
const reserve = 5 * time.Millisecond

// limit puts a time limit on an attempt. fair is true if the store has enough time: a timeout in
// less time does not mean that the store is unavailable.
func (s *Store) limit(ctx context.Context) (_ context.Context, cancel context.CancelFunc, fair bool) {
	d := s.timeout
	fair = true
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		if left -= min(reserve, left/2); left < d {
			d, fair = left, left >= s.timeout/4
		}
	}
	ctx, cancel = context.WithTimeout(ctx, d)
	return ctx, cancel, fair
}

// attempt calls the store once and decides from the result whether it is unavailable. If the caller
// gives up, the result says nothing about the store.
func (s *Store) attempt(ctx, caller context.Context, op string, fair bool, f func(context.Context) error) error {
	epoch, was := s.epoch.Load(), s.inner.Load()
	err := f(ctx)
	for now := s.inner.Load(); now != was && errors.Is(err, store.ErrClosed); now = s.inner.Load() {
		was, err = now, f(ctx) // the one that was asked had been replaced and closed, and did nothing
	}
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
	s.failed(epoch, op, err, fault, fault != store.FaultBucket && (fair || !late))
	return err
}

// gaveUp reports whether the caller cancelled, as opposed to running out of time.
func gaveUp(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// isOutage reports whether an error means that the whole store is unavailable, not just one bucket.
func isOutage(err error) bool {
	fault, unavailable := ledger.Classify(err)
	return unavailable && fault != store.FaultBucket
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

// failed records a failure. It counts towards opening the breaker if counts is true.
func (s *Store) failed(epoch uint64, op string, err error, fault store.Fault, counts bool) {
	se := asStoreError(op, err)
	opened := false
	if counts && store.Internal.Counts(se) {
		s.mu.Lock()
		s.fault = se
		s.shaky.Store(true)
		if fault == store.FaultPermanent {
			opened = s.brk.Trip(epoch)
		} else {
			opened = s.brk.Failed(epoch)
		}
		if opened {
			s.publishBreaker()
		}
		s.mu.Unlock()
	}
	s.news.failed(&BackendError{Op: op, Err: se, Fault: fault})
	if opened {
		s.news.opened(se)
		s.wake()
	}
}

// publishBreaker copies the breaker's state to where callers read it without the lock. mu is held.
func (s *Store) publishBreaker() {
	s.epoch.Store(s.brk.Epoch())
	s.open.Store(s.brk.Open())
}

// asStoreError returns err as a [store.Error].
func asStoreError(op string, err error) *store.Error {
	if se, ok := errors.AsType[*store.Error](err); ok {
		return se
	}
	return &store.Error{Store: "unknown", Op: op, Err: err}
}

// unavailable returns the error for an operation that is not sent to the store.
func (s *Store) unavailable(op string) *store.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault == nil {
		return &store.Error{Store: "unknown", Op: op, Err: errUnavailable}
	}
	return &store.Error{Store: s.fault.Store, Op: op, Err: s.fault.Err, Fault: s.fault.Fault}
}

var errUnavailable = errors.New("the store is unavailable, and is tried again in the background")

// napBeforeRetry waits a moment before a take with an ID is sent again. It reports whether there is
// time left.
func (s *Store) napBeforeRetry(ctx context.Context) bool {
	t := time.NewTimer(time.Millisecond + time.Duration(s.opts.random()*float64(4*time.Millisecond)))
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
