package ledger

import (
	"cmp"
	"slices"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// settledLife is how long, in µs, a reservation is kept after its settlement: a store that fails
// over to older data may have it open again.
const settledLife = 60_000_000

// trace is what the store was told of a reservation in one bucket. Each bucket may lose its part.
type trace struct {
	e       *entry // nil: forgotten
	pos     int    // while open: its position in history.open
	id      string // at the store
	grant   store.Grant
	plan    *store.Plan
	asked   []store.BucketCost // the take's, of all its buckets
	lease   bool
	hold    int64 // µs, as it was asked for
	granted store.Amounts
	start   int64 // from when on its units count, unless they do not age while held
	first   int64 // what the store promised first
	end     int64 // what its holder was promised since
	has     int64 // what the store was told of that

	take, renewed, settled stamps      // what the store was told, and by which writes
	undone                 stamps      // by which writes a cancellation took back what had been settled
	instead                store.Grant // under which what was used is charged then

	closed   bool          // it was settled or cancelled
	closedAt int64         // when, on the store's clock
	used     store.Amounts // if closed
	ending   bool          // its settlement is pending, with those of the other buckets
	opened   bool          // the store may have it, whatever the stamps say: its reopening was sent
	needs    need          // by the list that is known
	it       *item         // by which that is recovered
}

// need is how a reservation that was lost, or a part of it, is recovered.
type need uint8

const (
	needsNothing need = iota
	needsReopening
	needsRenewal
	needsSettlement
	needsCharge
)

// judge finds out what a record with the history's list lacks of a reservation.
func (t *trace) judge(now int64) need {
	ep := t.e.hist.epochs
	// A renewal that was carried out shows that the take was there.
	took := t.take.in(ep) || t.renewed.in(ep)
	switch {
	case t.ending:
		return needsNothing // its answer will show
	case t.closed:
		switch {
		case t.settled.in(ep):
			return needsNothing
		case t.undone.in(ep):
			if counted(t.plan, &t.used) {
				return needsCharge
			}
			return needsNothing
		case took:
			return needsSettlement
		case t.opened || counted(t.plan, &t.used): // it may be open again, although it was cancelled
			return needsCharge
		}
		return needsNothing
	case t.end <= now:
		if took {
			return needsNothing
		}
		return needsCharge
	case !took:
		return needsReopening
	case t.has < t.end, t.renewed[0].at != 0 && !t.renewed.in(ep):
		return needsRenewal
	}
	return needsNothing
}

// counted reports whether any of the amounts outlasts a hold: slots do not.
func counted(plan *store.Plan, n *store.Amounts) bool {
	specs := store.Internal.Specs(plan, false)
	for i := range specs {
		if n[i] > 0 && specs[i].Kind != record.Concurrency {
			return true
		}
	}
	return false
}

// spent returns what counts of the reservation when it is over.
func (t *trace) spent() store.Amounts {
	if t.closed {
		return t.used
	}
	return t.granted
}

// countsFrom returns from when on the units of limit i count.
func (t *trace) countsFrom(i int) int64 {
	switch {
	case !t.lease && !store.Internal.Specs(t.plan, false)[i].ChargeEnd:
		return t.start
	case t.closed:
		return t.closedAt
	}
	return t.end
}

// forgets removes a reservation from its bucket's history.
func (h *history) forget(t *trace) {
	if !h.shut(t) {
		h.ended = slices.DeleteFunc(h.ended, func(o *trace) bool { return o == t })
	}
	t.detach()
}

// shut removes a reservation from the open ones. It reports whether it was one.
func (h *history) shut(t *trace) bool {
	if t.pos >= len(h.open) || h.open[t.pos] != t {
		return false
	}
	last := len(h.open) - 1
	moved := h.open[last]
	h.open[t.pos], moved.pos = moved, t.pos
	h.open[last] = nil
	h.open = h.open[:last]
	return true
}

func (t *trace) detach() {
	if t.e != nil {
		t.e.table.traces--
		t.e = nil
	}
}

// turn makes units of a reservation that is over: they have the stamps of its last write.
func (h *history) turn(now int64, t *trace) {
	u := units{plan: t.plan, at: t.take[0].at, stamps: t.take}
	switch {
	case t.closed:
		u.stamps = t.settled
	case u.stamps[1].at == 0: // where the renewal is, the take was
		u.stamps[1] = t.renewed[0]
	}
	if t.opened || u.stamps[1].at != 0 { // a record that comes back may have it under its grant
		u.claim = &claim{grant: cmp.Or(t.instead, t.grant), plan: t.plan}
	}
	spent := t.spent()
	for i, n := range spent {
		if n > 0 {
			u.n, u.start = store.Amounts{}, t.countsFrom(i)
			u.n[i] = n
			h.add(now, &u)
		}
	}
	t.detach()
}

// settle turns those reservations into units whose settlement was long ago.
func (h *history) settle(now Now) {
	k := 0
	for k < len(h.ended) && h.ended[k].closedAt+settledLife <= now.Store && h.ended[k].idle() {
		h.turn(now.Store, h.ended[k])
		k++
	}
	h.ended = slices.Delete(h.ended, 0, k)
}

// age turns those reservations into units whose hold is over, and of which nothing is lost.
func (h *history) age(now Now) {
	h.open = slices.DeleteFunc(h.open, func(t *trace) bool {
		if t.end > now.Store || !t.idle() {
			return false
		}
		h.turn(now.Store, t)
		return true
	})
	for i, t := range h.open {
		t.pos = i
	}
	h.sweep = max(firstSweep, 2*len(h.open))
}

// makeRoom turns the reservation into units that was settled first. It reports whether there was
// one.
func (h *history) makeRoom(now Now) bool {
	if len(h.ended) == 0 || !h.ended[0].idle() {
		return false
	}
	h.turn(now.Store, h.ended[0])
	h.ended = slices.Delete(h.ended, 0, 1)
	return true
}

// idle reports whether nothing of the reservation is pending.
func (t *trace) idle() bool { return t.it == nil && !t.ending && t.needs == needsNothing }

// trace notes that the store has a reservation's part k, as an answer says.
func (l *Ledger) trace(now Now, h *reservation, k int, e *entry, a *store.History, v *store.Verdict) {
	if h.traces == nil {
		h.traces = make([]*trace, len(h.parts))
	}
	st, end := wrote(a), v.HoldEnd().UnixMicro()
	t := h.traces[k]
	if t == nil || t.e == nil {
		hist := e.historyOf()
		if l.entries.traces >= l.held.max && !hist.makeRoom(now) {
			return
		}
		if len(hist.open) >= hist.sweep {
			hist.age(now)
		}
		t = &trace{
			e: e, id: h.storeID(), grant: h.take.Grant, plan: h.take.Buckets[k].Plan, asked: h.take.Buckets,
			lease: h.take.Lease, hold: h.take.Hold.Microseconds(), granted: h.granted[k], start: max(v.Now, v.Start),
			first: end,
		}
		h.traces[k], t.pos = t, len(hist.open)
		hist.open = append(hist.open, t)
		l.entries.traces++
	}
	if t.take[0].at == 0 || t.take[0].mark != st.mark {
		t.take.again(st)
	}
	t.opened = t.opened || v.Replayed // it may be there although its stamp is not: that may be later
	t.end = max(t.end, h.end)
	if end >= t.end && (t.renewed[0].at != 0 || end > t.first) { // other data may have only the first hold
		t.renewed = stamps{st}
	}
	t.has = max(t.has, h.end)
	l.pendNeed(now, t)
}

// close notes how a reservation ended for its holder. What the store has of that its answers say.
func (t *trace) close(now Now, used *store.Amounts) {
	if t.e == nil || t.closed {
		return
	}
	t.closed, t.closedAt, t.used = true, now.Store, *used
	t.e.hist.shut(t)
	t.e.hist.ended = append(t.e.hist.ended, t)
}

// ending notes whether the settlement of a reservation is pending.
func (h *reservation) ending(pending bool) {
	for _, t := range h.traces {
		if t != nil {
			t.ending = pending
		}
	}
}

// traceOf returns what the store was told of a reservation's part k, or nil.
func (h *reservation) traceOf(k int) *trace {
	if h.traces == nil || h.traces[k] == nil || h.traces[k].e == nil {
		return nil
	}
	return h.traces[k]
}

// since returns when the units of a reservation were taken that it charges late.
func (h *reservation) since(now Now) int64 {
	if h.given == 0 || h.take.Lease {
		return now.Store
	}
	return h.given
}
