package guard

import (
	"context"

	"github.com/drawgate/drawgate/internal/ledger"
	"github.com/drawgate/drawgate/store"
)

// Peek implements [store.Store]. During an outage it describes what this process knows, with
// Fallback set.
func (s *Store) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if len(buckets) == 0 {
		return nil
	}
	cause := s.refusedBy()
	answered := false
	if cause == nil {
		actx, cancel, fair := s.limit(ctx)
		defer cancel()
		cause = s.attempt(actx, ctx, "peek", fair, func(ctx context.Context) error {
			if err := s.look(ctx, buckets, priority, out); err != nil {
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
		if !answered && (gaveUp(ctx) || !ledger.Unavailable(cause)) {
			return cause
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.now()
	defer s.wakeIfLost(now)
	for i := range buckets {
		switch b := &buckets[i]; {
		case answered && out[i].Fail == nil:
			s.ledger.Peeked(now, b, priority, &out[i])
			out[i].Histories = nil // for the guard alone
		case answered && !ledger.Unavailable(out[i].Fail):
		default:
			if err := b.Check(priority); err != nil {
				out[i] = store.State{Verdict: store.Verdict{Fail: err}}
				continue
			}
			out[i] = s.ledger.Describe(now, b, priority)
		}
	}
	return nil
}

// look asks the store to describe buckets, and for what is new in their histories.
func (s *Store) look(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	s.mu.Lock()
	known := s.ledger.KnownOf(buckets)
	s.mu.Unlock()
	if h, ok := s.store().(store.Historian); ok && known != nil {
		return h.PeekKnown(ctx, buckets, priority, known, out)
	}
	return s.store().Peek(ctx, buckets, priority, out)
}
