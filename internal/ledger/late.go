package ledger

import (
	"math"
	"time"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// What was admitted here while the store was away is charged late. A charge has no memory: one
// whose answer was lost would count again when it is sent again. So it is sent as a take with an
// id, which was given here and that nothing refuses. The store knows it again for as long as its
// hold lasts, and counts it once. It is settled when no copy of it can be on its way any more.
//
// (Where the store keeps histories, which have such a memory, it is a claimItem.)

// lateHold is how long the store knows a late charge, if nobody settles it. One that is sent again
// after that counts twice.
const lateHold = time.Hour

// mostSent is how many late charges of one bucket are sent at once. They differ in their plans.
const mostSent = 16

// composeCharge adds a late charge to a delivery, if it still counts.
func (l *Ledger) composeCharge(now Now, d *Delivery, it *item) {
	if it.take == nil {
		if l.waits(now, it) {
			return
		}
		n := l.counting(now, it)
		if n == (store.Amounts{}) { // all of it has aged
			l.finish(it)
			return
		}
		it.st.Buckets[0].N, it.st.At = n, store.Internal.Instant(now.Store)
	}
	if it.plain {
		l.settleIn(d, it, it.st)
		return
	}
	if it.take == nil {
		b := it.st.Buckets[0]
		b.Plan = it.plan.force()
		grant := store.NewGrant()
		it.take = &store.Take{
			ID: "late " + grant.String(), Grant: grant, Buckets: []store.BucketCost{b}, Hold: lateHold,
			Priority: store.MaxPriority, Given: true,
		}
	}
	it.end = now.Store + lateHold.Microseconds() // at the latest
	d.Takes = append(d.Takes, *it.take)
	d.taken = append(d.taken, it)
}

// waits reports whether a late charge is not sent yet, and grows instead, because many of its
// bucket were sent and not answered. Otherwise there would be more and more of them while a store
// answers other calls but not these.
func (l *Ledger) waits(now Now, it *item) bool {
	n, first := 0, int64(math.MaxInt64)
	for _, o := range it.entries[0].items {
		if o.kind == chargeItem && o.take != nil {
			n++
			first = min(first, o.notBefore)
		}
	}
	if n < mostSent {
		return false
	}
	it.notBefore = first // these go first
	l.queue.push(it, now)
	return true
}

// counting returns how much of a charge still counts: at most what is used here. Units that have
// aged need not be charged.
func (l *Ledger) counting(now Now, it *item) (n store.Amounts) {
	e, f, b := it.entries[0], it.plan, &it.st.Buckets[0]
	if it.whole {
		return b.N
	}
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

// chargedLate records what the store answered to the take of a late charge.
func (l *Ledger) chargedLate(now Now, it *item, o *store.Verdict, rep *Report) {
	it.inFlight = false
	if !o.Allowed { // too many are open there, or it is paused at a store that knows no better
		it.plain = true
		if it.until > now.Own { // it was sent before, and that copy may open it yet
			l.cancel(now, it.take, it.until, it.until)
		}
		l.again(now, it)
		return
	}
	l.finish(it)
	rep.Charged = append(rep.Charged, it.st.Buckets)
	l.queue.push(&item{kind: chargedItem, st: it.settlement(), end: it.end, notBefore: it.until}, now)
}

// settlement returns the end of what a late charge has opened: all of it was used.
func (it *item) settlement() store.Settlement {
	b := it.st.Buckets[0]
	for i := range b.N {
		b.N[i] = store.KeepEstimate
	}
	return store.Settlement{
		Op: store.OpSettle, ID: it.take.ID, Grant: it.take.Grant, Buckets: []store.BucketCost{b},
	}
}

// Hurry makes the ends of late charges due that wait for copies of them which may be on their way,
// because nobody is there later to send them.
func (l *Ledger) Hurry(now Now) {
	later := l.queue.later
	l.queue.later = nil
	for _, it := range later {
		it.queued = false
		if it.kind == chargedItem {
			it.notBefore = 0
		}
		l.queue.push(it, now)
	}
}
