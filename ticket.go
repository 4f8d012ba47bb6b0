package drawgate

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/store"
)

// place is what a waiting take knows of its place in the line of all processes, where the store
// keeps one: see [store.Ticket].
type place struct {
	number  uint64       // 0: the take does not wait
	since   time.Time    // it waits
	arrival atomic.Int64 // 0: no store has said it
	lies    atomic.Bool  // there may be a ticket of it
	own     atomic.Bool  // its own request left it, wherever that stands among those of its process
	stands  standing     // as of the last refusal; of the goroutine that waits
}

// standing is where the first of a line of this process stands in the line of all processes.
type standing struct {
	tickets int
	before  []uint64  // the numbers of those before it, of this process, too
	oldest  time.Time // the one who has waited longest began to; zero: there is no line
}

// longest returns how long the one who has waited longest has been waiting.
func (s *standing) longest() time.Duration {
	if s.oldest.IsZero() {
		return 0
	}
	return time.Since(s.oldest)
}

// enterLine gives a take that waits its number.
func (t *take) enterLine() {
	t.place.number, t.place.since = rand.Uint64()|1, time.Now() //nolint:gosec // it must be another one, not a secret
}

// ownLine reports whether the take stays out of the line of all processes, because the policy of
// one of its buckets says so.
func (t *take) ownLine() bool {
	return slices.ContainsFunc(t.plans, func(p *Plan) bool { return p.policy.Wait.OwnLine })
}

// showTicket lets the store know the place of a take that waits, since when, as far as its process
// knows, and who comes next.
func (t *take) showTicket(ctx context.Context, arrival int64, next []follower) {
	p := &t.place
	if p.number == 0 {
		return
	}
	t.Ticket = &store.Ticket{Number: p.number, Arrival: arrival, Waited: time.Since(p.since)}
	for i := range next {
		t.Ticket.Next = append(t.Ticket.Next, next[i].next)
	}
	if end, ok := ctx.Deadline(); ok {
		t.Ticket.Patience = max(time.Microsecond, time.Until(end))
	}
	p.lies.Store(true) // until the store says otherwise
}

// arrivalOf returns when a take began to wait, by the store's clock and at the latest: as its line
// in this process knows of that clock, or as the store said. That is late by the journey of the
// request by which the store met the take. 0: neither is known. q.mu is held.
// A take of several buckets may stand in lines of several servers. It has one arrival in all of
// them: otherwise two takes might each stand before the other.
func (q *waitQueue) arrivalOf(t *take) int64 {
	if ln := q.lines[q.keyOf(t, 0)]; ln != nil && len(t.Buckets) == 1 {
		if at, known := ln.clock.Latest(t.place.since.Sub(q.start)); known {
			return max(1, at.Microseconds())
		}
	}
	return t.place.arrival.Load()
}

// learnClock notes what an answer to a take says about the clock that its bucket's lines go by, if
// anybody waits there.
func (q *waitQueue) learnClock(t *take, sent time.Time, now int64) {
	if len(t.Buckets) > 1 { // of several servers each may have its own
		return
	}
	received := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, ln := range q.of(t.Buckets[0].Key) {
		ln.clock.Add(sent.Sub(q.start), time.Duration(now)*time.Microsecond, received.Sub(q.start))
	}
}

// learnPlace notes what a verdict says about the take's place. The take was sent at that instant.
func (l *Limiter) learnPlace(t *take, v *store.Verdict, sent time.Time) {
	if t.place.number == 0 {
		return
	}
	if v.Arrival != 0 {
		l.queue.learnClock(t, sent, v.Now)
		t.place.arrival.Store(v.Arrival)
	}
	t.place.lies.Store(!v.Allowed && v.Arrival != 0)
	t.place.own.Store(!v.Allowed && v.Arrival != 0)
	t.place.stands = standing{}
	if s := &v.Standing; s.Tickets > 0 {
		ago := time.Duration(max(0, v.Now-s.Oldest)) * time.Microsecond
		t.place.stands = standing{tickets: s.Tickets, before: s.Before, oldest: time.Now().Add(-ago)}
	}
}

// follower is a waiter of whom the store is told.
type follower struct {
	*waiter
	next store.Next
}

// next returns those behind w, which is in front, of whom the store has to be told: no more than
// there could be units for at once. It does not name those anew whose tickets lie there, but for
// the last one before others: these stand behind it. q.mu is held.
func (q *waitQueue) next(w *waiter) (all []follower) {
	most := int64(store.MaxNext)
	for j, n := range w.bucket().N {
		if n > 0 {
			most = min(most, w.plan().specs[j].Effective[store.MaxPriority]/n)
		}
	}
	now, n := time.Now(), int64(0)
	var known *waiter
	for behind := range q.lines[w.in].Following() {
		o := q.waiters[behind]
		if o.asks.Load() { // it may be granted before this is read: then its ticket would stay behind
			continue
		}
		if n++; n > most+store.MaxNext {
			break
		}
		// One that came to stand further back, behind others who came earlier and learned later
		// that they have to wait, may have its ticket before theirs.
		if n > most && now.Sub(o.named) > mostTicketLife {
			continue
		}
		if now.Sub(o.named) < nameAgain {
			known = o
			continue
		}
		if known != nil && len(all) < store.MaxNext {
			all, known = append(all, follower{known, q.name(known, now, w.at)}), nil
		}
		if len(all) == store.MaxNext {
			break
		}
		all = append(all, follower{o, q.name(o, now, w.at)})
	}
	return all
}

// name returns what the store is told of a waiter behind another one. waitQueue.mu is held.
func (q *waitQueue) name(w *waiter, now time.Time, at int) store.Next {
	p := &w.take.place
	p.lies.Store(true)
	p.own.Store(false) // it stands behind who names it
	w.named = now
	return store.Next{
		Number: p.number, Arrival: q.arrivalOf(w.take), Waited: now.Sub(p.since), Priority: w.take.Priority, At: at,
		N: w.bucket().N,
	}
}

// tell returns what the store is told by one whose turn it was, and who is about to ask: since when
// it waits, and of whom else. It may not be its turn any more: somebody who came earlier may have
// been slower to learn that it has to wait. Then who names it says where it stands. Where the store
// keeps no line, or is not known to, it is not told of anybody.
func (q *waitQueue) tell(w *waiter) (arrival int64, next []follower) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.asks.Store(true)
	ln := q.lines[w.in]
	if ln.Front() != w.Waiter {
		if len(w.take.Buckets) == 1 {
			return 0, nil
		}
		return w.take.place.arrival.Load(), nil
	}
	if ln.kept {
		next = q.next(w)
	}
	return q.arrivalOf(w.take), next
}

// nameAgain is how long those behind need not be named: half of what their tickets live.
const nameAgain = 500 * time.Millisecond

// mostTicketLife is how long a ticket lives at most.
const mostTicketLife = 5 * time.Second

// keepTicket is how often a waiter asks at least, so that its ticket does not end: it is not
// written anew before half its life, which is 5 s then. Shorter lives are 200 ms, or twice the wait
// that the refusal named.
const (
	keepTicket      = 2400 * time.Millisecond
	keepShortTicket = 150 * time.Millisecond
)

// keepsTicket shortens a pause after a refusal so that the waiter's ticket does not end: a policy's
// backoff may be longer.
func keepsTicket(pause, retryAfter time.Duration) time.Duration {
	retryAfter = min(retryAfter, keepTicket)
	return min(pause, keepTicket, max(keepShortTicket, retryAfter+retryAfter/2))
}

// Withdrawals go on in the background, and callers do not wait for them.
const (
	withdrawTimeout = mostTicketLife
	mostWithdrawals = 256 // at once; the tickets of others end by themselves
)

// takeBack removes the ticket of a waiter that is not in front, if its own request left it: as when
// several callers ask at once, before any of them waits. Only who is in front asks again, and would
// wait for the ticket of another one that came to the store before it.
func (l *Limiter) takeBack(ctx context.Context, w *waiter) {
	p := &w.take.place
	liner, ok := l.store.(store.Liner)
	if !ok || !p.own.Load() {
		return
	}
	p.own.Store(false)
	w.asks.Store(true) // nobody names it meanwhile
	done, keys := make(chan struct{}), keysOf(w.take)
	if l.given.do(func() { //nolint:contextcheck // it goes on when the caller has left
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), withdrawTimeout)
		defer cancel()
		if liner.Withdraw(ctx, p.number, keys) == nil { // otherwise it ends by itself
			p.lies.Store(false)
		}
	}) {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	w.asks.Store(w.invited.Load())
}

func keysOf(t *take) []Key {
	keys := make([]Key, len(t.Buckets))
	for i := range keys {
		keys[i] = t.Buckets[i].Key
	}
	return keys
}

// withdraw removes the ticket of a take that waits no more.
func (l *Limiter) withdraw(t *take) {
	liner, ok := l.store.(store.Liner)
	if !ok || !t.place.lies.Load() {
		return
	}
	l.remove(liner, t.place.number, keysOf(t)...)
}

// withdrawGone removes the tickets of those who wait no more, whom t named in its bucket at while
// they left: their own withdrawal may have come before.
func (l *Limiter) withdrawGone(t *take, at int, all []follower) {
	liner, ok := l.store.(store.Liner)
	if !ok || len(all) == 0 {
		return
	}
	l.queue.mu.Lock()
	all = slices.DeleteFunc(all, func(n follower) bool { return l.queue.waiters[n.Waiter] != nil })
	l.queue.mu.Unlock()
	for i := range all {
		l.remove(liner, all[i].next.Number, t.Buckets[at].Key)
	}
}

// remove removes a ticket from some buckets.
func (l *Limiter) remove(liner store.Liner, number uint64, keys ...Key) {
	l.given.do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), withdrawTimeout)
		defer cancel()
		_ = liner.Withdraw(ctx, number, keys) // otherwise it ends by itself
	})
}
