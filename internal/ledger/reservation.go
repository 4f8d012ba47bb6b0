package ledger

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"

	"github.com/drawgate/drawgate/store"
)

// reservation is a grant of this process.
type reservation struct {
	take    store.Take // a copy
	parts   []part     // their entries are looked up when needed
	granted []store.Amounts
	given   int64 // when it was given here, on the store's clock; 0: the store gave it
	end     int64 // end of the hold, on the store's clock

	name   string // its id at the store, where another grant has its own; "": its own
	stored bool   // the store has it
	unsure bool   // the store was asked for it and did not answer: it may have it
	said   bool   // its decision said that the store may have it
	// given here: when the hold ends at the store; if unsure: no earlier, if it has it; 0: unknown
	ends    int64
	until   int64             // if unsure: messages on their way may open it until then, on the own clock
	charged bool              // given here; its units were charged to the store, which does not have it
	last    *store.Settlement // how it ended
	closed  bool              // nothing of it is left to deliver
	dropped bool              // it was not delivered, because one of its buckets was reset
	it      *item             // its pending item
	traces  []*trace          // what the store was told, per bucket; nil: it keeps no history

	next *reservation // another grant of the same ID
}

// endThere returns when the hold ends at the store, which may not have heard of renewals.
func (h *reservation) endThere() int64 {
	if h.ends > 0 {
		return min(h.ends, h.end)
	}
	return h.end
}

// open reports whether the reservation is neither settled nor past its end.
func (h *reservation) open(now int64) bool { return !h.closed && h.last == nil && h.end > now }

// reservations holds grants by their IDs. Its size is bounded.
type reservations struct {
	max     int
	n       int
	renamed int // how many have another id at the store
	sweepAt int
	ids     map[string]*reservation
	ends    endHeap // of those that were given here and that the store does not have
}

const firstHeldSweep = 1024

func (t *reservations) init(most int) {
	t.max, t.sweepAt, t.ids = most, min(most, firstHeldSweep), make(map[string]*reservation)
}

// find returns a grant, or nil.
func (t *reservations) find(id string, g store.Grant) *reservation {
	for h := t.ids[id]; h != nil; h = h.next {
		if h.take.Grant == g {
			return h
		}
	}
	return nil
}

// rename gives a reservation an id at the store that no other grant has. It was given here while a
// grant of the same id was open there, which another process has or had before it crashed. Each may
// have a holder, so each counts, until it ends.
func (t *reservations) rename(h *reservation) {
	const most = store.MaxID - len("#0123456789abcdef")
	g := h.take.Grant
	if h.name == "" {
		t.renamed++
	} else { // the store has a part of it by that name
		g = store.NewGrant()
	}
	h.name = fmt.Sprintf("%s#%016x", h.take.ID[:min(len(h.take.ID), most)], uint64(g))
}

// storeID returns the reservation's id at the store.
func (h *reservation) storeID() string { return cmp.Or(h.name, h.take.ID) }

// nameTakes returns takes with the ids under which the store knows their grants.
func (l *Ledger) nameTakes(batch []store.Take) []store.Take {
	if l.held.renamed == 0 {
		return batch
	}
	batch = slices.Clone(batch)
	for i := range batch {
		if h := l.held.find(batch[i].ID, batch[i].Grant); h != nil {
			batch[i].ID = h.storeID()
		}
	}
	return batch
}

// nameSettlements is nameTakes for settlements.
func (l *Ledger) nameSettlements(batch []store.Settlement) []store.Settlement {
	if l.held.renamed == 0 {
		return batch
	}
	batch = slices.Clone(batch)
	for i := range batch {
		if h := l.held.find(batch[i].ID, batch[i].Grant); h != nil {
			batch[i].ID = h.storeID()
		}
	}
	return batch
}

// idOpen reports whether another grant of the request's ID is open in one of its buckets, as far as
// is recorded here.
func (l *Ledger) idOpen(now Now, r *Request) bool {
	for h := l.held.ids[r.take.ID]; h != nil; h = h.next {
		if h.take.Grant == r.take.Grant || !h.open(now.Store) {
			continue
		}
		id := openID(h.take.ID, h.take.Grant)
		for i := range r.parts {
			if e := r.parts[i].e; e != nil && e.rec.Open[id] != nil {
				return true
			}
		}
	}
	return false
}

func (t *reservations) add(h *reservation) {
	t.n++
	h.next = t.ids[h.take.ID]
	t.ids[h.take.ID] = h
}

// remove forgets a reservation. Its pending item has been dropped.
func (t *reservations) remove(h *reservation) {
	if h.closed {
		return
	}
	h.closed = true
	t.n--
	if h.name != "" {
		t.renamed--
	}
	first := t.ids[h.take.ID]
	if first == h {
		if h.next == nil {
			delete(t.ids, h.take.ID)
		} else {
			t.ids[h.take.ID] = h.next
		}
		return
	}
	for p := first; p != nil; p = p.next {
		if p.next == h {
			p.next = h.next
			return
		}
	}
}

// room reports whether one more thing can be kept. It makes room by removing reservations whose
// hold is over and that have nothing pending.
func (l *Ledger) room(now Now) bool {
	t := &l.held
	if t.n+len(l.cancels)+l.charges >= t.sweepAt {
		for _, h := range t.ids {
			for ; h != nil; h = h.next { // removing one leaves its next unchanged
				if h.it == nil && (h.last != nil || h.end <= now.Store) {
					t.remove(h)
				}
			}
		}
		t.sweepAt = min(t.max, max(firstHeldSweep, 2*(t.n+len(l.cancels)+l.charges)))
	}
	return t.n+len(l.cancels)+l.charges < t.max
}

// newReservation copies what is needed from a request, because its caller may reuse it.
func newReservation(r *Request, end int64) *reservation {
	h := &reservation{take: *r.take, parts: make([]part, len(r.parts)), end: end}
	h.take.Buckets = append([]store.BucketCost(nil), r.take.Buckets...)
	h.take.Labels = append([]store.Label(nil), r.take.Labels...)
	copy(h.parts, r.parts)
	for i := range h.parts {
		h.parts[i].e, h.parts[i].bare = nil, h.parts[i].e == nil
	}
	h.granted = make([]store.Amounts, len(r.parts))
	return h
}

// storeGave keeps a reservation that the store granted, if there is room.
func (l *Ledger) storeGave(now Now, r *Request, d *store.Verdict) {
	end := d.HoldEnd().UnixMicro()
	if h := l.held.find(r.take.ID, r.take.Grant); h != nil {
		h.until = max(h.until, r.until)
		switch {
		case h.last != nil: // settled, and the settlement is still pending: this is a late replay
		case h.given != 0 && !h.stored:
			h.unsure = true // it will be replayed as it was given here
		default:
			h.end = end
		}
		return
	}
	if !l.room(now) {
		return
	}
	h := newReservation(r, end)
	h.stored, h.until = true, r.until
	for k := range h.granted {
		h.granted[k] = d.Granted(k)
	}
	l.held.add(h)
}

// give keeps a reservation that is granted here. It returns nil if there is no room.
func (l *Ledger) give(now Now, r *Request, granted []store.Amounts) *reservation {
	if h := l.held.find(r.take.ID, r.take.Grant); h != nil {
		l.Expire(now)
		if h.it != nil || h.open(now.Store) && h.given != 0 {
			return nil // it was just settled, and the settlement is still pending
		}
		l.held.remove(h)
	}
	if !l.room(now) {
		return nil
	}
	h := newReservation(r, now.Store+r.take.Hold.Microseconds())
	h.given, h.granted, h.unsure, h.until = now.Store, granted, r.sent, r.until
	l.held.add(h)
	heap.Push(&l.held.ends, holdEnd{h.end, h})
	return h
}

// Expire charges the store for reservations that were given here, have reached their end, and are
// unknown to the store.
func (l *Ledger) Expire(now Now) {
	ends := &l.held.ends
	for len(*ends) > 0 && (*ends)[0].at <= now.Store {
		h := heap.Pop(ends).(holdEnd).h //nolint:forcetypeassert // nothing else is in it
		switch {
		case h.closed || h.stored || h.charged || h.last != nil:
		case h.end > now.Store: // it was renewed
			heap.Push(ends, holdEnd{h.end, h})
		case h.it == nil || h.it.inFlight: // decided when that is over
		default:
			l.lapse(now, h)
		}
	}
}

// lapse ends a reservation whose hold is over, and that the store may not have.
func (l *Ledger) lapse(now Now, h *reservation) {
	h.charged = true
	l.finish(h.it)
	l.cancelUnsure(now, h, l.chargeParts(now, h.parts, h.granted, h.since(now), false))
}

// holdEnd is the end of a hold, possibly outdated by a renewal.
type holdEnd struct {
	at int64
	h  *reservation
}

// endHeap has the earliest end first.
type endHeap []holdEnd

func (q endHeap) Len() int           { return len(q) }
func (q endHeap) Less(i, j int) bool { return q[i].at < q[j].at }
func (q endHeap) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push implements [heap.Interface].
func (q *endHeap) Push(x any) { *q = append(*q, x.(holdEnd)) } //nolint:forcetypeassert // nothing else is pushed

// Pop implements [heap.Interface].
func (q *endHeap) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}
