package ledger

import (
	"slices"

	"github.com/drawgate/drawgate/store"
)

// judge finds out what a bucket lacks of this process, by the list that is known, and makes it
// pending. What was admitted before the last reset was forgiven.
func (l *Ledger) judge(now Now, e *entry) {
	h := e.hist
	h.age(now)
	fresh := make(map[*store.Plan]*claim) // units that are lost together are charged together, for ever
	for i := range h.limits {
		s := &h.limits[i]
		s.trim(now.Store)
		s.cells = slices.DeleteFunc(s.cells, func(c cell) bool { return c.at <= h.reset })
		for k := range s.cells {
			c := &s.cells[k]
			if c.lost = !c.in(h.epochs); !c.lost || c.claim != nil { // a grant is for ever
				continue
			}
			if fresh[s.plan] == nil {
				fresh[s.plan] = &claim{grant: store.NewGrant(), plan: s.plan}
			}
			c.claim = fresh[s.plan]
		}
	}
	for _, t := range slices.Concat(h.open, h.ended) {
		if t.take[0].at <= h.reset {
			h.forget(t)
			continue
		}
		t.needs = t.judge(now.Store)
	}
	h.pauses.reset(h.reset)
	l.pendLost(now, e)
}

// in reports whether a record with this list has the units.
//
// A program of the version before may have dropped the grant of a charge, and not the units. So one
// that was sent and not answered counts as present.
func (c *cell) in(epochs []store.Epoch) bool {
	if c.claim != nil && c.claim.sent && c.stamps[0].at == 0 && others(epochs) {
		return true
	}
	return c.stamps.in(epochs)
}

// pendLost makes pending what a bucket lacks.
func (l *Ledger) pendLost(now Now, e *entry) {
	h := e.hist
	for i := range h.limits {
		for k := range h.limits[i].cells {
			if c := &h.limits[i].cells[k]; c.lost {
				l.pendClaim(now, e, c.claim)
			}
		}
	}
	for _, t := range h.open {
		l.pendTrace(now, t)
	}
	for _, t := range h.ended {
		l.pendTrace(now, t)
	}
	if h.pauses != (ownPauses{}) {
		l.pendLook(now, e)
	}
}

// pendClaim makes a charge pending.
func (l *Ledger) pendClaim(now Now, e *entry, c *claim) {
	if c.it == nil {
		c.it = &item{kind: claimItem, claim: c}
		l.pend(now, c.it, []*entry{e})
	}
}

// pendTrace makes pending what is lost of a reservation.
func (l *Ledger) pendTrace(now Now, t *trace) {
	if t.it == nil && t.needs != needsNothing {
		t.it = &item{kind: traceItem, trace: t}
		l.pend(now, t.it, []*entry{t.e})
	}
}

// pendNeed judges one reservation by the list that is known.
func (l *Ledger) pendNeed(now Now, t *trace) {
	if t.e == nil {
		return
	}
	t.needs = t.judge(now.Store)
	l.pendTrace(now, t)
}

// enterUnits enters what a call wrote. If its answer is late, the list that is known says whether
// the store has it still.
func (l *Ledger) enterUnits(now Now, e *entry, u *units) {
	h := e.historyOf()
	if u.stamps[0].at == 0 || u.at <= h.reset {
		return
	}
	if h.heard && !u.stamps.in(h.epochs) {
		if u.lost = true; u.claim == nil {
			u.claim = &claim{grant: store.NewGrant(), plan: u.plan}
		}
	}
	h.add(now.Store, u)
	if u.lost {
		l.pendClaim(now, e, u.claim)
	}
}

// enterTake enters what a take wrote, according to the store's answer, which was heard.
func (l *Ledger) enterTake(now Now, r *Request, d *store.Verdict) {
	for k := range min(len(d.Histories), len(r.parts)) {
		p := &r.parts[k]
		if p.e == nil {
			continue
		}
		a := &d.Histories[k]
		l.hear(now, p.e, a)
		if !d.Allowed {
			continue
		}
		l.checkPause(now, p.e, d)
		start := max(d.Now, d.Start)
		if r.take.ID == "" {
			if a.Wrote {
				u := units{plan: p.plan.Plan, n: p.n, at: a.Last, start: start, stamps: stamps{wrote(a)}}
				l.enterUnits(now, p.e, &u)
			}
			continue
		}
		// A caller may have used the grant before, for other buckets: then that is still known.
		if h := l.held.find(r.take.ID, r.take.Grant); h != nil && h.stored && h.last == nil &&
			k < len(h.parts) && h.parts[k].key == p.key {
			l.trace(now, h, k, p.e, a, d)
		}
	}
}

// enterCharge enters units that a settlement charged.
func (l *Ledger) enterCharge(now Now, st *store.Settlement, as []store.History) {
	for k := range min(len(as), len(st.Buckets)) {
		b, a := &st.Buckets[k], &as[k]
		if e := l.entries.byKey[b.Key]; e != nil && a.Wrote {
			u := units{plan: b.Plan, n: b.N, at: a.Last, start: usedAt(now, st), stamps: stamps{wrote(a)}}
			l.enterUnits(now, e, &u)
		}
	}
}

// usedAt returns when the units of a charge were used, as the store counts them. Only calendar
// limits count them before they are charged.
func usedAt(now Now, st *store.Settlement) int64 {
	if st.At.IsZero() {
		return now.Store
	}
	return min(now.Store, st.At.UnixMicro())
}
