package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// A process asks for one bucket in one line: while one write is under way the jobs of other callers
// gather, and the next write carries all of them. So callers of one process never make each other's
// conditions fail, and a busy bucket costs a write per round trip and process instead of one per
// caller.

// job is what a call wants of one bucket.
type job struct {
	op         string
	ctx        context.Context //nolint:containedctx // of the caller, who waits
	key, parts string

	// decide decides by the record and changes it. It may be called several times; only the answer
	// of the call that counts is used. It keeps nothing.
	decide func(rec *record.Record, at instant) verdict
	plan   *store.Plan
	holds  bool   // it opens a reservation
	id     string // of it
	// mark is an attribute that tells later settlements that this one has ended the reservation,
	// and that it was not reset; "": none.
	mark  string
	dated bool // it takes units, which must not be used if the clock was wrong

	started bool // guarded by Store.mu; a step has begun
	done    chan struct{}
	verdict verdict // set before done is closed
	err     error
}

// verdict is what a job was answered, by one record.
type verdict struct {
	decision store.Verdict
	outcome  store.Outcome
	write    bool // the record must be written for the answer to hold
	marked   bool // another settlement has left this one's mark

	// The rest is for writes.
	effect effect
	op     *op           // what an entry would say; nil: it cannot be one
	adds   store.Amounts // units that were taken
	left   store.Amounts // where there are any: how many more could have been
	bound  bool          // left is a bound where there are none, too
	open   string        // token of a reservation that must be open still
}

// effect says what a write means to what other processes write at the same time.
type effect uint8

const (
	exclusive  effect = iota // it is only right if nobody else has written
	disturbing               // it is right, but what others decided before it may be wrong
	commuting                // it is right as long as others have left room for it, and changes no other's decision
)

// line is the jobs of one bucket.
type line struct {
	key, parts string
	jobs       []*job // that wait; guarded by Store.mu
	busy       bool   // somebody works on it; guarded by Store.mu
	// marks of settlements that have ended every reservation they had to end; guarded by Store.mu
	ended []string

	// The rest belongs to whoever works on it.
	image     *image    // as it was left; nil if unknown
	contested time.Time // until then another process is likely to write at the same time
	turn      bool      // the next write carries entries over
	pending   time.Time // until then a write whose outcome is unknown may still arrive; zero: none
	dropped   []string  // marks that the next write drops
}

const (
	mostLines    = 10_000                 // that are remembered while nobody uses them
	forgotten    = 16                     // of these are looked at for each new one
	mostJobs     = 500                    // in one write
	stepTime     = 30 * time.Second       // for jobs without a deadline
	mostAttempts = 5                      // of a write that is throttled or gets no answer
	firstPause   = 20 * time.Millisecond  // before the second attempt, with jitter; then twice that
	conflicted   = 2 * time.Millisecond   // the same after a conflict
	mostPause    = 500 * time.Millisecond //
	// how long attempts after a conflict are decided as of the first one's instant.
	sameInstant = 500 * time.Millisecond
	tokenBytes  = 40 // of an open reservation's token, or of a mark
)

// submit puts jobs of one bucket at the end of its line.
func (s *Store) submit(key, parts string, jobs ...*job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[key]
	if l == nil {
		s.forget()
		l = &line{key: key, parts: parts}
		s.lines[key] = l
	}
	l.jobs = append(l.jobs, jobs...)
	if !l.busy {
		l.busy = true
		s.working.Go(func() { s.work(l) })
	}
}

// unmark lets the next write of this process drop a settlement's mark: it has ended all
// reservations, so a later settlement finds nothing open in any bucket, and needs no mark for it.
func (s *Store) unmark(key, mark string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lines[key]; l != nil {
		l.ended = append(l.ended, mark)
	}
}

// unsure reports whether a write may still arrive.
func (l *line) unsure() bool { return time.Now().Before(l.pending) }

// forget drops some lines that nobody uses, if there are many.
func (s *Store) forget() {
	if len(s.lines) < mostLines {
		return
	}
	looked := 0
	for key, l := range s.lines { // in random order
		if !l.busy && !l.unsure() {
			delete(s.lines, key)
		}
		if looked++; looked == forgotten {
			return
		}
	}
}

// work carries out the jobs of a line until there are none.
func (s *Store) work(l *line) {
	for {
		s.mu.Lock()
		if len(l.jobs) == 0 {
			l.busy = false
			if l.image == nil && !l.unsure() {
				delete(s.lines, l.key)
			}
			s.mu.Unlock()
			return
		}
		n := min(len(l.jobs), mostJobs)
		jobs := make([]*job, 0, n)
		for _, j := range l.jobs[:n] {
			if j.ctx.Err() == nil {
				j.started = true
				jobs = append(jobs, j)
			} else {
				j.err = &undoneError{j.ctx.Err()}
				close(j.done)
			}
		}
		l.jobs = l.jobs[n:]
		l.dropped, l.ended = append(l.dropped, l.ended...), nil
		s.mu.Unlock()
		if len(jobs) > 0 {
			s.step(l, jobs)
		}
	}
}

// wait waits for a job. A caller that has no time any more leaves; the job is carried out for
// nobody, unless nobody has begun.
func (s *Store) wait(j *job) error {
	select {
	case <-j.done:
		return j.err
	case <-j.ctx.Done():
	}
	s.mu.Lock()
	started := j.started
	s.mu.Unlock()
	select {
	case <-j.done:
		return j.err
	default:
	}
	if started {
		return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, j.ctx.Err())
	}
	return &undoneError{j.ctx.Err()}
}

// attempt is one write that was sent.
type attempt struct {
	seq      int64
	at       instant
	late     bool // it was carried out so much later, or earlier, that its units are dated wrongly
	verdicts []verdict

	// What is to be written.
	rec       *record.Record // nil: nothing
	image     *image         // of the whole item
	plan      *store.Plan    // of one of the jobs
	plans     []*store.Plan
	exclusive bool
	bump      bool            // a verdict is disturbing
	bounded   bool            // a verdict has a bound everywhere
	commutes  bool            // ops are all that is written
	ops       []op            //
	entry     []byte          // the ops
	adds      store.Amounts   // of all verdicts
	left      store.Amounts   // the least of them, where units are added
	open      map[string]bool // tokens of reservations that must be open still
	marks     map[string]bool // attributes
	form      form
}

// step decides some jobs together, in order, with one write.
func (s *Store) step(l *line, jobs []*job) {
	ctx, cancel := context.WithDeadline(context.Background(), latest(jobs))
	defer cancel()
	c, began := Call{Op: jobs[0].op}, time.Now()
	a, err := s.decide(ctx, l, jobs, &c)
	c.Took, c.Err = time.Since(began), err
	s.called(&c)
	l.dropped = slices.DeleteFunc(l.dropped, func(mark string) bool {
		return l.image != nil &&
			l.image.lanes[mark] == 0
	})
	for i, j := range jobs {
		switch {
		case err != nil:
			j.err = err
		case a.late && j.dated && a.verdicts[i].write:
			j.err = errLate
		default:
			j.verdict = a.verdicts[i]
		}
		close(j.done)
	}
}

// latest returns when nobody waits any more.
func latest(jobs []*job) (t time.Time) {
	for _, j := range jobs {
		d, ok := j.ctx.Deadline()
		if !ok {
			d = time.Now().Add(stepTime)
		}
		if d.After(t) {
			t = d
		}
	}
	return t
}

// decide decides jobs by the newest image and writes what must be written.
func (s *Store) decide(ctx context.Context, l *line, jobs []*job, c *Call) (*attempt, error) {
	var unsure []*attempt // sent, and their outcomes are not known
	var refused *attempt  // the last one whose condition failed
	var at instant        // of the last attempt
	fresh := false        // the image was read, or confirmed, after the jobs came
	failed, conflicts := 0, 0
	for {
		if l.image == nil {
			img, err := s.read(ctx, l.key)
			c.sent(err)
			if err != nil {
				if fresh, failed = false, failed+1; !s.again(ctx, err, failed) {
					return nil, unresolved(l, unsure, s.explain(err))
				}
				continue
			}
			l.image, fresh = img, true
		}
		if a := landed(l.image, s.lane, unsure, refused); a != nil && a.form != shut {
			a.late = s.clock.over(a.at) // nobody knows when it was carried out
			return a, nil
		} else if a != nil {
			unsure, refused = nil, nil
		}
		now, ok := s.clock.now()
		if !ok {
			if err := s.clock.problem(); fresh && (failed+1 >= mostAttempts || errors.Is(err, ErrMisconfigured)) {
				return nil, unresolved(l, unsure, err)
			}
			if fresh {
				failed++
			}
			l.image = nil // an answer sets the clock
			continue
		}
		// After a conflict the same instant counts: what has become free since is for others, or
		// everybody who is refused would try again at once.
		if conflicts == 0 || now.early-at.early > sameInstant.Microseconds() {
			at = now
		}
		if len(unsure) > 0 && (at.early-unsure[0].at.early > laneSure.Microseconds() ||
			l.image.floor > unsure[0].at.early) {
			return nil, unresolved(l, unsure, errForgotten)
		}
		a, err := s.try(l, jobs, at)
		if err != nil {
			l.image = nil
			return nil, unresolved(l, unsure, err)
		}
		if a.rec == nil && !fresh { // refused by what is perhaps not so any more
			l.image = nil
			continue
		}
		if a.rec == nil && len(unsure) == 0 && !l.unsure() {
			return a, nil
		}
		if a.rec == nil { // a write that is still on its way must not arrive after this answer
			if err := s.fence(l, a, jobs[0].plan); err != nil {
				return nil, unresolved(l, unsure, err)
			}
		}
		// that this write is carried out does not say that the image is new
		if !fresh && a.form != replace && !a.all() {
			l.image = nil
			continue
		}
		first := a
		if len(unsure) > 0 {
			first = unsure[0]
		}
		img, err := s.write(ctx, l, a, first)
		c.sent(err)
		if err == nil {
			l.turn = false
			if img != nil {
				l.count(img)
			}
			l.image, l.pending = img, time.Time{}
			if a.form == shut {
				unsure, refused, fresh = nil, nil, true
				continue
			}
			return a, nil
		}
		switch classify(err) {
		case conflict:
			l.contest()
			l.turn = false
			l.image, fresh, refused = img, img != nil, a
			conflicts++
			if img != nil && landed(img, s.lane, unsure, refused) == nil && conflicts > 1 {
				pause(ctx, conflicted, conflicts-1)
			}
			if ctx.Err() != nil {
				return nil, unresolved(l, unsure, fmt.Errorf("%w: %w", errBusy, ctx.Err()))
			}
		case unknown:
			unsure = append(unsure, a)
			l.image, fresh = nil, false
			if failed++; !s.again(ctx, err, failed) {
				return nil, unresolved(l, unsure, s.explain(err))
			}
		default:
			if failed++; !s.again(ctx, err, failed) {
				return nil, unresolved(l, unsure, s.explain(err))
			}
		}
	}
}

// contested reports whether another process is likely to write the bucket at the same time.
func (s *Store) contested(l *line) bool { return s.entries || time.Now().Before(l.contested) }

// contest notes that another process writes the bucket too.
func (l *line) contest() { l.contested = time.Now().Add(contestTime) }

// try decides the jobs by the image, at an instant. Without a record nothing has to be written.
func (s *Store) try(l *line, jobs []*job, at instant) (*attempt, error) {
	full := false
	for {
		rec, err := s.bucket(l.image, at.early)
		if err != nil {
			return nil, err
		}
		a := &attempt{
			seq: s.next(at.early), at: at, verdicts: make([]verdict, len(jobs)), plan: jobs[0].plan,
			commutes: true,
		}
		write := false
		for i, j := range jobs {
			v := &a.verdicts[i]
			if full && j.holds && rec.Open[j.id] == nil {
				*v = verdict{decision: store.Verdict{Fail: store.ErrTooManyOpen}}
				continue
			}
			*v = j.decide(rec, at)
			if j.mark != "" {
				v.marked, v.op = l.image.lanes[j.mark] != 0 || a.marks[j.mark], nil
				if !v.outcome.Gone {
					keep(&a.marks, j.mark, true)
				}
			}
			if v.write {
				write = true
				a.include(v, j.plan)
			}
		}
		if !write {
			return a, nil
		}
		a.rec, a.plan = rec, a.plans[0]
		a.image = l.image.next(rec, a.plan, s.lane, a.seq, at.early)
		for _, mark := range l.dropped {
			delete(a.image.lanes, mark)
		}
		for mark := range a.marks {
			a.image.lanes[mark] = at.early
		}
		if a.commutes {
			list, err := l.image.ordered()
			if err != nil {
				return nil, err
			}
			e := entry{at: rec.Last, blur: at.blur, ops: a.ops}
			for _, before := range list {
				e.after = max(e.after, before.after+1)
			}
			a.entry = e.bytes()
		}
		if size := len(a.image.record); size > mostBytes && size > len(l.image.record) {
			if full {
				return nil, errTooLong
			}
			full = true
			continue
		}
		a.form = s.form(l, a)
		room := len(a.image.record)+len(rec.Open)*tokenBytes < mostBytes
		if limits := s.sameLimits(a.plans); a.form == replace && s.contested(l) && room && limits != "" {
			a.image.open(limits, rec)
		}
		return a, nil
	}
}

// all reports whether each verdict is written.
func (a *attempt) all() bool {
	return !slices.ContainsFunc(a.verdicts, func(v verdict) bool { return !v.write })
}

// include adds what a verdict writes.
func (a *attempt) include(v *verdict, plan *store.Plan) {
	a.plans = append(a.plans, plan)
	a.exclusive = a.exclusive || v.effect == exclusive
	a.bump = a.bump || v.effect == disturbing
	a.commutes = a.commutes && v.op != nil
	if v.op != nil {
		a.ops = append(a.ops, *v.op)
	}
	if v.open != "" {
		keep(&a.open, v.open, true)
	}
	for i, n := range v.adds {
		known := a.adds[i] > 0 || a.bounded
		if (n > 0 || v.bound) && (!known || v.left[i] < a.left[i]) {
			a.left[i] = v.left[i]
		}
		a.adds[i] += n
	}
	a.bounded = a.bounded || v.bound
}

// fence makes an attempt write, although it changes nothing, so that earlier writes of this process
// are refused when they arrive.
func (s *Store) fence(l *line, a *attempt, plan *store.Plan) error {
	rec, err := s.bucket(l.image, a.at.early)
	if err != nil {
		return err
	}
	a.rec, a.plans, a.image = rec, []*store.Plan{plan}, l.image.next(rec, plan, s.lane, a.seq, a.at.early)
	a.form = replace
	if l.image.appendable(a.at.early) {
		a.form = add // of no entry
	}
	return nil
}

// landed returns the attempt whose write is the last one of this process in an image, if any. A
// proxy may have sent a write twice: then the second one was refused because the first one was
// carried out.
func landed(img *image, lane string, unsure []*attempt, refused *attempt) *attempt {
	if refused != nil && img.lanes[lane] == refused.seq {
		return refused
	}
	for _, a := range unsure {
		if img.lanes[lane] == a.seq {
			return a
		}
	}
	return nil
}

// unresolved remembers that writes may still arrive, and returns the error for their callers.
func unresolved(l *line, unsure []*attempt, err error) error {
	if len(unsure) == 0 {
		return &undoneError{err}
	}
	l.image, l.pending = nil, time.Now().Add(laneLife)
	return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
}

// again waits before the next attempt, and reports whether there is one.
func (s *Store) again(ctx context.Context, err error, failed int) bool {
	if failed >= mostAttempts || classify(err) == hopeless || errors.Is(err, ErrMisconfigured) || ctx.Err() != nil {
		return false
	}
	pause(ctx, firstPause, failed)
	return ctx.Err() == nil
}

// pause sleeps for half to all of first × 2^(n-1), or until ctx ends.
func pause(ctx context.Context, first time.Duration, n int) {
	d := min(first<<min(n-1, 10), mostPause)
	d = d/2 + rand.N(d/2+1) //nolint:gosec // jitter
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
