package ledger

import (
	"slices"

	"github.com/drawgate/drawgate/store"
)

// lost reports whether the store lacks something of a reservation.
func (h *reservation) lost() bool {
	for k := range h.traces {
		if t := h.traceOf(k); t != nil && (t.needs != needsNothing || t.it != nil) {
			return true
		}
	}
	return false
}

// settleLost carries out a settlement of a reservation that the store has lost. It is kept until
// the reservation is recovered, in each bucket as that bucket needs.
func (l *Ledger) settleLost(now Now, h *reservation, st *store.Settlement) store.Outcome {
	mine := h.inOrder(st)
	l.apply(now, &mine, l.parts(now, mine.Buckets, true))
	if st.Op == store.OpRenew {
		h.end = max(h.end, now.Store+st.Hold.Microseconds())
		for k := range h.traces {
			if t := h.traceOf(k); t != nil {
				t.end = h.end
				l.pendNeed(now, t)
			}
		}
		return store.Outcome{End: store.Internal.Instant(h.end)}
	}
	for k := range h.traces {
		if t := h.traceOf(k); t != nil {
			used := usedOf(&mine, k, &h.granted[k])
			t.close(now, &used)
			l.pendNeed(now, t)
		}
	}
	l.held.remove(h)
	return store.Outcome{}
}

// endAnswered records what the store answered to a settlement or renewal, which was heard. What
// was gone only because the store had lost it is recovered, and not gone for the caller.
func (l *Ledger) endAnswered(now Now, h *reservation, st *store.Settlement, o *store.Outcome) {
	if len(o.Histories) != len(st.Buckets) || h.traces == nil {
		return
	}
	mine, lost, gone := h.inOrder(st), false, false
	end := o.End.UnixMicro()
	if o.Gone {
		end = now.Store + st.Hold.Microseconds()
	}
	for i := range st.Buckets {
		k := slices.IndexFunc(h.take.Buckets, func(b store.BucketCost) bool { return b.Key == st.Buckets[i].Key })
		if k < 0 {
			continue
		}
		t, a := h.traceOf(k), &o.Histories[i]
		switch {
		case t == nil:
			gone = gone || a.Gone
			continue
		case st.Op == store.OpRenew:
			lost, gone = lost || a.Gone && !t.e.hist.has(t), gone || a.Gone && t.e.hist.has(t)
			if !o.Kept {
				t.end = max(t.end, end)
			}
			l.prolonged(now, t, a, o.Kept, end)
			l.pendNeed(now, t)
		default:
			used := usedOf(&mine, k, &h.granted[k])
			t.close(now, &used)
			believed := l.closed(now, t, a)
			lost, gone = lost || !believed, gone || believed && a.Gone
		}
	}
	if o.Gone && lost && !gone {
		o.Gone = false
		if st.Op == store.OpRenew {
			o.End = store.Internal.Instant(end)
		}
	}
}

// prolongedAll records the outcome of a renewal that was made here.
func (l *Ledger) prolongedAll(now Now, h *reservation, o *store.Outcome, end int64) {
	if len(o.Histories) != len(h.parts) {
		return
	}
	for k := range h.traces {
		if t := h.traceOf(k); t != nil && !t.closed {
			t.end = max(t.end, end)
			l.prolonged(now, t, &o.Histories[k], o.Kept, end)
			l.pendNeed(now, t)
		}
	}
}

// endedIn records the outcome of the settlement of a reservation in bucket k. It reports whether it
// is believed.
func (l *Ledger) endedIn(now Now, h *reservation, k int, a *store.History) (believed bool) {
	if t := h.traceOf(k); t != nil {
		return l.closed(now, t, a)
	}
	e := l.entries.byKey[h.parts[k].key]
	if e == nil || !a.Wrote || h.stored {
		return true
	}
	// A message opened it that was never answered: so it is known only now.
	u := units{plan: h.take.Buckets[k].Plan, n: usedOf(h.last, k, &h.granted[k]), at: a.Last, start: now.Store}
	u.stamps, u.claim = stamps{wrote(a)}, &claim{grant: h.take.Grant, plan: u.plan}
	l.enterUnits(now, e, &u)
	return true
}

// undone has charged what a cancellation gave back, although it was used: it was meant for a
// message that might open the grant again, and found it open because the store had lost the
// settlement.
func (l *Ledger) undone(now Now, it *item, o *store.Outcome) {
	for i := range min(len(o.Histories), len(it.st.Buckets)) {
		e := l.entries.byKey[it.st.Buckets[i].Key]
		if e == nil || e.hist == nil || o.Histories[i].Gone {
			continue
		}
		h := e.hist
		k := slices.IndexFunc(h.ended, func(t *trace) bool { return t.grant == it.st.Grant })
		if k < 0 || h.ended[k].ending || h.ended[k].settled.in(h.epochs) {
			continue
		}
		t := h.ended[k]
		if t.undone.again(wrote(&o.Histories[i])); t.instead == 0 {
			t.instead = store.NewGrant()
		}
		l.pendNeed(now, t)
	}
}

// replayed records that the store has a reservation that was given here.
func (l *Ledger) replayed(now Now, h *reservation, v *store.Verdict) {
	if len(v.Histories) != len(h.parts) {
		return
	}
	for k := range h.parts {
		e := l.entries.find(h.parts[k].key, now)
		if e == nil {
			continue
		}
		l.hear(now, e, &v.Histories[k])
		l.trace(now, h, k, e, &v.Histories[k], v)
	}
}

// refunded takes units back that the store gave back.
func (l *Ledger) refunded(now Now, st *store.Settlement, o *store.Outcome) {
	for k := range o.Back {
		if e := l.entries.byKey[st.Buckets[k].Key]; e != nil && e.hist != nil {
			e.hist.credit(now.Store, st.Buckets[k].Plan, &o.Back[k])
		}
	}
}
