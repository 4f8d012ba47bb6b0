package dynamostore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// A take of several buckets looks at all of them and, if it fits, reserves in one after the other,
// in the order of their keys. If one has changed so that it refuses, the reservations before it are
// cancelled, the first one last: nothing was spent. So what a take leaves half done, reserved or
// cancelled, is open in its first bucket, and what is open only in later ones was cancelled by
// somebody else. A plain take holds its reservations only until the last bucket has granted; they
// end by themselves if the process dies, and their units then count as used.

const (
	plainHold  = 10 * time.Second // of a plain take's reservations
	mostRounds = 8                // of a take whose buckets change between look and reservation
)

var (
	errRounds = errors.New("its buckets changed each time")
	errPartly = errors.New("another sending of this take has reserved in some of its buckets, and not in all")
)

// takeMany decides a take of several buckets.
func (s *Store) takeMany(ctx context.Context, t *store.Take) store.Verdict {
	order := s.order(t.Buckets)
	for round := range mostRounds {
		l, err := s.lookAtAll(ctx, t, order[0])
		if err != nil {
			return store.Verdict{Fail: err}
		}
		if l.partly && t.Given { // its taker comes again, or cancels that and takes another id
			return store.Verdict{Fail: store.ErrIDOpen}
		}
		if l.partly && round < mostRounds/2 { // another sending of this take is just reserving
			pause(ctx, conflicted, round+1)
			continue
		}
		if l.partly && l.first { // that one failed, or is slow: whether it will be granted nobody knows
			return store.Verdict{Fail: partly(errPartly)}
		}
		d := l.decision
		if !d.Allowed || d.Fail != nil {
			s.persist(ctx, t, l.persist)
			return d
		}
		if !l.change {
			return d
		}
		ok, err := s.reserveAll(ctx, t, order, &d)
		if err != nil {
			return store.Verdict{Fail: err}
		}
		if ok {
			return d
		}
		pause(ctx, conflicted, round+1)
	}
	return store.Verdict{Fail: fmt.Errorf("%w: %w", store.ErrNothingDone, errRounds)}
}

// order returns the order in which buckets are reserved and settled: that of their keys.
func (s *Store) order(buckets []store.BucketCost) []int {
	order := make([]int, len(buckets))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		ka, _ := s.name(&buckets[a])
		kb, _ := s.name(&buckets[b])
		if ka < kb {
			return -1
		}
		return 1
	})
	return order
}

// looked is what a look at all buckets of a take says.
type looked struct {
	decision store.Verdict
	change   bool  // it only holds once the buckets are changed
	partly   bool  // this very take is open in some of the buckets, but not in all
	first    bool  // it is open in the bucket in which it is reserved first
	persist  []int // buckets whose records must be written whatever the decision is
}

// lookAtAll decides a take by its buckets as they are, and changes nothing. The take would reserve
// in bucket number first before the others.
func (s *Store) lookAtAll(ctx context.Context, t *store.Take, first int) (l looked, err error) {
	recs, at, err := s.lookAll(ctx, t.Buckets)
	if err != nil {
		return l, err
	}
	b := *t
	b.Buckets = slices.Clone(t.Buckets)
	s.blur(&b, at, false)
	content := content(t)
	since, open := make([]int64, len(recs)), 0
	for i, r := range recs {
		if r.MustPersist(store.Internal.Specs(b.Buckets[i].Plan, false), max(at.early, r.Last)) {
			l.persist = append(l.persist, i)
		}
		if o := r.Open[t.ID]; o != nil && o.Grant == uint64(t.Grant) && o.Fingerprint == content {
			since[i] = o.At
			l.first = l.first || i == first
			open++
		}
	}
	l.decision = store.Internal.DecidePart(&b, content, recs, false, 0, at.early)
	l.partly = errors.Is(l.decision.Fail, store.ErrIDReused) && open > 0
	l.change = !l.decision.Replayed
	for i, r := range recs {
		if o := r.Open[t.ID]; o != nil && o.At != since[i] {
			l.change = true
		}
	}
	return l, nil
}

// persist writes records that this caller advances in another way than others would, although its
// take was refused: see [record.Record.MustPersist]. If it fails, the next caller does it.
func (s *Store) persist(ctx context.Context, t *store.Take, buckets []int) {
	jobs := make([]*job, len(buckets))
	for n, i := range buckets {
		plan := t.Buckets[i].Plan // the job may outlive the call, and so the take
		jobs[n] = &job{
			op: "take", ctx: ctx, plan: plan, done: make(chan struct{}),
			decide: func(rec *record.Record, at instant) verdict {
				specs := store.Internal.Specs(plan, false)
				write := rec.MustPersist(specs, max(at.early, rec.Last))
				rec.Advance(specs, at.early)
				return verdict{write: write}
			},
		}
		key, parts := s.name(&t.Buckets[i])
		s.submit(key, parts, jobs[n])
	}
	for _, j := range jobs {
		_ = s.wait(j)
	}
}

// lookAll reads buckets at the same time.
func (s *Store) lookAll(ctx context.Context, buckets []store.BucketCost) ([]*record.Record, instant, error) {
	recs, errs, ats := make([]*record.Record, len(buckets)), make([]error, len(buckets)), make([]instant, len(buckets))
	var all sync.WaitGroup
	for i := range buckets {
		all.Go(func() {
			key, _ := s.name(&buckets[i])
			recs[i], ats[i], errs[i] = s.look(ctx, key)
		})
	}
	all.Wait()
	at := ats[0]
	for _, a := range ats {
		if a.early+a.blur > at.early+at.blur {
			at = a
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, at, fmt.Errorf("%w: %w", store.ErrNothingDone, err)
	}
	return recs, at, nil
}

// reserveAll reserves what a decision granted. It is false, and nothing is reserved, if a bucket
// has changed so that it does not grant that any more.
func (s *Store) reserveAll(ctx context.Context, t *store.Take, order []int, d *store.Verdict) (ok bool, err error) {
	one := *t
	p := part{content: content(t), plain: t.ID == ""}
	if d.Delay() > 0 {
		p.from = begin(d)
	} else {
		one.Ahead = 0
	}
	if one.ID == "" {
		one.Grant, one.Hold = store.NewGrant(), plainHold
		one.ID = "\x00" + one.Grant.String()
	}
	for n, i := range order {
		one.Buckets = t.Buckets[i : i+1]
		if d.Allowed && !d.Replayed && t.ID != "" {
			one.Buckets = slices.Clone(one.Buckets)
			one.Buckets[0].N = d.Granted(i)
		}
		j := s.takePart(ctx, &one, p)
		got, err := s.answer(j)
		mine := d.Replayed == got.Replayed // else another sending of this take opened it, or it has ended
		if err == nil && got.Fail == nil && got.Allowed && mine && begin(&got) <= max(p.from, got.At().UnixMicro()) {
			continue
		}
		if err == nil && got.Fail != nil && !answered(got.Fail) {
			err = got.Fail
		}
		if d.Replayed || err == nil && got.Replayed { // what it holds stays open until its taker cancels it
			if err != nil && n > 0 {
				err = partly(err)
			}
			return false, err
		}
		last := n
		if err != nil && !errors.Is(err, store.ErrNothingDone) {
			if t.ID != "" && (n == 0 || n == len(order)-1) {
				s.undoUnless(ctx, j, &one, t, order, n)
				return false, err
			}
			last++ // it may hold units here, too
		}
		if failed := s.undo(ctx, &one, t, order[:last]); failed != nil {
			return false, partly(cmp.Or(err, failed))
		}
		// a look does not show it if the item is full before [record.MaxOpen]
		if errors.Is(got.Fail, store.ErrTooManyOpen) {
			err = got.Fail
		}
		return false, err
	}
	if t.ID == "" {
		_ = s.endAll(ctx, &one, t, order, store.OpSettle) // otherwise they end by themselves, to the same effect
	}
	return true, nil
}

// begin returns the instant from which the units of a granted take count, in Unix µs.
func begin(d *store.Verdict) int64 { return d.At().Add(d.Delay()).UnixMicro() }

// answered reports whether an error is the answer to a take and not a failure.
func answered(err error) bool {
	return errors.Is(err, store.ErrIDOpen) || errors.Is(err, store.ErrIDReused) || errors.Is(err, store.ErrTooLate) ||
		errors.Is(err, store.ErrTooManyOpen) ||
		errors.Is(err, store.ErrInvalid)
}

// takePart begins a take of one bucket.
func (s *Store) takePart(ctx context.Context, t *store.Take, p part) *job {
	j := s.takeJob(ctx, t, p)
	key, parts := s.name(&t.Buckets[0])
	s.submit(key, parts, j)
	return j
}

// answer waits for the answer to a take.
func (s *Store) answer(j *job) (store.Verdict, error) {
	if err := s.wait(j); err != nil {
		return store.Verdict{}, err
	}
	return j.verdict.decision, nil
}

// undoUnless cancels what a take has reserved as far as bucket n, whose answer is missing, unless
// another sending of it may have been granted by that. Nobody waits for it.
//
//   - If the last bucket has granted, the take is open in all of them.
//   - What is open in the first one may have been reserved by another sending, which goes on. It
//     may be only if this one is told so, or nothing: where it has reserved there itself, others
//     wait.
func (s *Store) undoUnless(ctx context.Context, last *job, one, t *store.Take, order []int, n int) {
	ctx = context.WithoutCancel(ctx)
	o, b := *one, *t
	b.Buckets = slices.Clone(t.Buckets) // the caller may use them again
	s.working.Go(func() {
		<-last.done
		buckets := order[:n]
		switch d := &last.verdict.decision; {
		case last.err != nil && !errors.Is(last.err, store.ErrNothingDone):
			return
		case last.err == nil && d.Allowed && (n == len(order)-1 || d.Replayed):
			return
		case last.err == nil && d.Allowed:
			buckets = order[:n+1]
		}
		_ = s.undo(ctx, &o, &b, buckets)
	})
}

// undo cancels reservations, the first one last. It goes on if the caller leaves, who gets an error
// then.
func (s *Store) undo(ctx context.Context, one, t *store.Take, buckets []int) error {
	if len(buckets) == 0 {
		return nil
	}
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTime)
	o, b, done := *one, *t, make(chan error, 1)
	b.Buckets = slices.Clone(t.Buckets) // the caller may use them again
	s.working.Go(func() {
		defer cancel()
		err := s.endAll(detached, &o, &b, buckets[1:], store.OpCancel)
		if err == nil {
			err = s.endAll(detached, &o, &b, buckets[:1], store.OpCancel)
		}
		done <- err
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endAll settles the reservations in some buckets of a take as estimated, or cancels them.
func (s *Store) endAll(ctx context.Context, one, t *store.Take, buckets []int, op store.Op) error {
	jobs := make([]*job, len(buckets))
	for n, i := range buckets {
		b := t.Buckets[i]
		for k := range b.N {
			b.N[k] = store.KeepEstimate
		}
		jobs[n] = s.settleJob(ctx, &store.Settlement{
			Op: op, ID: one.ID, Grant: one.Grant,
			Buckets: []store.BucketCost{b},
		}, 0)
		key, parts := s.name(&b)
		s.submit(key, parts, jobs[n])
	}
	var errs []error
	for _, j := range jobs {
		errs = append(errs, s.wait(j))
	}
	return errors.Join(errs...)
}

// settleMany carries out a settlement of several buckets, in each separately. A settlement that
// finds nothing open in the first bucket goes on: an earlier one may not have got further.
func (s *Store) settleMany(ctx context.Context, t *store.Settlement) (out store.Outcome) {
	if t.Op == store.OpRenew { // a lease with a paused bucket is renewed in none
		recs, at, err := s.lookAll(ctx, t.Buckets)
		if err != nil {
			return store.Outcome{Err: failure("settle", err)}
		}
		c := *t
		c.Buckets = slices.Clone(t.Buckets)
		for i := range c.Buckets {
			c.Buckets[i].Plan = s.variant(planKey{t.Buckets[i].Plan, at.blur, false})
		}
		if o := store.Internal.Apply(&c, recs, false, at.early); o.Kept {
			return o
		}
	}
	jobs := make([]*job, len(t.Buckets))
	order := s.order(t.Buckets)
	ends, late := t.Op == store.OpSettle || t.Op == store.OpCancel, false
	for n, i := range order {
		jobs[i] = s.settleJob(ctx, t, i)
		if n == 0 && ends {
			jobs[i].mark = lanePrefix + t.Grant.String()
		}
		key, parts := s.name(&t.Buckets[i])
		s.submit(key, parts, jobs[i])
		if n == 0 && ends { // of racing settlements the one that is first here succeeds
			if err := s.wait(jobs[i]); err == nil {
				late = jobs[i].verdict.outcome.Gone && jobs[i].verdict.marked
			}
		}
	}
	out.Gone, out.Kept = ends, t.Op == store.OpPause
	var errs []error
	for i, j := range jobs {
		if err := s.wait(j); err != nil {
			errs = append(errs, err)
			continue
		}
		o := &j.verdict.outcome
		if ends {
			out.Gone = out.Gone && o.Gone
		} else { // each bucket has an end of its own: a holder that lost one of its slots must stop
			out.Gone = out.Gone || o.Gone
		}
		out.Kept = out.Kept && o.Kept
		// A holder may rely on the hold that ends first; a pause lasts until the last one has
		// ended.
		first := t.Op == store.OpRenew && (out.End.IsZero() || o.End.Before(out.End))
		if first || t.Op != store.OpRenew && o.End.After(out.End) {
			out.End = o.End
		}
		if len(o.Back) > 0 {
			if out.Back == nil {
				out.Back = make([]store.Amounts, len(t.Buckets))
			}
			out.Back[i] = o.Back[0]
		}
		if len(o.Corrected) > 0 {
			if out.Corrected == nil {
				out.Corrected = make([]bool, len(t.Buckets))
			}
			out.Corrected[i] = true
		}
		errs = append(errs, o.Err)
	}
	if err := joinParts(errs); err != nil {
		return store.Outcome{Err: failure("settle", err)}
	}
	if first := order[0]; ends && !jobs[first].verdict.outcome.Gone {
		key, _ := s.name(&t.Buckets[first])
		s.unmark(key, jobs[first].mark)
	}
	out.Gone = out.Gone || late
	if t.Op == store.OpUnpause {
		out.Kept = !out.End.IsZero()
	}
	return out
}

// joinParts returns the error of a settlement of several buckets, each of which has an error or
// nil. It matches [store.ErrNothingDone] only if nothing was done in any of them.
func joinParts(errs []error) error {
	err := errors.Join(errs...)
	if err == nil {
		return nil
	}
	undone := 0
	for _, e := range errs {
		if errors.Is(e, store.ErrNothingDone) {
			undone++
		}
	}
	if undone == 0 || undone == len(errs) {
		return err
	}
	for i, e := range errs {
		if e != nil {
			errs[i] = partly(e)
		}
	}
	return errors.Join(errs...)
}

func microseconds(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
