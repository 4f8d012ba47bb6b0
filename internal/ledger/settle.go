package ledger

import (
	"slices"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// Settle carries out a settlement of a reservation if this process knows more about it than the
// store. If mine is false, the store must be asked.
func (l *Ledger) Settle(now Now, st *store.Settlement) (o store.Outcome, mine bool) {
	if st.Op == store.OpPause || st.Op == store.OpUnpause {
		if !l.pausePending(st.Buckets) {
			return o, false
		}
		return l.Keep(now, st) // otherwise the store would have it before what was done earlier
	}
	if st.ID == "" || st.Op != store.OpSettle && st.Op != store.OpCancel && st.Op != store.OpRenew {
		return o, false
	}
	h := l.held.find(st.ID, st.Grant)
	switch {
	case h == nil && st.Op == store.OpCancel && l.cancels[openID(st.ID, st.Grant)] != nil:
		return store.Outcome{Gone: true}, true // it was refused here, and is being cancelled
	case h == nil:
		return o, false
	case h.last != nil: // it was settled already
		return store.Outcome{Gone: true}, true
	case h.given == 0 && h.stored && h.it == nil && h.lost() && l.recovers():
		return l.settleLost(now, h, st), true
	case h.given == 0, h.stored && st.Op == store.OpRenew && h.end > now.Store && h.it == nil:
		return o, false
	case h.end <= now.Store:
		return store.Outcome{Gone: true}, true
	}
	mineSt := h.inOrder(st)
	if st.Op == store.OpRenew && h.take.Lease && l.pausedAny(now, mineSt.Buckets) {
		return store.Outcome{Kept: true, End: store.Internal.Instant(h.end)}, true
	}
	l.apply(now, &mineSt, l.parts(now, mineSt.Buckets, true))
	if st.Op == store.OpRenew {
		h.end = max(h.end, now.Store+st.Hold.Microseconds())
		return store.Outcome{End: store.Internal.Instant(h.end)}, true
	}
	l.settleGiven(now, h, h.late(&mineSt, now.Store))
	return store.Outcome{}, true
}

// settleGiven makes the end of a reservation pending that was given here.
func (l *Ledger) settleGiven(now Now, h *reservation, st *store.Settlement) {
	h.last = st
	switch {
	case h.it != nil && h.it.inFlight: // the answer decides what has to be delivered
	case h.stored:
		l.pendEnd(now, h)
	default:
		l.chargeUsed(now, h)
	}
}

// chargeUsed makes a charge pending for what a reservation used, because the store does not have
// it. If it may have it, that is cancelled. (Its end could be sent instead. But if that finds
// nothing, either the store never had it, or an earlier copy has ended it.)
func (l *Ledger) chargeUsed(now Now, h *reservation) {
	l.cancelUnsure(now, h, l.chargeEnd(now, h))
}

// chargeEnd makes the charge of [Ledger.chargeUsed] pending. It reports whether there was room.
func (l *Ledger) chargeEnd(now Now, h *reservation) bool {
	n := make([]store.Amounts, len(h.parts))
	for k := range n {
		n[k] = usedOf(h.last, k, &h.granted[k])
		for j := range n[k] {
			if h.charged { // what was granted is charged already, and is not given back
				n[k][j] = max(0, n[k][j]-h.granted[k][j])
			}
		}
	}
	if h.it != nil {
		l.finish(h.it)
	}
	h.charged = true
	return l.chargeParts(now, h.parts, n, h.since(now), false)
}

// late converts a settlement of a reservation that was given here to what the store must record
// when it learns of it later: a bucket gives nothing back that has drained since the grant.
func (h *reservation) late(st *store.Settlement, now int64) *store.Settlement {
	delivery := *st
	delivery.Op, delivery.Buckets = store.OpSettle, slices.Clone(st.Buckets)
	for k := range delivery.Buckets {
		b := &delivery.Buckets[k]
		b.N = usedOf(st, k, &h.granted[k])
		specs := store.Internal.Specs(b.Plan, false)
		for j := range specs {
			if s := &specs[j]; s.Kind == record.Bucket && !s.ChargeEnd && !h.take.Lease {
				b.N[j] = max(b.N[j], drained(s, h.granted[k][j], now-h.given))
			}
		}
	}
	return &delivery
}

// drained returns how many of n units have left a bucket in dt µs, rounded up.
func drained(s *record.Spec, n, dt int64) int64 {
	if dt >= record.CeilDiv(n*s.Scale, s.Drain) {
		return n
	}
	return record.CeilDiv(max(0, dt)*s.Drain, s.Scale)
}

// inOrder returns a settlement with the reservation's buckets in their order. Where the settlement
// has no amount, the estimate stands.
func (h *reservation) inOrder(st *store.Settlement) store.Settlement {
	mine := *st
	mine.Buckets = make([]store.BucketCost, len(h.take.Buckets))
	for k := range mine.Buckets {
		b := h.take.Buckets[k]
		for j := range b.N {
			b.N[j] = store.KeepEstimate
		}
		i := slices.IndexFunc(st.Buckets, func(o store.BucketCost) bool { return o.Key == b.Key })
		if i >= 0 && st.Buckets[i].Plan != nil {
			b.N = said(&st.Buckets[i], b.Plan)
		}
		mine.Buckets[k] = b
	}
	return mine
}

// said returns the amounts that a settlement has for a bucket, in the order of a plan's limits. Its
// caller may use another plan, because the configuration was replaced or because an override or
// rule changes amounts. Limits are matched by their identity.
func said(b *store.BucketCost, plan *store.Plan) (n store.Amounts) {
	theirs := store.Internal.Specs(b.Plan, false)
	for j, spec := range store.Internal.Specs(plan, false) {
		n[j] = store.KeepEstimate
		if i := slices.IndexFunc(theirs, func(s record.Spec) bool { return s.ID == spec.ID }); i >= 0 {
			n[j] = b.N[i]
		}
	}
	return n
}

// usedOf returns the amounts used of bucket k by a settlement, or what was granted where the
// settlement has none.
func usedOf(st *store.Settlement, k int, granted *store.Amounts) (n store.Amounts) {
	if st.Op == store.OpCancel {
		return n
	}
	for j := range n {
		if n[j] = st.Buckets[k].N[j]; n[j] == store.KeepEstimate {
			n[j] = granted[j]
		}
	}
	return n
}

// Settled records a settlement that was sent at an instant of the store's clock, and that the store
// carried out.
func (l *Ledger) Settled(now Now, sent int64, st *store.Settlement, o *store.Outcome) {
	l.hearAll(now, st.Buckets, o.Histories)
	l.notePause(now, st, o)
	switch st.Op {
	case store.OpPause:
		reason := st.Reason
		if o.Kept { // it is another pause
			reason = ""
		}
		for i := range st.Buckets {
			l.Pause(now, st.Buckets[i].Key, store.Pause{Until: o.End, Reason: reason}, sent)
		}
		return
	case store.OpUnpause:
		for i := range st.Buckets {
			if e := l.entries.byKey[st.Buckets[i].Key]; e != nil {
				e.endPause(st.At.UnixMicro())
				l.entries.release(e)
			}
		}
		return
	default:
	}
	if h := l.held.find(st.ID, st.Grant); h != nil && st.ID != "" && h.stored && h.last == nil {
		l.endAnswered(now, h, st, o)
		switch {
		case st.Op == store.OpSettle, st.Op == store.OpCancel, o.Gone:
			l.held.remove(h)
			l.cancelLate(now, h)
		case st.Op == store.OpRenew:
			h.end = max(h.end, o.End.UnixMicro())
			h.ends = h.end
			l.reopen(now, h)
		}
	}
	if o.Gone || o.Kept || !valid(st.Buckets) {
		return
	}
	parts := l.parts(now, st.Buckets, st.Op == store.OpCharge)
	switch st.Op {
	case store.OpCharge:
		l.enterCharge(now, st, o.Histories)
	case store.OpRefund:
		l.refunded(now, st, o)
	default:
	}
	l.apply(now, st, parts)
}

// reopen enters a reservation again that the store renewed just before its end, and that has ended
// here. Its slots are still held, and so are units that do not age while held.
func (l *Ledger) reopen(now Now, h *reservation) {
	id, t := openID(h.take.ID, h.take.Grant), recordTake(&h.take, store.MaxPriority)
	t.Hold = h.end - now.Store
	for k := range h.parts {
		p := &h.parts[k]
		e := l.entries.byKey[p.key]
		if e == nil || !p.plan.records() || t.Hold <= 0 {
			continue
		}
		e.rec.Advance(p.plan.unbounded, now.Store)
		if e.rec.Open[id] != nil {
			continue
		}
		n := p.plan.pick(&h.granted[k])
		for j := range p.plan.unbounded {
			if s := &p.plan.unbounded[j]; s.Kind != record.Concurrency && !s.ChargeEnd && !h.take.Lease {
				n[j] = 0
			}
		}
		record.Decide([]record.Ask{{Rec: &e.rec, Specs: p.plan.unbounded, N: record.Amounts(n)}}, &t, now.Store)
	}
}

// valid reports whether the buckets of a settlement are distinct.
func valid(buckets []store.BucketCost) bool {
	if len(buckets) == 0 || len(buckets) > store.MaxBuckets {
		return false
	}
	for i := range buckets {
		if buckets[i].Plan == nil || slices.ContainsFunc(buckets[:i],
			func(b store.BucketCost) bool { return b.Key == buckets[i].Key }) {
			return false
		}
	}
	return true
}

// apply carries out a settlement on the records of its buckets.
func (l *Ledger) apply(now Now, st *store.Settlement, parts []part) {
	id := openID(st.ID, st.Grant)
	asks := l.asksFor(len(parts))
	before := make([]store.Amounts, len(parts))
	for k := range parts {
		p := &parts[k]
		if st.Op == store.OpRenew && l.entries.lost > 0 && (p.e == nil || p.e.rec.Open[id] == nil) {
			l.unrecorded(now, p, st.Hold.Microseconds())
		}
		if p.e == nil || !p.plan.records() {
			continue
		}
		if _, mayShare := l.plans.instances(); p.e.fresh && (mayShare || !l.startsUncounted(p.plan)) {
			l.assumePriorUse(now, p, nil)
		}
		p.plan.adapt(&p.e.rec, now.Store)
		before[k] = p.plan.used(&p.e.rec)
		asks = append(asks, record.Ask{Rec: &p.e.rec, Specs: p.plan.unbounded, N: record.Amounts(p.plan.pick(&p.n))})
	}
	if len(asks) == 0 {
		l.releaseParts(parts)
		return
	}
	switch st.Op {
	case store.OpSettle, store.OpCancel:
		record.Settle(asks, id, 0, st.Op == store.OpCancel, now.Store)
	case store.OpRenew:
		record.Renew(asks, id, 0, st.Hold.Microseconds(), now.Store)
	case store.OpCharge:
		record.Charge(asks, st.At.UnixMicro(), now.Store)
	default:
	}
	clear(asks)
	for k := range parts {
		if p := &parts[k]; p.e != nil {
			p.plan.clamp(&p.e.rec, &before[k])
		}
	}
	l.releaseParts(parts)
}

// releaseParts removes the entries of parts that are blank.
func (l *Ledger) releaseParts(parts []part) {
	for i := range parts {
		if parts[i].e != nil {
			l.entries.release(parts[i].e)
			parts[i].e = nil
		}
	}
}

// Keep keeps a settlement that could not be sent to the store, until it can. It does not if only
// the store knows the outcome, or if there is no room.
func (l *Ledger) Keep(now Now, st *store.Settlement) (o store.Outcome, kept bool) {
	if !valid(st.Buckets) {
		return o, false
	}
	switch st.Op {
	case store.OpSettle, store.OpCancel:
		return o, l.keepEnd(now, st)
	case store.OpCharge:
		return o, !st.Once && l.keepCharge(now, st)
	case store.OpPause:
		return l.keepPause(now, st)
	case store.OpUnpause:
		end, ok := l.keepUnpause(now, st)
		return store.Outcome{End: store.Internal.Instant(end), Kept: end > 0}, ok
	default:
		return o, false
	}
}

// keepEnd keeps the end of a reservation that the store has.
func (l *Ledger) keepEnd(now Now, st *store.Settlement) bool {
	h := l.held.find(st.ID, st.Grant)
	if h == nil || !h.stored || h.last != nil || h.end <= now.Store {
		return false
	}
	mine := h.inOrder(st)
	h.last = &mine
	if !l.pendEnd(now, h) {
		h.last = nil
		return false
	}
	l.apply(now, &mine, l.parts(now, mine.Buckets, true))
	return true
}

// keepCharge keeps a caller's charge.
func (l *Ledger) keepCharge(now Now, st *store.Settlement) bool {
	if !l.room(now) {
		return false
	}
	mine := *st
	mine.Buckets, mine.Labels, mine.ID, mine.Grant = slices.Clone(st.Buckets), slices.Clone(st.Labels), "", 0
	parts := l.parts(now, mine.Buckets, true)
	if !l.recovers() || !l.pendCaller(now, &mine, parts) {
		es := l.entriesOf(now, parts)
		if len(es) == 0 {
			return false
		}
		l.charges++
		l.pend(now, &item{kind: callerItem, st: mine}, es)
	}
	l.apply(now, &mine, parts)
	return true
}
