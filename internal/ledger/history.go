package ledger

import (
	"slices"

	"github.com/drawgate/drawgate/store"
)

// A store that can lose what it acknowledged says with each answer which part of a bucket's history
// it has: see [store.Historian], and docs/design.md, "Recovering what a store lost". By that a
// process finds out what of its own is missing. models/recover shows which rules are needed.

// stamp names the write of a bucket that has something: the part of the history, and the instant of
// the write. The zero stamp names none.
type stamp struct {
	mark store.Mark
	at   int64 // on the store's clock; 0: no write
}

// in reports whether a record with this list has the write.
//
// A record that a program of the version before made begins with others, which have no mark. It may
// have been made of any earlier one, so what was written before the rest of its list began counts
// as present: charging it again could count it twice.
func (s stamp) in(epochs []store.Epoch) bool {
	if s.at == 0 || len(epochs) == 0 {
		return false
	}
	i := slices.IndexFunc(epochs, func(e store.Epoch) bool { return e.Mark == s.mark })
	if i < 0 {
		if i = 0; !others(epochs) {
			return false
		}
	}
	return i+1 == len(epochs) || s.at <= epochs[i+1].Start
}

// others reports whether a list begins with what a program of the version before wrote.
func others(epochs []store.Epoch) bool { return len(epochs) > 0 && epochs[0].Mark == store.Mark{} }

// stamps are those of a write, and of the latest recovery of it. The first one stays: a server that
// has the write, and not the recovery, may come back.
type stamps [2]stamp

func (s *stamps) in(epochs []store.Epoch) bool { return s[0].in(epochs) || s[1].in(epochs) }

// again adds the stamp of a recovery.
func (s *stamps) again(st stamp) {
	if s[0].at == 0 {
		s[0] = st
		return
	}
	s[1] = st
}

// history is what this process knows of one bucket's history, and what it has in it.
type history struct {
	heard  bool          // there was an answer
	known  store.Known   // the one by which everything was judged last
	epochs []store.Epoch // its list. An epoch that is pending is the last one
	reset  int64         // its last reset

	limits []series
	open   []*trace // reservations
	ended  []*trace // settled ones, the oldest first
	sweep  int      // with so many open ones, those whose hold is over are removed
	pauses ownPauses
	asks   *Delivery // a recovery that draws a mark is in it: others would name the mark before
}

// blank reports whether the history says no more than a missing one.
func (h *history) blank() bool {
	return len(h.limits) == 0 && len(h.open) == 0 && len(h.ended) == 0 && h.pauses == ownPauses{}
}

// over forgets what no longer counts, and reports whether nothing is left.
func (h *history) over(now Now) bool {
	h.settle(now)
	h.age(now)
	h.limits = slices.DeleteFunc(h.limits, func(s series) bool {
		s.trim(now.Store)
		return len(s.cells) == 0
	})
	h.pauses.expire(now.Store)
	return h.blank()
}

// list takes over an answer's list.
func (h *history) list(a *store.History) {
	h.heard, h.known, h.reset, h.epochs = true, a.Known, a.Reset, slices.Clone(a.Epochs)
	if m := lastMark(a); len(a.Epochs) > 0 && m != a.Mark {
		h.epochs = append(h.epochs, store.Epoch{Mark: m, Start: a.Last})
	}
}

// later notes that the record was written since, and the epoch that is pending was not begun: a
// server that was renamed, and has its data, is known to connections from before by its old name.
// It reports whether that is new.
func (h *history) later(a *store.History) bool {
	if len(h.epochs) == 0 || lastMark(a) == a.Mark || a.Last <= h.epochs[len(h.epochs)-1].Start {
		return false
	}
	h.epochs[len(h.epochs)-1].Start = a.Last
	return true
}

// lastMark returns the mark that the next write is under. One that is not drawn yet is known by its
// generation and by the mark before it. No mark that is drawn is like that.
func lastMark(a *store.History) store.Mark {
	// a server that does not say which it is, and a record that others made
	unnamed := a.Mark == store.Mark{} && a.Generation == 1
	if a.Mark.Generation == a.Generation || a.Mark == store.NoRecord || unnamed {
		return a.Mark
	}
	return store.Mark{Generation: a.Generation, Clock: -1 - a.Mark.Clock}
}

// wrote returns the stamp of what a call wrote, or found to be there: that is in the last write at
// the latest.
func wrote(a *store.History) stamp { return stamp{a.Mark, a.Last} }

// recovers reports whether the store keeps histories, by which lost things are recovered.
func (l *Ledger) recovers() bool { return l.opts.Recovers != nil && l.opts.Recovers() }

// historyOf returns an entry's history, and makes a missing one.
func (e *entry) historyOf() *history {
	if e.hist == nil {
		e.hist = &history{sweep: firstSweep}
	}
	return e.hist
}

// knows returns what this process knows of a bucket's history.
func (e *entry) knows() store.Known {
	if e == nil || e.hist == nil {
		return store.Known{}
	}
	return e.hist.known
}

// KnownOf returns what this process knows of the histories of buckets, or nil if the store keeps
// none: what a call names, and is then answered with.
func (l *Ledger) KnownOf(buckets []store.BucketCost) []store.Known {
	if !l.recovers() {
		return nil
	}
	known := make([]store.Known, len(buckets))
	for i := range buckets {
		known[i] = l.entries.byKey[buckets[i].Key].knows()
	}
	return known
}

// SentTakes returns takes as they are sent: with the ids under which the store knows their grants,
// and with what is known of their buckets.
func (l *Ledger) SentTakes(batch []store.Take) []store.Take {
	batch = l.nameTakes(batch)
	if !l.recovers() {
		return batch
	}
	if l.held.renamed == 0 {
		batch = slices.Clone(batch)
	}
	for i := range batch {
		batch[i].Known = l.KnownOf(batch[i].Buckets)
	}
	return batch
}

// SentSettlements is SentTakes for settlements.
func (l *Ledger) SentSettlements(batch []store.Settlement) []store.Settlement {
	batch = l.nameSettlements(batch)
	if !l.recovers() {
		return batch
	}
	if l.held.renamed == 0 {
		batch = slices.Clone(batch)
	}
	for i := range batch {
		batch[i].Known = l.KnownOf(batch[i].Buckets)
	}
	return batch
}

// hear judges what this process has in a bucket by an answer of the store, if it has another list
// than the one that was judged by, or shows that the epoch that is pending begins later. Another
// answer without a list is late.
func (l *Ledger) hear(now Now, e *entry, a *store.History) {
	h := e.historyOf()
	h.settle(now)
	switch {
	case h.heard && a.Known == h.known:
		if !h.later(a) {
			return
		}
	case a.Listed:
		h.list(a)
	default:
		return
	}
	l.judge(now, e)
}

// hearAll is hear for the buckets of a call.
func (l *Ledger) hearAll(now Now, buckets []store.BucketCost, as []store.History) {
	if len(as) != len(buckets) {
		return
	}
	for i := range buckets {
		if e := l.entries.byKey[buckets[i].Key]; e != nil {
			l.hear(now, e, &as[i])
		}
	}
}
