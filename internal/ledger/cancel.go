package ledger

import "github.com/drawgate/drawgate"

// A cancellation is pending for each grant that the store may have opened, or may yet open, and that
// nobody uses: its take was refused here, or its caller has left. Nobody waits for cancellations.
// One that is carried out before its take arrives finds nothing; it is sent again when nothing that
// was sent can open the grant any more.

// oweCancel makes the cancellation of a request's grant pending. Without room the hold ends by itself.
func (l *Ledger) oweCancel(now Now, r *Request, notBefore int64) {
	t := r.take
	if t.ID == "" || notBefore != 0 && notBefore <= now.Own || l.held.find(t.ID, t.Grant) != nil {
		return
	}
	id := openID(t.ID, t.Grant)
	if l.cancels[id] != nil || !l.room(now) {
		return
	}
	buckets := append([]drawgate.BucketCost(nil), t.Buckets...)
	for i := range buckets {
		buckets[i].N = drawgate.Amounts{}
	}
	it := &item{kind: cancelItem, notBefore: notBefore, until: r.until}
	it.st = drawgate.Settlement{Op: drawgate.OpCancel, ID: t.ID, Grant: t.Grant, Buckets: buckets}
	l.cancels[id] = it
	l.queue.push(it, now)
}

// withdraw takes back the cancellation of a request's grant, since it is asked for again: by a caller
// that waits, or resends. It reports whether it cannot, because a cancellation that was sent may still
// arrive, and would end what is given now.
func (l *Ledger) withdraw(now Now, r *Request) (late bool) {
	if r.take.ID == "" || len(l.cancels) == 0 {
		return false
	}
	it := l.cancels[openID(r.take.ID, r.take.Grant)]
	switch {
	case it == nil:
		return false
	case it.inFlight, it.doubt > now.Own:
		return true
	}
	r.sent, r.until = true, max(r.until, it.until)
	l.finish(it)
	return false
}

// cancelled takes the outcome of a cancellation.
func (l *Ledger) cancelled(now Now, it *item, o *drawgate.Outcome) {
	again := it.doubt // a sending without an answer may still arrive: until then nobody may use the grant
	if o.Gone {
		again = max(again, it.until)
	}
	if again > now.Own {
		it.notBefore = again
		l.queue.push(it, now)
		return
	}
	l.finish(it)
}
