package guard

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// part is one bucket's part of a take or settlement.
type part struct {
	asking
	key   drawgate.Key
	shard int
}

func (s *Store) parts(buckets []drawgate.BucketCost) []part {
	ps := make([]part, len(buckets))
	for i := range buckets {
		ps[i] = s.part(&buckets[i])
	}
	return ps
}

func (s *Store) part(b *drawgate.BucketCost) part {
	return part{asking{s.terms.of(b.Plan), b.N}, b.Key, s.book.shard(b.Key)}
}

// request is a take on its way.
type request struct {
	take  *drawgate.Take
	parts []part
	sent  bool // the store may have it
	hasty bool // its caller had less time than a store may take
}

// requests makes what a batch needs on its way.
func (s *Store) requests(batch []drawgate.Take) []request {
	if len(batch) == 1 && len(batch[0].Buckets) == 1 { // most are
		one := &struct {
			reqs  [1]request
			parts [1]part
		}{}
		one.parts[0] = s.part(&batch[0].Buckets[0])
		one.reqs[0] = request{take: &batch[0], parts: one.parts[:]}
		return one.reqs[:]
	}
	reqs := make([]request, len(batch))
	for i := range batch {
		reqs[i] = request{take: &batch[i], parts: s.parts(batch[i].Buckets)}
	}
	return reqs
}

// Take implements [drawgate.Store]. It does not return a [drawgate.StoreError], nor does a decision: what the store does not decide is decided here.
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
	reqs := s.requests(batch)
	cause := s.refusedBy()
	if cause == nil {
		var answered bool
		if answered, cause = s.ask(ctx, batch, reqs, out); cause == nil || answered {
			return s.took(reqs, out)
		}
		if gaveUp(ctx) {
			s.release(reqs)
			return ctx.Err()
		}
		if !isAway(cause) {
			s.release(reqs)
			return cause
		}
	}
	if reqs[0].hasty && opens(reqs) {
		s.release(reqs)
		return context.DeadlineExceeded
	}
	for i := range reqs {
		out[i] = s.decide(&reqs[i])
	}
	s.news.fell(asStoreError("take", cause), out)
	s.nudge()
	return nil
}

// opens reports whether a limit would step aside. Not for a caller that gives a store which is not known to be away no time: otherwise callers could choose
// by their deadlines to be admitted without bound.
func opens(reqs []request) bool {
	for i := range reqs {
		for k := range reqs[i].parts {
			if slices.Contains(reqs[i].parts[k].terms.mode[:], drawgate.FallbackOpen) {
				return true
			}
		}
	}
	return false
}

// refusedBy returns why no caller is sent to the store; nil if they are.
func (s *Store) refusedBy() error {
	if !s.open.Load() {
		return nil
	}
	return s.away("take")
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

// ask has the store decide. While it does, the units count here: whatever is decided here at the same time must not count on them.
//
// It reports whether the store answered each take for itself, perhaps with a failure.
func (s *Store) ask(ctx context.Context, batch []drawgate.Take, reqs []request, out []drawgate.Decision) (answered bool, err error) {
	caller := ctx
	ctx, cancel, whole := s.limit(ctx)
	defer cancel()
	if err := s.enter(ctx, reqs); err != nil {
		reqs[0].hasty = !whole && errors.Is(err, context.DeadlineExceeded)
		return false, err
	}
	for i := range reqs {
		reqs[i].sent = true
	}
	for try := 1; ; try++ {
		answered = false
		err = s.attempt(ctx, caller, "take", whole, func(ctx context.Context) error {
			if err := s.store().Take(ctx, batch, out); err != nil {
				return err
			}
			answered = true
			return failedWide(out)
		})
		reqs[0].hasty = !whole && errors.Is(err, context.DeadlineExceeded)
		if err == nil || !isAway(err) || gaveUp(caller) || try == attempts || !repeatable(batch) || s.open.Load() || !s.nap(ctx) {
			return answered, err
		}
	}
}

// attempts is how often a take with an id is sent, if there is time: if it had arrived it is answered again, at no cost.
const attempts = 3

// repeatable reports whether all takes of a batch have an id.
func repeatable(batch []drawgate.Take) bool {
	return !slices.ContainsFunc(batch, func(t drawgate.Take) bool { return t.ID == "" })
}

// failedWide returns the first failure of a take that is not of its buckets only.
func failedWide(out []drawgate.Decision) error {
	for i := range out {
		if out[i].Fail != nil && wide(out[i].Fail) {
			return out[i].Fail
		}
	}
	return nil
}

// enter notes takes as being asked for. If the store has yet to be told something of their buckets, it waits for that.
func (s *Store) enter(ctx context.Context, reqs []request) error {
	now := s.clock.now()
	var owing []drawgate.Key
	for i := range reqs {
		r := &reqs[i]
		s.book.with(r.parts, kept, now, func(pages []*page) {
			for k, p := range pages {
				if p == nil {
					continue
				}
				p.asked = append(p.asked, &r.parts[k].asking)
				if p.owes() {
					owing = append(owing, r.parts[k].key)
				}
			}
		})
	}
	if len(owing) == 0 {
		return nil
	}
	return s.tellFirst(ctx, owing)
}

// took takes note of what the store decided. A take that failed because the store is away, if only for its buckets, is decided here.
func (s *Store) took(reqs []request, out []drawgate.Decision) error {
	for i := range reqs {
		r, d := &reqs[i], &out[i]
		if isAway(d.Fail) && reqs[0].hasty && opens(reqs[i:i+1]) { // see opens: nobody decides
			s.release(reqs[i : i+1])
			continue
		}
		if isAway(d.Fail) {
			cause := asStoreError("take", d.Fail)
			if cause.Fault == drawgate.FaultBucket {
				s.news.failed(&BackendError{Op: "take", Err: cause, Fault: cause.Fault})
			}
			*d = s.decide(r)
			s.news.fell(cause, out[i:i+1])
			s.nudge()
			continue
		}
		if d.Fail == nil {
			s.clock.learn(d)
		}
		now := s.clock.now()
		if d.Allowed && r.take.ID != "" {
			s.held.granted(r, d, now)
		}
		s.book.with(r.parts, found, now, func(pages []*page) {
			if d.Allowed {
				s.note(r, pages, d)
			}
			r.leave(pages)
		})
	}
	return nil
}

// release forgets takes whose caller has left.
func (s *Store) release(reqs []request) {
	now := s.clock.now()
	for i := range reqs {
		r := &reqs[i]
		s.book.with(r.parts, found, now, func(pages []*page) { r.leave(pages) })
	}
}

// leave ends the asking.
func (r *request) leave(pages []*page) {
	for k, p := range pages {
		if p != nil {
			p.forget(&r.parts[k].asking)
		}
	}
}

// asksPool holds room for what a take asks of its pages.
var asksPool = sync.Pool{New: func() any { return new([]record.Ask) }}

// unrecorded notes that something is held of a bucket that has no page, or not a word of it. The bucket is locked.
func (s *Store) unrecorded(pt *part, hold time.Duration) {
	if len(pt.terms.at) > 0 {
		s.book.parts[pt.shard].lose(s.clock.now().own + hold.Microseconds() + 1)
	}
}

// note records what the store has allowed, whatever is left of this process's share.
func (s *Store) note(r *request, pages []*page, d *drawgate.Decision) {
	room := asksPool.Get().(*[]record.Ask)
	asks := (*room)[:0]
	defer func() {
		clear(asks)
		*room = asks[:0]
		asksPool.Put(room)
	}()
	for k, p := range pages {
		pt := &r.parts[k]
		if p == nil || len(pt.terms.at) == 0 {
			s.unrecorded(pt, r.take.Hold)
			continue
		}
		n := pt.n
		if r.take.ID != "" {
			n = d.Granted(k)
		}
		if p.fresh {
			took := n // n itself is not for the heap
			s.former(p, pt, leftAt(d, k, r.take.Priority, &took))
		}
		asks = append(asks, record.Ask{Rec: &p.rec, Specs: pt.terms.wide, N: pt.terms.pick(&n)})
	}
	if len(asks) == 0 {
		return
	}
	t := record.Take{ID: r.take.ID, Hold: r.take.Hold.Microseconds(), Lease: r.take.Lease, Priority: drawgate.MaxPriority}
	if t.ID != "" {
		t.Print = r.take.Print()
	}
	record.Decide(asks, &t, d.At().UnixMicro())
	for k, p := range pages {
		if p != nil {
			r.parts[k].terms.clamp(&p.rec)
		}
	}
}
