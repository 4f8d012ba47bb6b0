package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/drawgate/drawgate/internal/ledger"
	"github.com/drawgate/drawgate/internal/shadow"
	"github.com/drawgate/drawgate/store"
)

// requests returns a ledger request for each take of a batch.
func requests(batch []store.Take) []ledger.Request {
	reqs := make([]ledger.Request, len(batch))
	for i := range batch {
		reqs[i].Init(&batch[i])
	}
	return reqs
}

// Take implements [store.Store]. The guard decides what the store does not, so there is no
// [store.Error], but for a limit that steps aside ([store.FallbackOpen]): a caller that allowed
// less time than the store may need gets its error.
// If a caller gives up, the error matches its context's, and [store.ErrNothingDone] if nothing was
// taken for certain. Otherwise a take with an ID is cancelled in the background, by its grant.
func (s *Store) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if counted := s.sharing.call(); counted != nil {
		within, cancel, _ := s.limit(ctx)
		defer func() {
			s.awaitCount(within, counted)
			cancel()
		}()
	}
	if some, at := valid(batch, out); some != nil {
		return s.takeSome(ctx, some, at, out)
	}
	return s.take(ctx, batch, out)
}

// awaitCount waits until this process is counted, at the same time as the store decides the take,
// because the process may be stopped after the call. During an outage it does not wait.
func (s *Store) awaitCount(ctx context.Context, counted <-chan struct{}) {
	for counted != nil && !s.open.Load() {
		select {
		case <-counted:
			counted = s.sharing.call() // that one may have started before the process was stopped
		case <-ctx.Done():
			return
		case <-s.quit:
			return
		}
	}
}

// valid fails the takes that no store can decide. It returns the others with their positions, or
// nil if there are no such takes.
func valid(batch []store.Take, out []store.Verdict) (some []store.Take, at []int) {
	for i := range batch {
		err := batch[i].Check()
		if err != nil && some == nil {
			some = append([]store.Take{}, batch[:i]...)
			for k := range i {
				at = append(at, k)
			}
		}
		switch {
		case err != nil:
			out[i] = store.Verdict{Fail: err}
		case some != nil:
			some, at = append(some, batch[i]), append(at, i)
		}
	}
	return some, at
}

// takeSome decides the takes of a batch that are valid. Each has an error of its own, because the
// others have theirs.
func (s *Store) takeSome(ctx context.Context, some []store.Take, at []int, out []store.Verdict) error {
	outs := make([]store.Verdict, len(some))
	err := s.take(ctx, some, outs)
	for k, i := range at {
		if out[i] = outs[k]; err != nil {
			out[i] = store.Verdict{Fail: err}
		}
	}
	return nil
}

// take is Take for valid takes.
func (s *Store) take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if len(batch) == 0 {
		return nil
	}
	reqs := requests(batch)
	cause := s.refusedBy()
	hasty := false // the caller allowed less time than the store may need
	if cause == nil {
		var answered bool
		if answered, hasty, cause = s.ask(ctx, batch, reqs, out); cause == nil || answered {
			s.took(ctx, reqs, out, hasty)
			return nil
		}
		if gaveUp(ctx) {
			s.abandon(reqs)
			if errors.Is(cause, store.ErrNothingDone) {
				return fmt.Errorf("guard: the caller gave up: %w: %w", store.ErrNothingDone, ctx.Err())
			}
			return fmt.Errorf("guard: the caller gave up during the call to the store, which may have allowed the take: %w", ctx.Err())
		}
		if !ledger.Unavailable(cause) {
			s.abandon(reqs)
			return cause
		}
	}
	if hasty && opens(reqs) {
		s.abandon(reqs)
		return asStoreError("take", cause)
	}
	s.mu.Lock()
	now := s.clock.now()
	for i := range reqs {
		out[i] = s.ledger.Decide(now, &reqs[i])
	}
	s.mu.Unlock()
	s.decidedHere(ctx, batch, asStoreError("take", cause), out)
	return nil
}

// decidedHere reports takes that the guard decided.
func (s *Store) decidedHere(ctx context.Context, batch []store.Take, cause *store.Error, out []store.Verdict) {
	for i := range out {
		if !out[i].Allowed {
			s.hints.note(batch[i].Buckets)
		}
	}
	n := len(batch)
	if shadow.Is(ctx) { // nobody acts on these
		n = 0
	}
	s.news.decidedHere(cause, n)
	if cause.Fault != store.FaultBucket { // otherwise the store as a whole works
		s.sharing.unavailable()
	}
	s.wake()
}

// opens reports whether one of the limits has FallbackOpen. Such takes are not decided locally for
// a caller with too short a deadline, unless the breaker is open: otherwise callers could choose a
// deadline that admits them without bound.
func opens(reqs []ledger.Request) bool {
	return slices.ContainsFunc(reqs, func(r ledger.Request) bool { return r.Opens() })
}

// refusedBy returns the error if the breaker is open, and nil otherwise.
func (s *Store) refusedBy() error {
	if !s.open.Load() {
		return nil
	}
	return s.unavailable("take")
}

// ask has the store decide. Until it answers, the units count in the ledger, so that takes which
// the guard decides meanwhile cannot use them too.
// It reports whether the store answered each take individually, possibly with a failure, and
// whether the caller allowed less time than the store may need. An error says that nothing was done
// only if that is true of all attempts.
func (s *Store) ask(ctx context.Context, batch []store.Take, reqs []ledger.Request, out []store.Verdict) (answered,
	hasty bool, err error,
) {
	caller := ctx
	ctx, cancel, fair := s.limit(ctx)
	defer cancel()
	batch, err = s.begin(ctx, batch, reqs)
	if err != nil {
		return false, !fair && errors.Is(err, context.DeadlineExceeded), err
	}
	start, lost := time.Now(), lostTakes{}
	for try := 1; ; try++ {
		answered = false
		err = s.attempt(ctx, caller, "take", fair, func(ctx context.Context) error {
			if err := s.store().Take(ctx, batch, out); err != nil {
				return err
			}
			answered = true
			complete(batch, out)
			return takeOutage(out)
		})
		if err != nil {
			s.unanswered(reqs, out, answered, err)
			lost.note(out, answered, err)
		}
		hasty = !fair && errors.Is(err, context.DeadlineExceeded)
		if !ledger.Unavailable(err) || gaveUp(caller) || try == attempts || !repeatable(batch) || s.open.Load() ||
			!s.napBeforeRetry(ctx) || lost.any != nil && ended(batch, time.Since(start)) {
			return answered, hasty, lost.recall(out, answered, err)
		}
	}
}

// lostTakes has the errors of attempts that the store may have carried out.
type lostTakes struct {
	any error
	of  []error // of each take of a batch; empty: of none
}

// note notes a failed attempt.
func (l *lostTakes) note(out []store.Verdict, answered bool, err error) {
	for i := range out {
		if answered {
			err = out[i].Fail
		}
		if err == nil && out[i].Allowed { // it is asked for again, because others of the batch failed
			err = &store.Error{Store: "guard", Op: "take", Err: store.ErrUnknownOutcome}
		}
		if err == nil || errors.Is(err, store.ErrNothingDone) {
			continue
		}
		if l.any = err; l.of == nil {
			l.of = make([]error, len(out))
		}
		l.of[i] = err
	}
}

// recall returns the error of the last attempt. Neither it nor the failure of a take says that
// nothing was done if an attempt before may have done it.
func (l *lostTakes) recall(out []store.Verdict, answered bool, err error) error {
	if l.any == nil {
		return err
	}
	for i := range out {
		if answered && l.of[i] != nil && errors.Is(out[i].Fail, store.ErrNothingDone) {
			out[i].Fail = l.of[i]
		}
	}
	if errors.Is(err, store.ErrNothingDone) {
		return l.any
	}
	return err
}

// attempts is how often a take with an ID is sent, if there is time. Sending it again is free: if
// the first one arrived, the store repeats its answer.
const attempts = 3

// repeatable reports whether all takes of a batch have an ID.
func repeatable(batch []store.Take) bool {
	return !slices.ContainsFunc(batch, func(t store.Take) bool { return t.ID == "" })
}

// ended reports whether a hold may be over that was taken so long ago: the take would count again.
func ended(batch []store.Take, ago time.Duration) bool {
	return slices.ContainsFunc(batch, func(t store.Take) bool { return ago >= t.Hold })
}

// complete adds what the store did not say of a take's buckets: nothing is left, and all was
// granted that was asked for.
func complete(batch []store.Take, out []store.Verdict) {
	for i := range out {
		for k := out[i].Buckets(); k < len(batch[i].Buckets) && out[i].Fail == nil; k++ {
			out[i].Rest = append(out[i].Rest, store.Answer{Granted: batch[i].Buckets[k].N})
		}
	}
}

// takeOutage returns the first failure of a take that concerns more than its own buckets.
func takeOutage(out []store.Verdict) error {
	for i := range out {
		if out[i].Fail != nil && isOutage(out[i].Fail) {
			return out[i].Fail
		}
	}
	return nil
}

// begin registers takes as being asked for, and returns them as they are sent. If something is
// pending for their buckets, it waits for the delivery first.
func (s *Store) begin(ctx context.Context, batch []store.Take, reqs []ledger.Request) ([]store.Take, error) {
	blocked := false
	s.mu.Lock()
	now := s.clock.now()
	for i := range reqs {
		blocked = s.ledger.Begin(now, &reqs[i]) || blocked
	}
	if !blocked {
		batch = s.ledger.SentTakes(batch)
	}
	s.mu.Unlock()
	if !blocked {
		return batch, nil
	}
	if err := s.deliverFirst(ctx, reqs); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.SentTakes(batch), nil
}

// unanswered notes the takes that the store may have carried out without answering.
func (s *Store) unanswered(reqs []ledger.Request, out []store.Verdict, answered bool, err error) {
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

// took records what the store decided. The guard decides takes that failed because the store is
// unavailable, even if only for their buckets.
func (s *Store) took(ctx context.Context, reqs []ledger.Request, out []store.Verdict, hasty bool) {
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
	before := s.ledger.Wait(now)
	for i := range reqs {
		if !failed || !undecided(&reqs[i], out[i].Fail) {
			s.ledger.Answered(now, &reqs[i], &out[i])
		}
		out[i].Histories = nil // for the guard alone
	}
	s.wakeIfSooner(now, before)
	s.mu.Unlock()
	for i := range reqs {
		if failed && undecided(&reqs[i], out[i].Fail) {
			s.replace(ctx, &reqs[i], &out[i], hasty)
		}
	}
}

// undecided reports whether the guard has to decide a take. It does not if the take arrived too
// late for its caller.
func undecided(r *ledger.Request, err error) bool {
	return ledger.Unavailable(err) && (r.Take().NotAfter.IsZero() || !errors.Is(err, store.ErrTooLate))
}

// replace decides a take that the store did not decide.
func (s *Store) replace(ctx context.Context, r *ledger.Request, d *store.Verdict, hasty bool) {
	cause := asStoreError("take", d.Fail)
	if gaveUp(ctx) || hasty && r.Opens() { // nobody wants it any more, or see opens: left undecided
		s.mu.Lock()
		s.ledger.Abandon(s.clock.now(), r)
		s.mu.Unlock()
		s.wake()
		return
	}
	if cause.Fault == store.FaultBucket {
		s.news.failed(&BackendError{Op: "take", Err: cause, Fault: cause.Fault})
	}
	s.mu.Lock()
	*d = s.ledger.Decide(s.clock.now(), r)
	s.mu.Unlock()
	s.decidedHere(ctx, []store.Take{*r.Take()}, cause, []store.Verdict{*d})
}

// abandon forgets takes that stay undecided.
func (s *Store) abandon(reqs []ledger.Request) {
	s.mu.Lock()
	now := s.clock.now()
	for i := range reqs {
		s.ledger.Abandon(now, &reqs[i])
	}
	s.mu.Unlock()
	s.wake()
}
