package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/drawgate/drawgate/store"
)

// tries is how often a take waits for a lease before it goes straight to the store. Where very many
// ask, those that go there are in the way of the next lease: a store needs ten times as long for a
// take beside open reservations.
const tries = 16

// leased reports whether a take may be decided here.
func leased(t *store.Take) bool {
	if t.Ticket != nil || t.ID != "" || t.Hold != 0 || t.Lease || t.Ahead != 0 || t.Given || t.Known != nil ||
		t.Recovery != nil || t.Priority < 0 || t.Priority > store.MaxPriority ||
		len(t.Buckets) == 0 || len(t.Buckets) > store.MaxBuckets {
		return false
	}
	for i := range t.Buckets {
		b := &t.Buckets[i]
		if b.Plan == nil || b.Plan.LeaseLife(int(t.Priority)) == 0 || !asks(&b.N) {
			return false
		}
		for k := range i {
			if t.Buckets[k].Key == b.Key {
				return false // a mistake, which the store reports
			}
		}
	}
	return true
}

// asks reports whether a take asks for anything, and for no nonsense.
func asks(n *store.Amounts) (some bool) {
	for j := range n {
		if n[j] < 0 {
			return false
		}
		some = some || n[j] > 0
	}
	return some
}

// Take implements [store.Store]. Takes that are decided here come before the others of the batch.
func (s *Store) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if len(batch) == 1 {
		done, err := s.here(ctx, &batch[0], &out[0])
		if done || err != nil {
			return err
		}
		return s.through(ctx, batch, out)
	}
	var some []store.Take
	var at []int
	for i := range batch {
		done, err := s.here(ctx, &batch[i], &out[i])
		if err != nil {
			out[i] = store.Verdict{Fail: err}
		}
		if !done && err == nil {
			some, at = append(some, batch[i]), append(at, i)
		}
	}
	if len(some) == len(batch) {
		return s.through(ctx, batch, out)
	}
	if len(some) == 0 {
		return nil
	}
	outs := make([]store.Verdict, len(some))
	err := s.through(ctx, some, outs)
	for k, i := range at {
		if out[i] = outs[k]; err != nil { // the others were decided
			out[i] = store.Verdict{Fail: err}
		}
	}
	return nil
}

// TakeHeld decides a plain take of one bucket with what is held in this process, without I/O. It
// reports whether it did; otherwise the take needs [Store.Take]. A limiter calls it first.
func (s *Store) TakeHeld(b store.BucketCost, priority int8) (v store.Verdict, ok bool) {
	if b.Plan == nil || priority < 0 || priority > store.MaxPriority || b.Plan.LeaseLife(int(priority)) == 0 ||
		!asks(&b.N) {
		return v, false
	}
	id := ident{b.Key, b.Plan, priority}
	e := s.keys.find(&id, s.keys.hash(&id))
	if e == nil || !e.take(&b.N, &v) {
		return store.Verdict{}, false
	}
	s.stats.local.Add(1)
	return v, true
}

// here decides a take in this process if it can.
func (s *Store) here(ctx context.Context, t *store.Take, v *store.Verdict) (done bool, err error) {
	if !leased(t) || ctx.Err() != nil {
		return false, nil //nolint:nilerr // the store says that nothing was done
	}
	if len(t.Buckets) == 1 {
		b := &t.Buckets[0]
		e := s.entry(b, t.Priority)
		if e == nil {
			return false, nil
		}
		for range tries {
			if e.take(&b.N, v) {
				s.stats.local.Add(1)
				return true, nil
			}
			what, err := e.miss(ctx, &b.N)
			if err != nil {
				return false, errGaveUp(err)
			}
			if what == goThrough {
				break
			}
		}
		return false, nil
	}
	return s.hereAll(ctx, t, v)
}

func errGaveUp(err error) error {
	return fmt.Errorf("lease: the caller gave up while a lease was asked for; nothing was taken: %w", err)
}

// entry returns the entry of a bucket, if it is asked for often enough.
func (s *Store) entry(b *store.BucketCost, priority int8) *entry {
	id := ident{b.Key, b.Plan, priority}
	hash := s.keys.hash(&id)
	if e := s.keys.find(&id, hash); e != nil {
		return e
	}
	now := s.clock.now()
	n := s.keys.seen.count(hash, now.at)
	// as many in an epoch as a lease must be worth
	life := int64(b.Plan.LeaseLife(int(priority)))
	if n < max(2*worthTakes, worthTakes*sketchEpoch/life) || s.stats.entries.Load() >= s.most {
		return nil
	}
	e := newEntry(s, id, now, n, &b.N)
	was := s.keys.add(e, hash)
	if was != e {
		e.giveBack(true)
		return was
	}
	s.stats.entries.Add(1)
	return e
}

// take decides a take of one bucket, if there is a lease that has its units, or if it is known that
// there is none.
func (e *entry) take(n *store.Amounts, v *store.Verdict) bool {
	if u := e.cur.Load(); u != nil {
		if ok, low := u.spend(n); ok {
			// Only now: it was taken off at this instant or earlier, however long this goroutine
			// stood still.
			now := e.s.clock.now()
			if e.h.usable(u, now) {
				e.h.takes.Add(1)
				if low || now.at >= u.refresh {
					e.low()
				}
				*v = store.Verdict{Allowed: true, Now: u.stamp + max(0, now.at-u.at)/1000}
				u.describe(&v.First)
				return true
			}
		}
	}
	if r := e.refusal.Load(); r != nil && r.covers(n) {
		if now := e.s.clock.now(); now.at < r.until {
			e.count(n)
			r.describe(now.at, v)
			return true
		}
	}
	return false
}

// count counts a take that spends nothing of a lease.
func (e *entry) count(n *store.Amounts) {
	e.h.takes.Add(1)
	for j := range e.h.limits {
		if n[j] > 0 {
			e.h.refused[j].Add(n[j])
		}
	}
}

// describe says what is left, as far as it is known.
func (u *units) describe(a *store.Answer) {
	for j := range u.limit {
		a.Limits[j] = store.Result{
			Remaining: u.answer.Limits[j].Remaining + u.rest(j), ResetAt: u.answer.Limits[j].ResetAt,
		}
	}
}

// describe refuses a take: until the store said that units come back, or is asked again, whichever
// is later.
func (r *refusal) describe(now int64, v *store.Verdict) {
	since := time.Duration(now - r.at)
	again := max(time.Duration(r.until-now), time.Microsecond)
	*v = r.verdict
	v.Now += since.Microseconds()
	v.RetryAfter = later(r.verdict.RetryAfter, since, again)
	v.EarliestRetry = min(max(0, later(r.verdict.EarliestRetry, since, 0)), v.RetryAfter)
	for j := range v.First.Limits {
		if l := &v.First.Limits[j]; l.RetryAfter > 0 {
			l.RetryAfter = later(l.RetryAfter, since, again)
		}
	}
}

// later returns what is left of a wait after some time, at least least, in whole microseconds.
func later(wait, since, least time.Duration) time.Duration {
	const never = 1<<63 - 1
	if wait == never {
		return wait
	}
	d := max(wait-since, least)
	return (d + time.Microsecond - 1).Truncate(time.Microsecond)
}

// hereAll decides a take of several buckets: of all of them, or not at all.
func (s *Store) hereAll(ctx context.Context, t *store.Take, v *store.Verdict) (done bool, err error) {
	var room [8]*entry
	entries := room[:0]
	for i := range t.Buckets {
		e := s.entry(&t.Buckets[i], t.Priority)
		if e == nil {
			return false, nil // the others are not counted: they are asked for less than it seems
		}
		entries = append(entries, e)
	}
	for range tries * len(entries) {
		lacks, done := s.spendAll(entries, t, v)
		if done {
			s.stats.local.Add(1)
			return true, nil
		}
		what, err := entries[lacks].miss(ctx, &t.Buckets[lacks].N)
		switch {
		case err != nil:
			return false, errGaveUp(err)
		case what == goThrough:
			return false, nil
		case what == refuse && s.refuseAll(entries, lacks, t, v):
			s.stats.local.Add(1)
			return true, nil
		}
	}
	return false, nil
}

// spendAll spends units of all buckets, or returns the first bucket that lacks some.
func (s *Store) spendAll(entries []*entry, t *store.Take, v *store.Verdict) (lacks int, done bool) {
	var room [8]*units
	spent := room[:0]
	undo := func() {
		for i, u := range spent {
			u.undo(&t.Buckets[i].N, u.limit)
		}
	}
	low := false
	for i, e := range entries {
		u := e.cur.Load()
		if u == nil {
			undo()
			return i, false
		}
		ok, little := u.spend(&t.Buckets[i].N)
		if !ok {
			undo()
			return i, false
		}
		spent, low = append(spent, u), low || little
	}
	now := s.clock.now()
	for i, u := range spent {
		if !entries[i].h.usable(u, now) {
			undo()
			return i, false
		}
	}
	*v = store.Verdict{Allowed: true, Rest: make([]store.Answer, len(spent)-1)}
	for i, u := range spent {
		entries[i].h.takes.Add(1)
		v.Now = max(v.Now, u.stamp+max(0, now.at-u.at)/1000)
		u.describe(v.Bucket(i))
		if low || now.at >= u.refresh {
			entries[i].low()
		}
	}
	return 0, true
}

// refuseAll refuses a take of several buckets by what is known of one.
func (s *Store) refuseAll(entries []*entry, by int, t *store.Take, v *store.Verdict) bool {
	r := entries[by].refusal.Load()
	now := s.clock.now()
	if r == nil || now.at >= r.until || !r.covers(&t.Buckets[by].N) {
		return false
	}
	var one store.Verdict
	r.describe(now.at, &one)
	*v = one
	v.Rest = make([]store.Answer, len(entries)-1)
	v.First = store.Answer{}
	for i, e := range entries {
		if i != by {
			if u := e.cur.Load(); u != nil {
				u.describe(v.Bucket(i))
			}
		}
	}
	*v.Bucket(by) = one.First
	if v.Reason == store.Paused {
		v.PausedAt = by
	}
	entries[by].count(&t.Buckets[by].N)
	return true
}

// through sends takes straight to the store, and learns from what it answers.
func (s *Store) through(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	sent := s.clock.now()
	err := s.inner.Take(ctx, batch, out)
	counted := false
	for i := range batch {
		t := &batch[i]
		if !leased(t) {
			continue
		}
		s.stats.through.Add(1)
		if !counted {
			s.stats.calls.Add(1)
			counted = true
		}
		for k := range t.Buckets {
			b := &t.Buckets[k]
			id := ident{b.Key, b.Plan, t.Priority}
			e := s.keys.find(&id, s.keys.hash(&id))
			if e == nil {
				continue
			}
			e.count(&b.N)
			if err == nil && len(t.Buckets) == 1 {
				e.passed(sent, &out[i])
			}
		}
	}
	return err
}
