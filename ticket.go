package drawgate

import (
	"context"
	"math/rand/v2"
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
}

// enterLine gives a take that waits its number.
func (t *take) enterLine() {
	t.place.number, t.place.since = rand.Uint64()|1, time.Now() //nolint:gosec // it must be another one, not a secret
}

// showTicket lets the store know the place of a take that waits, and who comes next.
func (t *take) showTicket(ctx context.Context, next []store.Next) {
	p := &t.place
	if p.number == 0 {
		return
	}
	t.Ticket = &store.Ticket{Number: p.number, Arrival: p.arrival.Load(), Waited: time.Since(p.since), Next: next}
	if end, ok := ctx.Deadline(); ok {
		t.Ticket.Patience = max(time.Microsecond, time.Until(end))
	}
	p.lies.Store(true) // until the store says otherwise
}

// learnPlace notes what a verdict says about the take's place.
func (t *take) learnPlace(v *store.Verdict) {
	if t.place.number == 0 {
		return
	}
	if v.Arrival != 0 {
		t.place.arrival.Store(v.Arrival)
	}
	t.place.lies.Store(!v.Allowed && v.Arrival != 0)
}

// next returns who comes next in the line of w, which is in front: no more than there could be units
// for at once. q.mu is held.
func (q *waitQueue) next(w *waiter) (all []store.Next) {
	most := int64(store.MaxNext)
	for j, n := range w.bucket().N {
		if n > 0 {
			most = min(most, w.plan().specs[j].Effective[store.MaxPriority]/n)
		}
	}
	for behind := range q.lines[w.bucket().Key].Following() {
		o := q.waiters[behind]
		if o.asks.Load() { // it may be granted before this is read: then its ticket would stay behind
			continue
		}
		if int64(len(all)) >= most {
			break
		}
		p := &o.take.place
		p.lies.Store(true)
		all = append(all, store.Next{
			Number: p.number, Arrival: p.arrival.Load(), Waited: time.Since(p.since), Priority: o.take.Priority, At: w.at,
			N: o.bucket().N,
		})
	}
	return all
}

// nextOf is next for one whose turn it was; it may not be any more.
func (q *waitQueue) nextOf(w *waiter) []store.Next {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lines[w.bucket().Key].Front() != w.Waiter {
		return nil
	}
	return q.next(w)
}

// keepTicket is how often a waiter asks at least, so that its ticket does not end.
const keepTicket = 4 * time.Second

// Withdrawals go on in the background, and callers do not wait for them.
const (
	withdrawTimeout = time.Second
	mostWithdrawals = 256 // at once; the tickets of others end by themselves
)

// withdraw removes the ticket of a take that waits no more.
func (l *Limiter) withdraw(t *take) {
	liner, ok := l.store.(store.Liner)
	if !ok || !t.place.lies.Load() {
		return
	}
	keys := make([]Key, len(t.Buckets))
	for i := range keys {
		keys[i] = t.Buckets[i].Key
	}
	number := t.place.number
	l.given.do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), withdrawTimeout)
		defer cancel()
		_ = liner.Withdraw(ctx, number, keys) // otherwise it ends by itself
	})
}
