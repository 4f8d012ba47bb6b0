package ledger

import (
	"slices"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// A cancellation is pending for each grant that the store may have opened, or may yet open, and
// that nobody uses: the guard refused its take, or its caller has left. Nobody waits for
// cancellations. A cancellation that arrives before its take finds nothing; it is sent again once
// no message on its way can open the grant any more.

// pendCancel makes the cancellation of a request's grant pending, unless somebody uses the grant.
func (l *Ledger) pendCancel(now Now, r *Request) {
	t := r.take
	if t.ID == "" {
		return
	}
	if h := l.held.find(t.ID, t.Grant); h != nil {
		h.until = max(h.until, r.until) // see cancelLate
		return
	}
	// Another process may have been told that it is open, and have used it until its hold ended.
	if it := l.cancel(now, t, 0, r.until); it != nil {
		it.several = r.several
	}
}

// cancelLate cancels a grant that is over, once no message on its way can open it again.
func (l *Ledger) cancelLate(now Now, h *reservation) {
	if h.until > now.Own {
		l.cancelHeld(now, h)
	}
}

// cancelHeld cancels a grant once no message on its way can open it any more.
func (l *Ledger) cancelHeld(now Now, h *reservation) {
	t := h.take
	t.ID = h.storeID()
	l.cancel(now, &t, h.until, h.until)
}

// cancelUnsure cancels a grant that the store may have, and that it need not have any more. If all
// of it is charged, or replayed by another id, it comes back also where its hold has ended
// meanwhile.
func (l *Ledger) cancelUnsure(now Now, h *reservation, charged bool) {
	if !h.unsure {
		return
	}
	t := h.take
	t.ID = h.storeID()
	switch it := l.cancel(now, &t, 0, h.until); {
	case it != nil:
		it.st.Ended, it.of = charged, h
		it.last = now.at(h.until) + t.Hold.Microseconds()
		if it.several, it.end = true, h.ends; !h.said {
			it.untold = true
			l.untold++
		}
	case !h.said && l.cancels[openID(t.ID, t.Grant)] == nil: // there is no room: its hold ends by itself
		l.wrong++
	}
}

// settledDoubt notes that the store has carried out a cancellation, or that it need not.
func (l *Ledger) settledDoubt(it *item) {
	if it.untold {
		it.untold = false
		l.untold--
	}
}

// cancel makes a cancellation pending. It returns nil if there is no room; then the hold ends by
// itself.
func (l *Ledger) cancel(now Now, t *store.Take, notBefore, until int64) *item {
	id := openID(t.ID, t.Grant)
	if l.cancels[id] != nil || !l.room(now) {
		return nil
	}
	buckets := append([]store.BucketCost(nil), t.Buckets...)
	for i := range buckets {
		buckets[i].N = store.Amounts{}
	}
	it := &item{kind: cancelItem, notBefore: notBefore, until: until}
	it.st = store.Settlement{Op: store.OpCancel, ID: t.ID, Grant: t.Grant, Buckets: buckets}
	l.cancels[id] = it
	l.queue.push(it, now)
	return it
}

// withdraw removes the pending cancellation of a request's grant, because the request is made
// again: its caller waits, or resends it. It reports whether it is too late for that: a
// cancellation on its way to the store would end what is granted now.
func (l *Ledger) withdraw(now Now, r *Request) (late bool) {
	r.doubted = false
	if r.take.ID == "" || len(l.cancels) == 0 {
		return false
	}
	it := l.cancels[openID(r.take.ID, r.take.Grant)]
	if h := l.held.find(r.take.ID, r.take.Grant); h != nil && h.name != "" {
		return false // it is asked for by another id, and what is open by its own one is not used
	}
	switch {
	case it == nil:
		return false
	case it.inFlight, it.doubt > now.Own:
		r.doubted = !it.spent
		return true
	}
	if !it.spent { // otherwise the store has nothing, and no message on its way can change that
		r.sent, r.several, r.until = true, it.several, max(r.until, it.until)
	}
	l.finish(it)
	return false
}

// premature reports whether a cancellation would give back what the store does not have otherwise
// yet, and puts it off.
func (l *Ledger) premature(now Now, it *item) bool {
	if it.of != nil && it.of.dropped { // its other buckets are not charged
		it.st.Ended = false
	}
	if !it.st.Ended {
		return false
	}
	early, at := it.of.it != nil, now.Own+1
	for i := range it.st.Buckets {
		if e := l.entries.byKey[it.st.Buckets[i].Key]; e != nil {
			for _, o := range e.items { // others may wait for this cancellation, to use the id
				if o.kind == chargeItem || o.kind == claimItem {
					early, at = true, max(at, o.notBefore)
				}
			}
		}
	}
	if early {
		it.notBefore = max(it.notBefore, at)
		l.queue.push(it, now)
	}
	return early
}

// corrected reports whether a hold that had ended counts nowhere any more: in no bucket that may
// have had it.
func (it *item) corrected(now Now, o *store.Outcome) bool {
	for k := range o.Corrected {
		if !o.Corrected[k] && mayCount(it.st.Buckets[k].Plan, it.last, now.Store) {
			return false
		}
	}
	return o.Corrected != nil
}

// mayCount reports whether units of a plan that were used until an instant may count now.
func mayCount(plan *store.Plan, until, now int64) bool {
	return slices.ContainsFunc(store.Internal.Specs(plan, false), func(s record.Spec) bool {
		return s.Kind != record.Concurrency && s.Lasts(until+s.Margin+s.Join, now)
	})
}

// cancelled records the outcome of a cancellation. The item stays until no copy of it can arrive
// any more, so that nobody uses the grant.
func (l *Ledger) cancelled(now Now, it *item, o *store.Outcome) {
	l.undone(now, it, o)
	it.notBefore, it.found = it.doubt, it.found || o.Err == nil && (!o.Gone || it.corrected(now, o))
	// it arrived before the take, or before another copy of it
	if again := o.Gone || it.several; again && it.until > now.Own {
		it.notBefore = max(it.notBefore, it.until)
	} else {
		it.spent = true
		if it.untold && !it.found && it.end <= now.Store { // its hold may have ended, as used
			l.wrong++
		}
		l.settledDoubt(it)
	}
	l.queue.push(it, now)
}
