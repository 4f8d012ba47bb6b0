package ledger

import (
	"container/heap"
	"slices"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// kind is the kind of an item.
type kind uint8

const (
	chargeItem  kind = iota // units that were admitted here, of one bucket: see late.go
	chargedItem             // the end of what such a charge has opened
	callerItem              // a caller's charge, where it can have no grant
	pauseItem               // a pause that was set here
	unpauseItem             // the end of a pause, which was ended here
	replayItem              // a reservation that was given here
	renewItem               // a renewal, made here, of a reservation that the store has by now
	endItem                 // the end of a reservation
	cancelItem              // the cancellation of a grant that the store may have, and that nobody uses
	claimItem               // units that the store has lost, or must learn of, by a grant
	traceItem               // a reservation of which the store has lost something
	lookItem                // a look at a bucket, whose pauses this process set or ended
)

// item is one thing to be delivered to the store.
type item struct {
	kind    kind
	entries []*entry     // the store must have the item before it decides about them; none for a cancelItem
	h       *reservation // replayItem, renewItem, endItem
	claim   *claim       // claimItem
	kept    bool         // claimItem: it is a caller's charge
	trace   *trace       // traceItem
	needs   need         // traceItem: what was sent
	known   store.Known  // claimItem, traceItem: what was known when it was sent
	saw     store.Known  // claimItem, traceItem: what was known after the bucket was looked at for it
	st      store.Settlement
	plan    *FallbackPlan // chargeItem
	whole   bool          // chargeItem: all of it counts, whatever has aged here
	take    *store.Take   // chargeItem: as which it was sent; nil: it was not, and may grow
	plain   bool          // chargeItem: the store does not accept it with an id
	several bool          // cancelItem: several messages that may open the grant were not answered
	of      *reservation  // cancelItem of a reservation that was given here, or nil
	// cancelItem: the store may count what was used twice until it is carried out, and no decision
	// said so
	untold bool
	found  bool  // cancelItem: it ended a hold, or gave back what one had left
	last   int64 // cancelItem: the latest end that the hold may have had there
	// cancelItem, chargeItem: messages on their way may open the grant until then; replayItem: see
	// mayPass; on the own clock
	until    int64
	spent    bool // cancelItem: it has been carried out; pauseItem: it was ended here
	recovers bool // pauseItem, unpauseItem: the store had it before
	// renewItem, traceItem: the end that was asked for; chargedItem, cancelItem: of the hold, see
	// reservation.ends
	end       int64
	doubt     int64 // cancelItem: a copy of it may arrive until then, on the own clock
	notBefore int64 // on the own clock
	inFlight  bool
	queued    bool // it is in queue.ready or queue.later
	dropped   bool
}

// queue holds the pending items in order. Items that callers wait for go first.
type queue struct {
	ready  []*item // in order of arrival; some may be in flight or dropped
	later  laterHeap
	wanted []*entry // callers wait for the items of these
}

func (q *queue) want(e *entry) {
	if len(q.wanted) < maxDelivery && (len(q.wanted) == 0 || q.wanted[len(q.wanted)-1] != e) {
		q.wanted = append(q.wanted, e)
	}
}

// push makes an item pending.
func (q *queue) push(it *item, now Now) {
	it.inFlight = false
	if it.queued {
		return
	}
	it.queued = true
	if it.notBefore > now.Own {
		heap.Push(&q.later, it)
		return
	}
	q.ready = append(q.ready, it)
}

// next returns up to n items that are due, and marks them as in flight.
func (q *queue) next(n int, now Now) (items []*item) {
	pick := func(it *item) {
		if !it.inFlight && !it.dropped {
			it.inFlight = true
			items = append(items, it)
		}
	}
	for _, e := range q.wanted {
		for _, it := range e.items {
			if len(items) < n && it.notBefore <= now.Own {
				pick(it)
			}
		}
	}
	clear(q.wanted)
	q.wanted = q.wanted[:0]
	for len(q.later) > 0 && q.later[0].notBefore <= now.Own {
		q.ready = append(q.ready, heap.Pop(&q.later).(*item)) //nolint:forcetypeassert // nothing else is in it
	}
	k := 0
	for ; k < len(q.ready) && len(items) < n; k++ {
		it := q.ready[k]
		q.ready[k] = nil
		it.queued = false
		if it.notBefore > now.Own && !it.inFlight && !it.dropped {
			it.queued = true
			heap.Push(&q.later, it)
			continue
		}
		pick(it)
	}
	if q.ready = q.ready[k:]; len(q.ready) == 0 {
		q.ready = nil
	}
	return items
}

// idle returns when the next item is due, on the own clock: 0 means now, negative never.
func (q *queue) idle() int64 {
	switch {
	case len(q.ready) > 0 || len(q.wanted) > 0:
		return 0
	case len(q.later) > 0:
		return q.later[0].notBefore
	}
	return -1
}

// laterHeap has the item first that is due first.
type laterHeap []*item

func (q laterHeap) Len() int           { return len(q) }
func (q laterHeap) Less(i, j int) bool { return q[i].notBefore < q[j].notBefore }
func (q laterHeap) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push implements [heap.Interface].
func (q *laterHeap) Push(x any) { *q = append(*q, x.(*item)) } //nolint:forcetypeassert // nothing else is pushed

// Pop implements [heap.Interface].
func (q *laterHeap) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return x
}

// pend makes an item of entries pending.
func (l *Ledger) pend(now Now, it *item, entries []*entry) {
	it.entries = entries
	if it.recovering() {
		l.losses++
	}
	for _, e := range entries {
		l.entries.attach(e, it)
	}
	l.queue.push(it, now)
}

// recovering reports whether the item is about something that the store has lost, or may have.
func (it *item) recovering() bool {
	return it.kind == claimItem || it.kind == traceItem || it.kind == lookItem
}

// finish ends an item: it has been delivered, or must not be delivered any more.
func (l *Ledger) finish(it *item) {
	if it.dropped {
		return
	}
	if it.dropped = true; it.recovering() {
		l.losses--
	}
	for _, e := range it.entries {
		l.entries.detach(e, it)
		l.entries.release(e)
	}
	switch it.kind {
	case callerItem:
		l.charges--
	case cancelItem:
		delete(l.cancels, openID(it.st.ID, it.st.Grant))
		l.settledDoubt(it)
	case claimItem:
		if it.claim.it = nil; it.kept {
			l.charges--
		}
	case traceItem:
		it.trace.it = nil
	case endItem:
		it.h.ending(false)
	default:
	}
	if it.h != nil && it.h.it == it {
		it.h.it = nil
	}
}

// drop forgets an item because one of its buckets was reset, which ended what the item was about.
func (l *Ledger) drop(it *item) {
	h := it.h
	l.finish(it)
	if h != nil {
		h.dropped = true
		l.held.remove(h)
	}
}

// entriesOf returns the entries of parts, and makes missing ones. Parts without room are left out.
func (l *Ledger) entriesOf(now Now, parts []part) (es []*entry) {
	for i := range parts {
		if e := l.entries.ensure(parts[i].key, now); e != nil {
			es = append(es, e)
		}
	}
	return es
}

// charge makes units pending that were admitted here, at an instant: all of them (whole), or only
// those that still count at delivery.
func (l *Ledger) charge(now Now, e *entry, f *FallbackPlan, n *store.Amounts, at int64, whole bool) {
	some := f.only(n)
	if some == (store.Amounts{}) {
		return
	}
	if l.recovers() {
		l.pendOutage(now, e, f.Plan, &some, at)
		return
	}
	for i, at := range f.at { // slots are over
		if f.unbounded[i].Kind == record.Concurrency {
			some[at] = 0
		}
	}
	if some == (store.Amounts{}) {
		return
	}
	e.charges = slices.DeleteFunc(e.charges, func(it *item) bool {
		return it.inFlight || it.dropped || it.take != nil || it.plain
	})
	for _, it := range e.charges {
		if it.whole == whole && it.plan.Plan == f.Plan {
			for j := range some {
				it.st.Buckets[0].N[j] = min(it.st.Buckets[0].N[j]+some[j], unlimited)
			}
			return
		}
	}
	it := &item{kind: chargeItem, plan: f, whole: whole}
	it.st = store.Settlement{Op: store.OpCharge, Buckets: []store.BucketCost{{Key: e.key, Plan: f.Plan, N: some}}}
	e.charges = append(e.charges, it)
	l.pend(now, it, []*entry{e})
}

// chargeParts makes units of several buckets pending. It reports whether there was room for all. Of
// what is not recorded here it is unknown how much has aged.
func (l *Ledger) chargeParts(now Now, parts []part, n []store.Amounts, at int64, whole bool) bool {
	all := true
	for k := range parts {
		e := l.entries.ensure(parts[k].key, now)
		if e == nil {
			all = false
			continue
		}
		l.charge(now, e, parts[k].plan, &n[k], at, whole || parts[k].bare)
		l.entries.release(e)
	}
	return all
}

// pendEnd makes the end of a reservation pending.
func (l *Ledger) pendEnd(now Now, h *reservation) (ok bool) {
	if h.it != nil {
		l.finish(h.it)
	}
	es := l.entriesOf(now, h.parts)
	if len(es) == 0 {
		return false
	}
	h.it = &item{kind: endItem, h: h, st: *h.last}
	h.it.st.ID, h.it.st.Ended = h.storeID(), true
	for k, t := range h.traces {
		if t != nil {
			used := usedOf(h.last, k, &h.granted[k])
			t.close(now, &used)
		}
	}
	h.ending(true)
	l.pend(now, h.it, es)
	return true
}
