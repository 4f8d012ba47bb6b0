package ledger

import (
	"errors"
	"slices"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// recovered is what labels, in the store's history, what charges lost units again.
var recovered = []store.Label{{Name: "recovered", Value: "true"}}

// pendOutage makes units pending that were admitted here. They have a grant from the start, and
// join those that wait already.
func (l *Ledger) pendOutage(now Now, e *entry, plan *store.Plan, n *store.Amounts, start int64) {
	c := e.outageClaim(plan, nil)
	u := units{plan: plan, n: *n, at: now.Store, start: start, end: now.Store, claim: c, lost: true}
	e.historyOf().add(now.Store, &u)
	l.pendClaim(now, e, c)
}

// outageClaim returns a charge of a plan's units that was not sent yet: one that waits already, or
// a new one.
func (e *entry) outageClaim(plan *store.Plan, labels []store.Label) *claim {
	for _, it := range e.items {
		if c := it.claim; c != nil && c.outage && !c.sent && c.plan == plan && !it.inFlight &&
			slices.Equal(c.labels, labels) {
			return c
		}
	}
	return &claim{grant: store.NewGrant(), plan: plan, outage: true, labels: slices.Clone(labels)}
}

// claims returns how many charges with a grant are pending.
func (e *entry) claims() (n int) {
	for _, it := range e.items {
		if it.kind == claimItem {
			n++
		}
	}
	return n
}

// pendCaller makes a caller's charge pending, as one with a grant for each bucket. It does not if a
// bucket has no room for that, as each charge has cells of its own.
func (l *Ledger) pendCaller(now Now, st *store.Settlement, parts []part) bool {
	if slices.ContainsFunc(parts, func(p part) bool { return p.e == nil || p.e.claims() >= manyCells }) {
		return false
	}
	for k := range parts {
		e, b := parts[k].e, &st.Buckets[k]
		c := e.outageClaim(b.Plan, st.Labels)
		specs := store.Internal.Specs(b.Plan, false)
		for i := range specs {
			u := units{plan: b.Plan, at: now.Store, start: now.Store, claim: c, lost: true}
			if specs[i].Kind == record.Calendar {
				u.start = usedAt(now, st)
			}
			u.n[i] = min(b.N[i], unlimited)
			e.historyOf().add(now.Store, &u)
		}
		if c.it == nil {
			l.pendClaim(now, e, c)
			c.it.kept = true
			l.charges++
		}
	}
	return true
}

// composeLost adds to a delivery what recovers a bucket. What is charged or opened again has the
// condition that the history is still the one by which it was judged: so a guard that knows none
// looks first.
func (l *Ledger) composeLost(now Now, d *Delivery, it *item) {
	e := it.entries[0]
	h := e.historyOf()
	if it.kind == claimItem && (!l.recovers() || it.claim.plain) {
		l.composePlain(now, d, it)
		return
	}
	if !l.recovers() { // there is no history any more, by which it was judged
		l.giveUp(it)
		return
	}
	// a record may be there to which it was written since: see history.later
	stale := h.known.Mark != lastMark(&store.History{Known: h.known}) && it.saw != h.known
	if it.known = h.known; !h.heard || it.kind == lookItem || stale {
		d.look(it)
		return
	}
	drawn := h.known.Mark.Generation == h.known.Generation
	if !drawn && h.asks == d { // it draws a mark, and is all that is carried out under the one before
		l.queue.push(it, now)
		return
	}
	var sent bool
	if it.kind == claimItem {
		sent = l.composeClaim(now, d, it)
	} else {
		sent = l.composeTrace(now, d, it)
	}
	if sent && !drawn {
		h.asks = d
	}
}

// giveUp ends an item without recovering what it is about.
func (l *Ledger) giveUp(it *item) {
	if it.trace != nil {
		it.trace.needs = needsNothing
	}
	if it.claim != nil {
		for _, c := range it.entries[0].cellsOf(it.claim) {
			c.lost = false
		}
	}
	l.finish(it)
}

// cellsOf returns the cells of a charge.
func (e *entry) cellsOf(cl *claim) (cs []*cell) {
	if e.hist == nil {
		return nil
	}
	for i := range e.hist.limits {
		for k := range e.hist.limits[i].cells {
			if c := &e.hist.limits[i].cells[k]; c.claim == cl {
				cs = append(cs, c)
			}
		}
	}
	return cs
}

// lostParts returns what is charged under a claim, and the sum of it: of a bucket limit at most
// what has not drained.
func (h *history) lostParts(now int64, cl *claim) (parts []store.Lost, sum store.Amounts) {
	specs := store.Internal.Specs(cl.plan, false)
	for i := range h.limits {
		s := &h.limits[i]
		// a later plan may have the limit in another place
		pos := slices.IndexFunc(specs, func(spec record.Spec) bool { return spec.ID == s.id })
		if pos < 0 {
			continue
		}
		s.trim(now)
		left := s.left(now)
		for k := range s.cells {
			c := &s.cells[k]
			n := min(c.n, left-sum[pos])
			if c.claim != cl || !c.lost || n <= 0 {
				continue
			}
			p := store.Lost{From: c.from, Until: c.until}
			p.N[pos] = n
			sum[pos] += n
			parts = append(parts, p)
		}
	}
	return parts, sum
}

// composeClaim adds a charge.
func (l *Ledger) composeClaim(now Now, d *Delivery, it *item) bool {
	e := it.entries[0]
	parts, sum := e.hist.lostParts(now.Store, it.claim)
	if len(parts) == 0 { // it is over, or was found
		l.giveUp(it)
		return false
	}
	it.claim.sent = true
	labels := recovered
	if it.claim.outage {
		labels = it.claim.labels
	}
	l.settleIn(d, it, l.chargeAgain(now, e, it.claim.plan, it.claim.grant, parts, &sum, labels))
	return true
}

// chargeAgain returns the charge of what was lost.
func (l *Ledger) chargeAgain(now Now, e *entry, plan *store.Plan, grant store.Grant, parts []store.Lost,
	sum *store.Amounts, labels []store.Label,
) store.Settlement {
	return store.Settlement{
		Op: store.OpCharge, At: store.Internal.Instant(now.Store), Labels: labels,
		Buckets:  []store.BucketCost{{Key: e.key, Plan: plan, N: *sum}},
		Recovery: &store.Recovery{Grant: grant, Parts: parts},
	}
}

// composePlain adds units that were admitted here as a charge without a grant and a condition: the
// store keeps no history any more, or has no room. What it had lost before is not charged.
func (l *Ledger) composePlain(now Now, d *Delivery, it *item) {
	parts, sum := it.entries[0].historyOf().lostParts(now.Store, it.claim)
	if len(parts) == 0 || !it.claim.outage {
		l.giveUp(it)
		return
	}
	it.claim.sent = true
	l.settleIn(d, it, store.Settlement{
		Op: store.OpCharge, At: store.Internal.Instant(now.Store), Labels: it.claim.labels,
		Buckets: []store.BucketCost{{Key: it.entries[0].key, Plan: it.claim.plan, N: sum}},
	})
}

// composeTrace adds what recovers a reservation.
func (l *Ledger) composeTrace(now Now, d *Delivery, it *item) bool {
	t := it.trace
	if t.e != nil { // its hold may be over by now, or it was settled
		t.needs = t.judge(now.Store)
	}
	if it.needs = t.needs; t.e == nil || t.needs == needsNothing {
		l.giveUp(it)
		return false
	}
	b := store.BucketCost{Key: t.e.key, Plan: t.plan, N: t.granted}
	switch t.needs {
	case needsReopening:
		t.opened, it.end = true, t.end
		b.Plan = l.forced(t.plan)
		d.Takes = append(d.Takes, store.Take{
			ID: t.id, Grant: t.grant, Buckets: []store.BucketCost{b}, Hold: micros(t.hold), Lease: t.lease,
			Priority: store.MaxPriority, Given: true, Labels: recovered,
			Known: []store.Known{t.e.hist.known}, Recovery: t.reopening(now.Store),
		})
		d.taken = append(d.taken, it)
	case needsRenewal:
		it.end = t.end
		l.settleIn(d, it, store.Settlement{
			Op: store.OpRenew, ID: t.id, Grant: t.grant, Buckets: []store.BucketCost{b},
			Hold: micros(t.end - now.Store),
		})
	case needsSettlement:
		b.N = t.used
		l.settleIn(d, it, store.Settlement{
			Op: store.OpSettle, ID: t.id, Grant: t.grant, Buckets: []store.BucketCost{b},
		})
	default:
		grant := t.grant // in the place of the reservation, if it is open again
		if t.undone.in(t.e.hist.epochs) {
			grant = t.instead
		}
		parts, sum := t.lostParts(now.Store)
		l.settleIn(d, it, l.chargeAgain(now, t.e, t.plan, grant, parts, &sum, recovered))
	}
	return true
}

// reopening returns what the store has to know to open the reservation again as it was.
func (t *trace) reopening(now int64) *store.Recovery {
	whole := store.Take{Buckets: t.asked, Hold: micros(t.hold), Lease: t.lease}
	rec := &store.Recovery{End: t.end, Content: whole.Fingerprint()}
	if t.start > now { // it was booked ahead
		rec.From = t.start
	}
	return rec
}

// forced returns the plan with which the store opens what was granted before, whatever it granted
// since.
func (l *Ledger) forced(plan *store.Plan) *store.Plan {
	n, _ := l.plans.instances()
	return l.plans.of(plan, n).force()
}

// lostParts returns the charge of a reservation that is over: of a bucket limit what has not
// drained. A charge of nothing ends it, if it was opened again.
func (t *trace) lostParts(now int64) (parts []store.Lost, sum store.Amounts) {
	spent := t.spent()
	specs := store.Internal.Specs(t.plan, false)
	for i := range specs {
		if spent[i] <= 0 || specs[i].Kind == record.Concurrency {
			continue
		}
		s := series{plan: t.plan, pos: i}
		p := store.Lost{}
		p.From, p.Until = s.counts(t.countsFrom(i), spent[i])
		if n := min(spent[i], s.left(now)); n > 0 && p.Until > now {
			p.N[i], sum[i] = n, n
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 {
		parts = []store.Lost{{From: t.start, Until: max(t.end, now+settledLife)}}
	}
	return parts, sum
}

// look adds a look at a bucket, of which an item needs to know more.
func (d *Delivery) look(it *item) {
	d.looking = append(d.looking, it)
	e := it.entries[0]
	if slices.ContainsFunc(d.Looks, func(b store.BucketCost) bool { return b.Key == e.key }) {
		return
	}
	var plan *store.Plan
	switch {
	case it.claim != nil:
		plan = it.claim.plan
	case it.trace != nil:
		plan = it.trace.plan
	default:
		plan = it.st.Buckets[0].Plan
	}
	d.Looks = append(d.Looks, store.BucketCost{Key: e.key, Plan: plan})
}

// Looked records what the store says of the buckets that a delivery looks at.
func (l *Ledger) Looked(now Now, d *Delivery, out []store.State, rep *Report) {
	looks, looking := d.Looks, d.looking
	d.Looks, d.looking = nil, nil
	for i := range out {
		e, a := l.entries.byKey[looks[i].Key], history1(out[i].Histories)
		if e != nil && a != nil && out[i].Fail == nil {
			l.hear(now, e, a)
		}
		for _, it := range looking {
			if it.entries[0] == e {
				l.looked(now, it, &out[i], a, rep)
			}
		}
	}
}

// looked continues with an item whose bucket was looked at.
func (l *Ledger) looked(now Now, it *item, st *store.State, a *store.History, rep *Report) {
	switch {
	case Unavailable(st.Fail):
		l.faulty(now, it, st.Fail, rep)
	case it.dropped:
		it.inFlight = false
	case st.Fail != nil || a == nil:
		it.inFlight = false
		l.giveUp(it)
	case it.kind == lookItem:
		l.comparePauses(now, it.entries[0], it.st.Buckets[0].Plan, st, a)
		l.finish(it)
	default:
		it.saw = a.Known
		l.again(now, it)
	}
}

// history1 returns the only history of an answer about one bucket, or nil.
func history1(as []store.History) *store.History {
	if len(as) != 1 {
		return nil
	}
	return &as[0]
}

// noGrant reports whether the store has no room for the grant of an outage's charge, which it has
// not carried out then. It goes without one: missing units would be worse than a lost answer, by
// which they count twice.
func (it *item) noGrant(err error) bool {
	return it.kind == claimItem && it.claim.outage && !it.claim.plain && errors.Is(err, store.ErrTooManyOpen)
}

// claimed records the outcome of a charge, which was heard.
func (l *Ledger) claimed(now Now, it *item, st *store.Settlement, o *store.Outcome, rep *Report) {
	e, a := it.entries[0], history1(o.Histories)
	if it.noGrant(o.Err) {
		it.claim.plain = true
		l.again(now, it)
		return
	}
	if o.Err != nil {
		l.giveUp(it)
		return
	}
	if a != nil && a.Unmet {
		l.unmet(now, it, rep)
		return
	}
	if it.claim.outage {
		rep.Charged = append(rep.Charged, st.Buckets)
		it.claim.outage, it.claim.plain = false, false
	} else {
		rep.Recovered = append(rep.Recovered, st.Buckets[0])
	}
	for _, c := range e.cellsOf(it.claim) {
		if c.lost = false; a != nil {
			c.stamps.again(wrote(a))
			c.lost = !c.in(e.hist.epochs)
		}
	}
	l.finish(it)
	if len(e.cellsOf(it.claim)) > 0 && e.hist != nil {
		l.pendLost(now, e)
	}
}

// unmet notes that a recovery was not carried out, because the history is another one. The answer's
// list was judged by; what is still lost is sent again.
func (l *Ledger) unmet(now Now, it *item, rep *Report) {
	rep.Unmet++
	if known := it.entries[0].knows(); known == it.known { // the store says nothing new: do not insist
		it.notBefore = now.Own + retryPause
	}
	l.again(now, it)
}

// restored records the outcome of what recovers a reservation by a settlement.
func (l *Ledger) restored(now Now, it *item, st *store.Settlement, o *store.Outcome, rep *Report) {
	t, a := it.trace, history1(o.Histories)
	switch {
	case o.Err != nil || t.e == nil || a == nil:
		l.giveUp(it)
		return
	case a.Unmet:
		l.unmet(now, it, rep)
		return
	}
	done := !a.Gone
	switch it.needs {
	case needsRenewal:
		l.prolonged(now, t, a, o.Kept, it.end)
	case needsSettlement:
		done = l.closed(now, t, a)
	default:
		t.close(now, &t.granted)
		t.take.again(wrote(a))
		t.settled.again(wrote(a))
		rep.Recovered = append(rep.Recovered, st.Buckets[0])
	}
	if done {
		rep.Reservations++
	}
	l.finish(it)
	l.pendNeed(now, t)
}

// prolonged records the outcome of a renewal. That the reservation is gone is believed only from a
// record that had it.
func (l *Ledger) prolonged(now Now, t *trace, a *store.History, kept bool, end int64) {
	switch took := t.e.hist.has(t); {
	case t.closed: // meanwhile
	case a.Gone && took: // somebody else settled it, or its hold was over there: it counts as granted
		hist := t.e.hist
		hist.shut(t)
		t.end = min(t.end, now.Store)
		hist.turn(now.Store, t)
	case a.Gone:
	case kept: // its bucket is paused: it ends when it ends
		t.end = t.has
	default:
		t.has = max(t.has, end)
		t.renewed = stamps{wrote(a)}
	}
}

// has reports whether a record with the history's list has, or had, a reservation.
func (h *history) has(t *trace) bool { return t.take.in(h.epochs) || t.renewed.in(h.epochs) }

// closed records the outcome of a settlement in one bucket. It reports whether it is believed: that
// the reservation is gone is, only from a record that had it.
func (l *Ledger) closed(now Now, t *trace, a *store.History) (believed bool) {
	switch believed = !a.Gone || t.e.hist.has(t); {
	case !a.Gone:
		t.settled.again(wrote(a))
	case believed: // a server that comes back may have it open again
		t.settled.again(stamp{lastMark(a), a.Last})
	}
	t.ending = false
	l.pendNeed(now, t)
	return believed
}

// reopened records the answer to a reopening.
func (l *Ledger) reopened(now Now, it *item, v *store.Verdict, rep *Report) {
	t, a := it.trace, history1(v.Histories)
	it.inFlight = false
	switch {
	case it.dropped:
		return
	case t.e == nil || a == nil && v.Fail == nil:
		l.giveUp(it)
		return
	case a != nil:
		l.hear(now, t.e, a)
	}
	switch {
	case t.e == nil: // forgiven
		l.giveUp(it)
		return
	case a != nil && a.Unmet:
		l.unmet(now, it, rep)
		return
	case v.Allowed:
		t.take.again(wrote(a))
		if t.renewed[0].at != 0 || it.end > t.first { // older data has only the first hold
			t.renewed = stamps{wrote(a)}
		}
		t.has = max(t.has, it.end)
		rep.Reservations++
	default: // another grant has its id, or too many are open
		t.end = min(t.end, now.Store)
	}
	l.finish(it)
	l.pendNeed(now, t)
}
