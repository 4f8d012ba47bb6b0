package ledger

import (
	"errors"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// maxDelivery is the most that is told in one delivery: enough to share a journey among, few enough
// that those who wait do not wait long.
const maxDelivery = 256

// retryPause is in how many µs what the store refused for one bucket is tried again.
const retryPause = 1_000_000

// Delivery is what the store must be told: first the settlements in one step, then the takes in one
// step. Settlements go first, since they give back, and may free an id that is used again. Each
// part is reported, by [Ledger.Delivered], [Ledger.Replayed] or [Ledger.Failed].
type Delivery struct {
	Settlements []drawgate.Settlement
	Takes       []drawgate.Take

	settled, taken []*item
}

// Report is what a delivery came to.
type Report struct {
	Charged [][]drawgate.BucketCost // units of which the store knows now
	Refused []error                 // what the store will never accept
	Fault   error                   // why a bucket could not be told, if one could not
}

// Next returns what is to be delivered now, nil if nothing is. It must be reported before Next is
// called again.
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
		if len(d.settled)+len(d.taken) > 0 {
			return d
		}
	}
}

// Wait returns in how many µs something is to be delivered; 0 at once, negative never.
func (l *Ledger) Wait(now Now) int64 {
	switch at := l.queue.idle(); {
	case at < 0:
		return -1
	default:
		return max(0, at-now.Own)
	}
}

// compose adds an item to a delivery, if it still has to be told.
func (l *Ledger) compose(now Now, d *Delivery, it *item) {
	switch it.kind {
	case chargeItem:
		st := it.st
		st.At = instantOf(now.Store)
		if !it.whole {
			n := l.counting(now, it)
			if n == (drawgate.Amounts{}) { // all of it has aged
				l.finish(it)
				return
			}
			st.Buckets = []drawgate.BucketCost{{Key: st.Buckets[0].Key, Plan: st.Buckets[0].Plan, N: n}}
		}
		d.settle(it, st)
	case pauseItem:
		if !it.st.At.After(instantOf(now.Store)) {
			l.finish(it)
			return
		}
		d.settle(it, it.st)
	case cancelItem:
		if it.spent {
			l.finish(it)
			return
		}
		it.doubt = now.Own + drawgate.SendLife.Microseconds()
		d.settle(it, it.st)
	case callerItem, endItem:
		d.settle(it, it.st)
	case renewItem:
		h := it.h
		if h.end <= now.Store {
			l.finish(it)
			return
		}
		st := drawgate.Settlement{Op: drawgate.OpRenew, ID: h.take.ID, Grant: h.take.Grant, Buckets: h.take.Buckets}
		st.Hold = micros(h.end - now.Store)
		d.settle(it, st)
	case replayItem:
		if it.h.end <= now.Store {
			it.inFlight = false
			l.lapse(now, it.h)
			return
		}
		t := it.h.take
		t.Priority, t.Ahead, t.NotAfter, t.Given = drawgate.MaxPriority, 0, time.Time{}, true
		t.Buckets = append([]drawgate.BucketCost(nil), t.Buckets...)
		for k := range t.Buckets {
			t.Buckets[k].Plan = it.h.parts[k].plan.force()
		}
		d.Takes = append(d.Takes, t)
		d.taken = append(d.taken, it)
	}
}

func (d *Delivery) settle(it *item, st drawgate.Settlement) {
	d.Settlements = append(d.Settlements, st)
	d.settled = append(d.settled, it)
}

// counting returns what still counts of a charge: no more than what is used here. Units that have
// aged need not be told.
func (l *Ledger) counting(now Now, it *item) (n drawgate.Amounts) {
	e, f, b := it.entries[0], it.plan, &it.st.Buckets[0]
	f.adapt(&e.rec, now.Store)
	e.rec.Advance(f.unbounded, now.Store)
	for j, at := range f.at {
		st := stateOf(&e.rec, f.unbounded[j].ID)
		if st == nil {
			continue
		}
		used := st.Used
		if st.Kind == record.Bucket {
			used = record.CeilDiv(used, st.Scale)
		}
		n[at] = min(b.N[at], max(used, st.Next))
	}
	return n
}

// Failed notes that a delivery's next part was not answered: nobody knows whether it was carried
// out. What is left of the delivery is pending again.
func (l *Ledger) Failed(now Now, d *Delivery) {
	if d.settled == nil {
		for _, it := range d.taken {
			it.h.unsure, it.h.until = true, now.Own+drawgate.SendLife.Microseconds()
		}
	}
	for _, it := range d.settled {
		it.doubted(now)
		l.again(now, it)
	}
	for _, it := range d.taken {
		l.again(now, it)
	}
	d.settled, d.taken = nil, nil
}

// doubted notes that an item was sent, and its answer was not seen.
func (it *item) doubted(now Now) {
	if it.kind == cancelItem {
		it.doubt = now.Own + drawgate.SendLife.Microseconds()
		it.notBefore = now.Own + retryPause
	}
}

// again makes an item pending that could not be delivered. A reservation that was settled meanwhile
// has that told instead.
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

// Delivered takes the outcomes of a delivery's settlements.
func (l *Ledger) Delivered(now Now, d *Delivery, out []drawgate.Outcome, rep *Report) {
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
		if o.Err != nil && it.kind != cancelItem {
			rep.Refused = append(rep.Refused, o.Err)
		}
		switch it.kind {
		case chargeItem, callerItem:
			if o.Err == nil {
				rep.Charged = append(rep.Charged, d.Settlements[i].Buckets)
			}
			l.finish(it)
		case pauseItem:
			l.finish(it)
		case cancelItem:
			l.cancelled(now, it, o)
		case endItem:
			l.ended(now, it, o)
		case renewItem:
			l.renewed(now, it, o)
		case replayItem:
		}
	}
	d.settled = nil
}

// renewed takes the outcome of a renewal. If the hold was over there before it arrived, the
// reservation is replayed again: it is promised for longer.
func (l *Ledger) renewed(now Now, it *item, o *drawgate.Outcome) {
	h := it.h
	if h.last != nil {
		l.settleGiven(now, h, h.last)
		return
	}
	l.finish(it)
	switch {
	case h.end <= now.Store:
	case o.Gone:
		h.stored = false
		h.it = &item{kind: replayItem, h: h}
		l.pend(now, h.it, l.entriesOf(now, h.parts))
	case o.Err == nil && o.End.UnixMicro() < h.end: // renewed here again meanwhile
		h.it = &item{kind: renewItem, h: h}
		l.pend(now, h.it, l.entriesOf(now, h.parts))
	}
}

// faulty notes that the store could not be told something, for its buckets alone.
func (l *Ledger) faulty(now Now, it *item, err error, rep *Report) {
	rep.Fault = err
	for _, e := range it.entries {
		e.fault = err
	}
	it.doubted(now)
	it.notBefore = now.Own + retryPause
	l.again(now, it)
}

// ended takes the outcome of how a reservation ended.
func (l *Ledger) ended(now Now, it *item, o *drawgate.Outcome) {
	h := it.h
	n := make([]drawgate.Amounts, len(h.parts))
	if o.Gone {
		for k := range n {
			switch used := usedOf(h.last, k, &h.granted[k]); {
			case h.given != 0 && !h.stored: // the store never had it
				n[k] = used
			case h.end <= now.Store: // it counts as granted: what was used beyond that is missing
				for j := range used {
					n[k][j] = max(0, used[j]-h.granted[k][j])
				}
			}
		}
	}
	l.finish(it)
	l.held.remove(h)
	l.chargeParts(now, h.parts, n, false)
	l.cancelLate(now, h)
}

// Replayed takes what became of the reservations of a delivery's takes.
func (l *Ledger) Replayed(now Now, d *Delivery, out []drawgate.Decision, rep *Report) {
	for i, it := range d.taken {
		o, h := &out[i], it.h
		if Unavailable(o.Fail) {
			h.unsure, h.until = true, now.Own+drawgate.SendLife.Microseconds()
			l.faulty(now, it, o.Fail, rep)
			continue
		}
		if o.Fail == nil && o.Reason == drawgate.Paused || errors.Is(o.Fail, drawgate.ErrIDOpen) && it.mayPass(now) {
			l.postpone(now, it, o)
			continue
		}
		it.inFlight = false
		if it.dropped {
			continue
		}
		l.finish(it)
		if !o.Allowed { // the id is another's there, or too many are open
			l.refusedThere(now, h)
			continue
		}
		h.stored = true
		missing := make([]drawgate.Amounts, len(h.parts)) // of a lease that the store grants in part only
		for k := range missing {
			got := o.Granted(k)
			for j := range got {
				missing[k][j] = max(0, h.granted[k][j]-got[j])
			}
		}
		l.chargeParts(now, h.parts, missing, true)
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

// errPostponed is why a bucket is decided here for a while although the store is there.
var errPostponed = &drawgate.StoreError{
	Store: "guard", Op: "take", Err: errors.New("the store does not take a reservation yet that was given here"), Fault: drawgate.FaultBucket,
}

// postpone has a reservation replayed later that the store does not take yet. Until then its
// buckets are decided here.
func (l *Ledger) postpone(now Now, it *item, d *drawgate.Decision) {
	for _, e := range it.entries {
		e.fault = errPostponed
		if d.Reason == drawgate.Paused && len(it.entries) == 1 {
			e.setPause(pauseEnd(d), "", now.Store)
		}
	}
	it.notBefore = now.Own + retryPause
	l.again(now, it)
}

// mayPass reports whether the id of a reservation may yet come free that is in use in the store: by
// a grant that nobody uses, and that is cancelled when nothing can open it any more.
func (it *item) mayPass(now Now) bool {
	if it.until == 0 {
		it.until = now.Own + 2*drawgate.SendLife.Microseconds()
	}
	return now.Own < it.until
}

// refusedThere charges a reservation that the store does not take: it is settled here.
func (l *Ledger) refusedThere(now Now, h *reservation) {
	if h.last != nil {
		l.chargeUsed(now, h)
		return
	}
	h.charged = true
	l.chargeParts(now, h.parts, h.granted, true)
}

// Classify reports whether an error means that the store did not decide, and what kind of failure
// it is. Mistakes of callers are no failures of the store.
func Classify(err error) (fault drawgate.Fault, unavailable bool) {
	if err == nil {
		return 0, false
	}
	for _, mistake := range [...]error{
		drawgate.ErrInvalid, drawgate.ErrIDReused, drawgate.ErrIDOpen, drawgate.ErrClosed, drawgate.ErrNeedsReserve,
		drawgate.ErrNeverFits, drawgate.ErrUnknownUnit, drawgate.ErrTooManyOpen,
	} {
		if errors.Is(err, mistake) {
			return 0, false
		}
	}
	if errors.Is(err, drawgate.ErrTooLate) { // one message was late: nothing was done
		return drawgate.FaultBucket, true
	}
	if se, ok := errors.AsType[*drawgate.StoreError](err); ok {
		return se.Fault, true
	}
	return drawgate.FaultTransient, true
}

// Unavailable reports whether an error means that the store did not decide.
func Unavailable(err error) bool {
	_, unavailable := Classify(err)
	return unavailable
}
