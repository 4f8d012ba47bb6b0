package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/ledger"
	"github.com/drawgate/drawgate/internal/shadow"
)

// requests makes what a batch needs on its way.
func requests(batch []drawgate.Take) []ledger.Request {
	reqs := make([]ledger.Request, len(batch))
	for i := range batch {
		reqs[i].Init(&batch[i])
	}
	return reqs
}

// Take implements [drawgate.Store]. It does not return a [drawgate.StoreError], nor does a
// decision: what the store does not decide is decided here.
//
// The error of a caller that gives up while the store is asked matches its context's. What it asked
// for may be taken; a take with an id is then cancelled in the background, by its grant.
func (s *Store) Take(ctx context.Context, batch []drawgate.Take, out []drawgate.Decision) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if len(batch) == 0 {
		return nil
	}
	if err := valid(batch); err != nil {
		return s.store().Take(ctx, batch, out) // it knows best what to say
	}
	reqs := requests(batch)
	cause := s.refusedBy()
	hasty := false // the caller had less time than a store may take
	if cause == nil {
		var answered bool
		if answered, hasty, cause = s.ask(ctx, batch, reqs, out); cause == nil || answered {
			s.took(ctx, reqs, out, hasty)
			return nil
		}
		if gaveUp(ctx) {
			s.abandon(reqs)
			return fmt.Errorf("guard: the caller gave up while the store was asked, which may have allowed the take: %w", ctx.Err())
		}
		if !ledger.Unavailable(cause) {
			s.abandon(reqs)
			return cause
		}
	}
	if hasty && opens(reqs) {
		s.abandon(reqs)
		return context.DeadlineExceeded
	}
	s.mu.Lock()
	now := s.clock.now()
	for i := range reqs {
		out[i] = s.ledger.Decide(now, &reqs[i])
	}
	s.mu.Unlock()
	s.fell(ctx, batch, asStoreError("take", cause), out)
	return nil
}

// fell tells of takes that were decided here.
func (s *Store) fell(ctx context.Context, batch []drawgate.Take, cause *drawgate.StoreError, out []drawgate.Decision) {
	for i := range out {
		if !out[i].Allowed {
			s.hints.note(batch[i].Buckets)
		}
	}
	n := len(batch)
	if shadow.Is(ctx) { // nobody acts by them
		n = 0
	}
	s.news.fell(cause, n)
	if cause.Fault != drawgate.FaultBucket { // otherwise the store answers
		s.sharing.unavailable()
	}
	s.wake()
}

// opens reports whether a limit would step aside. Not for a caller that gives a store which is not
// known to be unavailable no time: otherwise callers could choose by their deadlines to be admitted
// without bound.
func opens(reqs []ledger.Request) bool {
	return slices.ContainsFunc(reqs, func(r ledger.Request) bool { return r.Opens() })
}

// refusedBy returns why no caller is sent to the store; nil if they are.
func (s *Store) refusedBy() error {
	if !s.open.Load() {
		return nil
	}
	return s.unavailable("take")
}

// valid reports what cannot be decided here, nor anywhere.
func valid(batch []drawgate.Take) error {
	for i := range batch {
		t := &batch[i]
		if len(t.Buckets) == 0 || len(t.Buckets) > drawgate.MaxBuckets || (t.ID == "") != (t.Hold == 0) || t.Hold < 0 ||
			t.Priority < 0 || t.Priority > drawgate.MaxPriority || twice(t.Buckets) {
			return drawgate.ErrInvalid
		}
	}
	return nil
}

func twice(buckets []drawgate.BucketCost) bool {
	for i := range buckets {
		if buckets[i].Plan == nil || slices.ContainsFunc(buckets[:i], func(b drawgate.BucketCost) bool { return b.Key == buckets[i].Key }) {
			return true
		}
	}
	return false
}

// ask has the store decide. While it does, the units count here: whatever is decided here at the
// same time must not count on them.
//
// It reports whether the store answered each take for itself, perhaps with a failure, and whether
// the caller gave it less time than it may take.
func (s *Store) ask(ctx context.Context, batch []drawgate.Take, reqs []ledger.Request, out []drawgate.Decision) (answered, hasty bool, err error) {
	caller := ctx
	ctx, cancel, whole := s.limit(ctx)
	defer cancel()
	if err := s.begin(ctx, reqs); err != nil {
		return false, !whole && errors.Is(err, context.DeadlineExceeded), err
	}
	for try := 1; ; try++ {
		answered = false
		err = s.attempt(ctx, caller, "take", whole, func(ctx context.Context) error {
			if err := s.store().Take(ctx, batch, out); err != nil {
				return err
			}
			answered = true
			return takeOutage(out)
		})
		if err != nil {
			s.unanswered(reqs, out, answered, err)
		}
		hasty = !whole && errors.Is(err, context.DeadlineExceeded)
		if !ledger.Unavailable(err) || gaveUp(caller) || try == attempts || !repeatable(batch) || s.open.Load() || !s.nap(ctx) {
			return answered, hasty, err
		}
	}
}

// attempts is how often a take with an id is sent, if there is time: if it had arrived it is
// answered again, at no cost.
const attempts = 3

// repeatable reports whether all takes of a batch have an id.
func repeatable(batch []drawgate.Take) bool {
	return !slices.ContainsFunc(batch, func(t drawgate.Take) bool { return t.ID == "" })
}

// takeOutage returns the first failure of a take that is not of its buckets only.
func takeOutage(out []drawgate.Decision) error {
	for i := range out {
		if out[i].Fail != nil && isOutage(out[i].Fail) {
			return out[i].Fail
		}
	}
	return nil
}

// begin notes takes as being asked for. If the store must be told something of their buckets first,
// it waits for that.
func (s *Store) begin(ctx context.Context, reqs []ledger.Request) error {
	blocked := false
	s.mu.Lock()
	now := s.clock.now()
	for i := range reqs {
		blocked = s.ledger.Begin(now, &reqs[i]) || blocked
	}
	s.mu.Unlock()
	if !blocked {
		return nil
	}
	return s.deliverFirst(ctx, reqs)
}

// unanswered notes which takes the store may have carried out though it did not answer.
func (s *Store) unanswered(reqs []ledger.Request, out []drawgate.Decision, answered bool, err error) {
	if !answered && !ledger.Unavailable(err) {
		return // it said that it did nothing
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.now()
	for i := range reqs {
		if !answered || isOutage(out[i].Fail) {
			s.ledger.Unanswered(now, &reqs[i])
		}
	}
}

// took takes note of what the store decided. A take that failed because the store is unavailable,
// if only for its buckets, is decided here.
func (s *Store) took(ctx context.Context, reqs []ledger.Request, out []drawgate.Decision, hasty bool) {
	failed := false
	for i := range out {
		if out[i].Fail == nil {
			s.clock.learn(&out[i])
		} else {
			failed = failed || undecided(&reqs[i], out[i].Fail)
		}
	}
	s.mu.Lock()
	now := s.clock.now()
	for i := range reqs {
		if !failed || !undecided(&reqs[i], out[i].Fail) {
			s.ledger.Answered(now, &reqs[i], &out[i])
		}
	}
	s.mu.Unlock()
	for i := range reqs {
		if failed && undecided(&reqs[i], out[i].Fail) {
			s.replace(ctx, &reqs[i], &out[i], hasty)
		}
	}
}

// undecided reports whether a take is to be decided here: not one that came later than its caller
// allowed.
func undecided(r *ledger.Request, err error) bool {
	return ledger.Unavailable(err) && (r.Take().NotAfter.IsZero() || !errors.Is(err, drawgate.ErrTooLate))
}

// replace decides a take here that the store did not decide.
func (s *Store) replace(ctx context.Context, r *ledger.Request, d *drawgate.Decision, hasty bool) {
	cause := asStoreError("take", d.Fail)
	if hasty && r.Opens() { // see opens: nobody decides
		s.mu.Lock()
		s.ledger.Abandon(s.clock.now(), r)
		s.mu.Unlock()
		return
	}
	if cause.Fault == drawgate.FaultBucket {
		s.news.failed(&BackendError{Op: "take", Err: cause, Fault: cause.Fault})
	}
	s.mu.Lock()
	*d = s.ledger.Decide(s.clock.now(), r)
	s.mu.Unlock()
	s.fell(ctx, []drawgate.Take{*r.Take()}, cause, []drawgate.Decision{*d})
}

// abandon forgets takes that nobody decides.
func (s *Store) abandon(reqs []ledger.Request) {
	s.mu.Lock()
	now := s.clock.now()
	for i := range reqs {
		s.ledger.Abandon(now, &reqs[i])
	}
	s.mu.Unlock()
	s.wake()
}
