package guard

import (
	"context"
	"fmt"
	"time"

	"github.com/drawgate/drawgate/internal/ledger"
	"github.com/drawgate/drawgate/store"
)

// deliverFirst waits until the pending items that a take depends on have been delivered. It returns
// an error if the store is unavailable, or if the time is over: a take that is sent without any
// left has to be cancelled.
func (s *Store) deliverFirst(ctx context.Context, reqs []ledger.Request) error {
	for {
		done, blocked, fault := s.blocked(reqs)
		switch {
		case !blocked:
			return outOfTime(ctx)
		case s.open.Load():
			return s.unavailable("charge")
		case fault != nil:
			return fault
		}
		s.wake()
		select {
		case <-done:
		case <-s.quit:
			return store.ErrClosed
		case <-ctx.Done():
			return outOfTime(ctx)
		}
	}
}

// outOfTime returns an error if a caller does not wait any more for the delivery of something.
func outOfTime(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	err := fmt.Errorf("%w: what is pending for its buckets has to be delivered first: %w", store.ErrNothingDone, ctx.Err())
	if gaveUp(ctx) {
		return err
	}
	return &store.Error{Store: "guard", Op: "charge", Err: err}
}

// blocked reports whether items of these takes' buckets are still pending, and moves them to the
// front of the queue. done is closed when the delivery that is running, or about to start, has
// ended. fault is why one of the buckets cannot be delivered, though the store works.
func (s *Store) blocked(reqs []ledger.Request) (done <-chan struct{}, blocked bool, fault error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.now()
	for i := range reqs {
		b, f := s.ledger.Blocked(now, &reqs[i])
		if blocked = blocked || b; f != nil {
			fault = f
		}
	}
	return s.delivered, blocked, fault
}

// deliver sends some of what is pending to the store. It reports whether the store as a whole
// failed.
func (s *Store) deliver() (failed bool) {
	s.mu.Lock()
	d := s.ledger.Next(s.clock.now())
	if d == nil { // what was pending need not be sent any more: nobody has to wait for it
		s.announceDelivery()
	}
	s.mu.Unlock()
	if d == nil {
		return false
	}
	var rep ledger.Report
	err := s.deliverLooks(d, &rep)
	if err == nil {
		err = s.deliverSettlements(d, &rep)
	}
	if err == nil {
		err = s.deliverTakes(d, &rep)
	}
	s.mu.Lock()
	if err != nil {
		s.ledger.Failed(s.clock.now(), d)
	}
	s.announceDelivery()
	more := s.ledger.Recovering()
	s.mu.Unlock()
	s.news.recovered(&rep, more)
	for _, buckets := range rep.Charged {
		s.news.charged(buckets)
	}
	for _, err := range rep.Refused {
		s.news.refused(err)
	}
	if rep.Fault != nil && !isOutage(rep.Fault) { // an outage was reported by the attempt
		se := asStoreError("charge", rep.Fault)
		s.news.failed(&BackendError{Op: "charge", Err: se, Fault: se.Fault})
	}
	return err != nil
}

// announceDelivery wakes those who wait for the end of a delivery. mu is held.
func (s *Store) announceDelivery() {
	close(s.delivered)
	s.delivered = make(chan struct{})
}

// deliverLooks looks at the buckets of a delivery.
func (s *Store) deliverLooks(d *ledger.Delivery, rep *ledger.Report) error {
	if len(d.Looks) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	out := make([]store.State, len(d.Looks))
	answered := false
	err := s.attempt(ctx, ctx, "peek", true, func(ctx context.Context) error {
		h, ok := s.store().(store.Historian)
		if !ok { // it was replaced meanwhile: without histories, nothing is done about these
			answered = true
			return nil
		}
		if err := h.PeekKnown(ctx, d.Looks, 0, make([]store.Known, len(d.Looks)), out); err != nil {
			return err
		}
		answered = true
		for i := range out {
			if out[i].Fail != nil && isOutage(out[i].Fail) {
				return out[i].Fail
			}
		}
		return nil
	})
	if !answered {
		if err == nil || ledger.Unavailable(err) {
			return err
		}
		for i := range out { // the store will never accept the call
			out[i].Fail = err
		}
	}
	s.mu.Lock()
	s.ledger.Looked(s.clock.now(), d, out, rep)
	s.mu.Unlock()
	return nil
}

// wakeIfLost wakes the goroutine if an answer showed that the store lost something. mu is held.
func (s *Store) wakeIfLost(now ledger.Now) {
	if s.ledger.Recovering() && s.ledger.Wait(now) == 0 {
		s.wake()
	}
}

// wakeIfSooner wakes the goroutine if something is due sooner than it was: a cancellation, or what
// an answer showed to be lost. mu is held.
func (s *Store) wakeIfSooner(now ledger.Now, before int64) {
	if next := s.ledger.Wait(now); next >= 0 && (before < 0 || next < before) {
		s.wake()
	}
}

// deliverSettlements sends the settlements of a delivery, which come first.
func (s *Store) deliverSettlements(d *ledger.Delivery, rep *ledger.Report) error {
	batch := d.Settlements
	if len(batch) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	out := make([]store.Outcome, len(batch))
	answered := false
	err := s.attempt(ctx, ctx, batch[0].Op.String(), true, func(ctx context.Context) error {
		if err := s.store().Settle(ctx, batch, out); err != nil {
			return err
		}
		answered = true
		return settleOutage(out)
	})
	if !answered {
		if err != nil && !ledger.Unavailable(err) { // the store will never accept the batch: every item gets the error
			for i := range out {
				out[i].Err = err
			}
		} else {
			return err
		}
	}
	s.mu.Lock()
	s.ledger.Delivered(s.clock.now(), d, out, rep)
	s.mu.Unlock()
	return nil
}

// deliverTakes sends the takes of a delivery: what was given without the store. Their failure is
// told as one of a charge, as nobody waits for them.
func (s *Store) deliverTakes(d *ledger.Delivery, rep *ledger.Report) error {
	batch := d.Takes
	if len(batch) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	out := make([]store.Verdict, len(batch))
	answered := false
	err := s.attempt(ctx, ctx, store.OpCharge.String(), true, func(ctx context.Context) error {
		if err := s.store().Take(ctx, batch, out); err != nil {
			return err
		}
		answered = true
		complete(batch, out)
		return takeOutage(out)
	})
	if err != nil && !answered {
		return err
	}
	s.mu.Lock()
	s.ledger.Replayed(s.clock.now(), d, out, rep)
	s.mu.Unlock()
	return nil
}

// settleOutage returns the first failure of a settlement that concerns more than its own buckets.
func settleOutage(out []store.Outcome) error {
	for i := range out {
		if out[i].Err != nil && isOutage(out[i].Err) {
			return out[i].Err
		}
	}
	return nil
}

// lastDelivery is how long Close tries to deliver what is pending.
const lastDelivery = time.Second

// deliverLast delivers what is pending, when no more calls can come.
func (s *Store) deliverLast() {
	s.mu.Lock()
	s.ledger.Hurry(s.clock.now())
	s.mu.Unlock()
	for end := time.Now().Add(lastDelivery); !s.open.Load() && s.pendingNow() && time.Now().Before(end); {
		if s.deliver() {
			break
		}
	}
	s.mu.Lock()
	n := s.ledger.Pending()
	s.mu.Unlock()
	if n > 0 {
		s.news.lost(n)
	}
}

// pendingNow reports whether something is due for delivery.
func (s *Store) pendingNow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.now()
	s.ledger.Expire(now)
	return s.ledger.Wait(now) == 0
}
