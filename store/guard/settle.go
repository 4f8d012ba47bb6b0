package guard

import (
	"context"
	"fmt"

	"github.com/drawgate/drawgate/internal/ledger"
	"github.com/drawgate/drawgate/store"
)

// Settle implements [store.Store].
// During an outage, settlements and cancellations of this process's reservations are kept and
// delivered when the store is back; so are charges and pauses. A renewal, or an operation on a
// grant that this process does not know, fails with a [store.Error], because only the store
// can answer it.
func (s *Store) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	theirs := s.settleHere(batch, out)
	if len(theirs) < len(batch) {
		s.wake()
	}
	if len(theirs) == 0 {
		return nil
	}
	if len(theirs) == len(batch) {
		return s.settleThere(ctx, batch, out)
	}
	some, outs := make([]store.Settlement, len(theirs)), make([]store.Outcome, len(theirs))
	for k, i := range theirs {
		some[k] = batch[i]
	}
	err := s.settleThere(ctx, some, outs)
	for k, i := range theirs {
		if out[i] = outs[k]; err != nil { // the others in the batch have been carried out
			out[i] = store.Outcome{Err: err}
		}
	}
	return nil
}

// settleHere refuses the settlements that no store can carry out, carries out those about which the
// ledger knows more than the store, and returns the positions of the others.
func (s *Store) settleHere(batch []store.Settlement, out []store.Outcome) (theirs []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.now()
	for i := range batch {
		if err := batch[i].Check(); err != nil {
			out[i] = store.Outcome{Err: err}
			continue
		}
		o, mine := s.ledger.Settle(now, &batch[i])
		if out[i] = o; !mine {
			theirs = append(theirs, i)
		}
	}
	return theirs
}

// settleThere has the store carry out settlements, or keeps them until the store is back.
func (s *Store) settleThere(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	cause := s.refusedBy()
	answered, began := false, s.clock.now().Store
	if cause == nil {
		actx, cancel, fair := s.limit(ctx)
		defer cancel()
		s.mu.Lock()
		sent := s.ledger.SentSettlements(batch)
		s.mu.Unlock()
		cause = s.attempt(actx, ctx, batch[0].Op.String(), fair, func(ctx context.Context) error {
			if err := s.store().Settle(ctx, sent, out); err != nil {
				return err
			}
			answered = true
			return settleOutage(out)
		})
		if !answered && gaveUp(ctx) {
			return s.settleLater(ctx, batch)
		}
		if !answered && !ledger.Unavailable(cause) {
			return cause
		}
	}
	kept := false
	s.mu.Lock()
	now := s.clock.now()
	before := s.ledger.Wait(now)
	for i := range batch {
		switch {
		case !answered:
			kept = s.keep(now, &batch[i], &out[i], cause) || kept
		case ledger.Unavailable(out[i].Err):
			kept = s.keep(now, &batch[i], &out[i], out[i].Err) || kept
		case out[i].Err == nil:
			s.ledger.Settled(now, began, &batch[i], &out[i])
			out[i].Histories = nil // for the guard alone
		}
	}
	s.wakeIfSooner(now, before)
	s.mu.Unlock()
	if kept {
		s.wake()
	}
	return nil
}

// settleLater keeps settlements and cancellations whose caller gave up during the call. They count
// once, so it is safe to send them again.
func (s *Store) settleLater(ctx context.Context, batch []store.Settlement) error {
	s.mu.Lock()
	now := s.clock.now()
	for i := range batch {
		if op := batch[i].Op; op == store.OpSettle || op == store.OpCancel {
			s.ledger.Keep(now, &batch[i])
		}
	}
	s.mu.Unlock()
	s.wake()
	return fmt.Errorf("guard: the caller gave up during the call to the store, which may have carried it out: %w",
		ctx.Err())
}

// keep keeps a settlement for later delivery, if it is of a kind that can be. mu is held.
func (s *Store) keep(now ledger.Now, st *store.Settlement, out *store.Outcome, cause error) (kept bool) {
	o, kept := s.ledger.Keep(now, st)
	if *out = o; !kept {
		*out = store.Outcome{Err: wrapped(st.Op.String(), cause)}
	}
	return kept
}

// wrapped returns a StoreError with the cause.
func wrapped(op string, cause error) error {
	se := asStoreError(op, cause)
	return &store.Error{Store: se.Store, Op: op, Err: se.Err, Fault: se.Fault}
}
