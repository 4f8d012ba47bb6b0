package ledger

import (
	"cmp"
	"errors"
	"time"

	"github.com/drawgate/drawgate/internal/failure"
	"github.com/drawgate/drawgate/store"
)

// maxDelivery is the size of the largest delivery: large enough to share a round trip, small enough
// not to delay waiting callers.
const maxDelivery = 256

// retryPause is the time, in µs, after which an item that the store refused for one bucket is tried
// again.
const retryPause = 1_000_000

// Delivery is what to send to the store: first the settlements in one call, then the takes in one
// call. Settlements go first because they give units back, and may free an ID that is used again.
// The buckets in Looks are to be looked at by [store.Historian.PeekKnown], without knowing anything
// of them. Report each part with [Ledger.Looked], [Ledger.Delivered], [Ledger.Replayed] or
// [Ledger.Failed].
type Delivery struct {
	Looks       []store.BucketCost
	Settlements []store.Settlement
	Takes       []store.Take

	looking, settled, taken []*item
}

// Report is the result of a delivery.
type Report struct {
	Charged [][]store.BucketCost // units that are now charged at the store
	Refused []error              // what the store will never accept
	Fault   error                // why a bucket's items could not be delivered, if there was one

	Recovered    []store.BucketCost // units that the store had lost, and that are charged again
	Reservations int                // reservations that it had lost, or something of them, and has again
	Unmet        int                // recoveries that were not carried out, because the history was another one
}

// Next returns the next delivery, or nil if nothing is due. Report its result before calling Next
// again.
func (l *Ledger) Next(now Now) *Delivery {
	l.Expire(now)
	for {
		items := l.queue.next(maxDelivery, now)
		if len(items) == 0 {
			return nil
		}
		d := &Delivery{}
		for _, it := range items {
			l.compose(now, d, it)
		}
		if len(d.looking)+len(d.settled)+len(d.taken) > 0 {
			return d
		}
	}
}

// Wait returns the time in µs until something is due; 0 means now, negative never.
func (l *Ledger) Wait(now Now) int64 {
	switch at := l.queue.idle(); {
	case at < 0:
		return -1
	default:
		return max(0, at-now.Own)
	}
}

// compose adds an item to a delivery, if it still has to be delivered.
func (l *Ledger) compose(now Now, d *Delivery, it *item) {
	switch it.kind {
	case chargeItem:
		l.composeCharge(now, d, it)
	case chargedItem:
		if it.end <= now.Store {
			l.finish(it)
			return
		}
		l.settleIn(d, it, it.st)
	case pauseItem, unpauseItem:
		if it.spent || !it.st.At.After(store.Internal.Instant(now.Store)) {
			l.finish(it)
			return
		}
		l.settleIn(d, it, it.st)
	case cancelItem:
		if it.spent {
			l.finish(it)
			return
		}
		if l.premature(now, it) {
			return
		}
		it.doubt = now.Own + store.SendLife.Microseconds()
		l.settleIn(d, it, it.st)
	case callerItem, endItem:
		l.settleIn(d, it, it.st)
	case renewItem:
		h := it.h
		if h.end <= now.Store {
			l.finish(it)
			return
		}
		st := store.Settlement{Op: store.OpRenew, ID: h.storeID(), Grant: h.take.Grant, Buckets: h.take.Buckets}
		st.Hold, it.end = micros(h.end-now.Store), h.end
		l.settleIn(d, it, st)
	case replayItem:
		if it.h.end <= now.Store {
			it.inFlight = false
			l.lapse(now, it.h)
			return
		}
		l.startAnew(now, it.h)
		t := it.h.take
		if !it.h.unsure {
			it.h.ends = now.Store + t.Hold.Microseconds()
		}
		t.ID, t.Priority, t.Ahead, t.NotAfter, t.Given = it.h.storeID(), store.MaxPriority, 0, time.Time{}, true
		t.Buckets = append([]store.BucketCost(nil), t.Buckets...)
		for k := range t.Buckets {
			t.Buckets[k].Plan = it.h.parts[k].plan.force()
		}
		t.Known = l.KnownOf(t.Buckets)
		d.Takes = append(d.Takes, t)
		d.taken = append(d.taken, it)
	case claimItem, traceItem, lookItem:
		l.composeLost(now, d, it)
	}
}

// startAnew gives a reservation another id at the store before it is replayed, if a message that
// was not answered may have opened a hold there that is over when this one arrives: what that left
// would count beside it, and is cancelled.
func (l *Ledger) startAnew(now Now, h *reservation) {
	hold := h.take.Hold.Microseconds()
	way := min(store.SendLife.Microseconds(), hold/2) // how long this one may be on its way
	if !h.unsure || cmp.Or(h.ends, h.given+hold) > now.Store+way {
		return
	}
	l.cancelUnsure(now, h, true)
	h.unsure = false
	l.held.rename(h)
}

func (l *Ledger) settleIn(d *Delivery, it *item, st store.Settlement) {
	st.Known = l.KnownOf(st.Buckets)
	d.Settlements = append(d.Settlements, st)
	d.settled = append(d.settled, it)
}

// Failed notes that the next part of a delivery was not answered, so it may have been carried out
// or not. The rest of the delivery is pending again.
func (l *Ledger) Failed(now Now, d *Delivery) {
	if d.settled == nil {
		for _, it := range d.taken {
			it.unanswered(now)
		}
	}
	for _, it := range d.looking {
		l.again(now, it)
	}
	for _, it := range d.settled {
		it.doubted(now)
		l.again(now, it)
	}
	for _, it := range d.taken {
		l.again(now, it)
	}
	d.Looks, d.looking, d.settled, d.taken = nil, nil, nil, nil
}

// unanswered notes that the take of an item was sent and not answered: it may open a reservation
// until then.
func (it *item) unanswered(now Now) {
	until := now.Own + store.SendLife.Microseconds()
	if it.kind == chargeItem {
		it.until = until
	}
	if it.h != nil {
		it.h.unsure, it.h.until = true, until
	}
}

// doubted notes that a settlement was sent and not answered.
func (it *item) doubted(now Now) {
	if it.kind == cancelItem {
		it.doubt = now.Own + store.SendLife.Microseconds()
		it.notBefore = now.Own + retryPause
	}
}

// again makes an item pending again that could not be delivered. If it belongs to a reservation
// that has ended meanwhile, the end is delivered instead.
func (l *Ledger) again(now Now, it *item) {
	it.inFlight = false
	if it.dropped {
		return
	}
	if h := it.h; h != nil && h.last != nil && it.kind != endItem {
		l.settleGiven(now, h, h.last)
		return
	}
	l.queue.push(it, now)
}

// Delivered records the outcomes of a delivery's settlements.
func (l *Ledger) Delivered(now Now, d *Delivery, out []store.Outcome, rep *Report) {
	for i, it := range d.settled {
		o := &out[i]
		if Unavailable(o.Err) {
			l.faulty(now, it, o.Err, rep)
			continue
		}
		it.inFlight = false
		if it.dropped {
			continue
		}
		l.hearAll(now, d.Settlements[i].Buckets, o.Histories)
		if o.Err != nil && it.kind != cancelItem && !it.noGrant(o.Err) {
			rep.Refused = append(rep.Refused, o.Err)
		}
		switch it.kind {
		case chargeItem, callerItem:
			if o.Err == nil {
				rep.Charged = append(rep.Charged, d.Settlements[i].Buckets)
				l.enterCharge(now, &d.Settlements[i], o.Histories)
			}
			l.finish(it)
		case claimItem:
			l.claimed(now, it, &d.Settlements[i], o, rep)
		case traceItem:
			l.restored(now, it, &d.Settlements[i], o, rep)
		case pauseItem:
			l.notePaused(now, it, o)
			l.finish(it)
		case unpauseItem: // a look at the store may have shown the pause again meanwhile
			l.notePaused(now, it, o)
			for _, e := range it.entries {
				e.endPause(it.st.At.UnixMicro())
			}
			l.finish(it)
		case cancelItem:
			l.cancelled(now, it, o)
		case chargedItem:
			l.finish(it)
		case endItem:
			l.ended(now, it, o)
		case renewItem:
			l.renewed(now, it, o)
		case replayItem, lookItem:
		}
	}
	d.settled = nil
}

// renewed records the outcome of a renewal. If the hold had ended at the store before the renewal
// arrived, the reservation is replayed again, because its holder was promised more time.
func (l *Ledger) renewed(now Now, it *item, o *store.Outcome) {
	h := it.h
	if o.Err == nil && !o.Gone {
		h.ends = it.end
	}
	l.prolongedAll(now, h, o, it.end)
	if h.last != nil {
		l.settleGiven(now, h, h.last)
		return
	}
	l.finish(it)
	switch {
	case h.end <= now.Store:
	case o.Gone: // in one bucket at least
		h.stored, h.unsure = false, true
		h.it = &item{kind: replayItem, h: h}
		l.pend(now, h.it, l.entriesOf(now, h.parts))
	// renewed here again meanwhile; what the store's clock says may differ a little
	case o.Err == nil && it.end < h.end:
		h.it = &item{kind: renewItem, h: h}
		l.pend(now, h.it, l.entriesOf(now, h.parts))
	}
}

// faulty notes that an item could not be delivered because of its own buckets.
func (l *Ledger) faulty(now Now, it *item, err error, rep *Report) {
	rep.Fault = err
	for _, e := range it.entries {
		e.fault = err
	}
	it.doubted(now)
	it.notBefore = now.Own + retryPause
	l.again(now, it)
}

// corrected reports whether part k of a reservation whose hold had ended counts as it was used, or
// no longer counts.
func (h *reservation) corrected(now Now, k int, o *store.Outcome) bool {
	return o.Corrected != nil && (o.Corrected[k] || !mayCount(h.take.Buckets[k].Plan, h.endThere(), now.Store))
}

// ended records the outcome of the end of a reservation.
func (l *Ledger) ended(now Now, it *item, o *store.Outcome) {
	h, over := it.h, false
	n := make([]store.Amounts, len(h.parts))
	for k := range n {
		gone := o.Gone
		if len(o.Histories) == len(n) {
			gone = o.Histories[k].Gone
			if !l.endedIn(now, h, k, &o.Histories[k]) {
				continue // it was lost, and is charged as such
			}
		}
		switch used := usedOf(h.last, k, &h.granted[k]); {
		case !gone:
		case h.endThere() <= now.Store: // it counts as granted: charge what was used beyond that
			over = over || used != h.granted[k] && !h.corrected(now, k, o)
			for j := range used {
				n[k][j] = max(0, used[j]-h.granted[k][j])
			}
		}
	}
	if over {
		l.wrong++
	}
	l.finish(it)
	l.held.remove(h)
	l.chargeParts(now, h.parts, n, h.since(now), false)
	l.cancelLate(now, h)
}

// Replayed records the results of a delivery's takes.
func (l *Ledger) Replayed(now Now, d *Delivery, out []store.Verdict, rep *Report) {
	for i, it := range d.taken {
		o, h := &out[i], it.h
		if Unavailable(o.Fail) {
			it.unanswered(now)
			l.faulty(now, it, o.Fail, rep)
			continue
		}
		if it.kind == traceItem {
			l.reopened(now, it, o, rep)
			continue
		}
		if it.kind == chargeItem {
			l.chargedLate(now, it, o, rep)
			continue
		}
		l.hearAll(now, d.Takes[i].Buckets, o.Histories)
		if o.Fail == nil && o.Reason == store.Paused || errors.Is(o.Fail, store.ErrIDOpen) && it.mayPass(now) {
			l.postpone(now, it, o)
			continue
		}
		it.inFlight = false
		if it.dropped {
			continue
		}
		if errors.Is(o.Fail, store.ErrIDOpen) && (h.name == "" || h.unsure) {
			l.cancelUnsure(now, h, true) // it may have a part of it by its own id
			h.unsure = false
			l.held.rename(h)
			l.again(now, it)
			continue
		}
		l.finish(it)
		if !o.Allowed { // too many are open there, or another take has its id and grant
			charged := l.refusedThere(now, h)
			if !errors.Is(o.Fail, store.ErrIDReused) {
				l.cancelUnsure(now, h, charged) // it may have a part of it, or open it yet
			}
			h.unsure = false
			continue
		}
		h.stored, h.ends = true, o.HoldEnd().UnixMicro()
		l.replayed(now, h, o)
		missing := make([]store.Amounts, len(h.parts)) // if the store grants a lease only in part
		for k := range missing {
			got := o.Granted(k)
			for j := range got {
				missing[k][j] = max(0, h.granted[k][j]-got[j])
			}
		}
		l.chargeParts(now, h.parts, missing, now.Store, true)
		switch {
		case h.last != nil:
			l.settleGiven(now, h, h.last)
		case o.HoldEnd().UnixMicro() < h.end:
			h.it = &item{kind: renewItem, h: h}
			l.pend(now, h.it, l.entriesOf(now, h.parts))
		}
	}
	d.taken = nil
}

// errPostponed is why a bucket is decided here for a while although the store works.
var errPostponed = &store.Error{
	Store: "guard", Op: "take",
	Err:   errors.New("the store does not yet accept a reservation that was given during the outage"),
	Fault: store.FaultBucket,
}

// postpone schedules another replay of a reservation that the store does not accept yet. Until then
// its buckets are decided here.
func (l *Ledger) postpone(now Now, it *item, d *store.Verdict) {
	for _, e := range it.entries {
		e.fault = errPostponed
		if d.Reason == store.Paused && len(it.entries) == 1 {
			e.learnPause(pauseEnd(d), "", d.At().UnixMicro(), now)
		}
	}
	it.notBefore = now.Own + retryPause
	l.again(now, it)
}

// mayPass reports whether the store may yet accept a reservation whose ID is in use there: by a
// grant that nobody uses, and that will be cancelled once nothing can open it any more.
func (it *item) mayPass(now Now) bool {
	if it.until == 0 {
		it.until = now.Own + 2*store.SendLife.Microseconds()
	}
	return now.Own < max(it.until, it.h.until)
}

// refusedThere charges a reservation that the store does not accept: it is settled here.
// It reports whether there was room for that.
func (l *Ledger) refusedThere(now Now, h *reservation) bool {
	if h.last != nil {
		return l.chargeEnd(now, h)
	}
	h.charged = true
	return l.chargeParts(now, h.parts, h.granted, now.Store, true)
}

// Classify reports whether an error means that the store did not decide, and what kind of failure
// it is. Mistakes of callers are not failures of the store.
func Classify(err error) (fault store.Fault, unavailable bool) {
	if kind := failure.Of(err); kind == failure.None || kind == failure.Closed || kind.Mistake() {
		return 0, false
	}
	if errors.Is(err, store.ErrTooLate) { // one message was late: nothing was done
		return store.FaultBucket, true
	}
	if se, ok := errors.AsType[*store.Error](err); ok {
		return se.Fault, true
	}
	return store.FaultTransient, true
}

// Unavailable reports whether an error means that the store did not decide.
func Unavailable(err error) bool {
	_, unavailable := Classify(err)
	return unavailable
}
