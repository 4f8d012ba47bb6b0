package ledger

import (
	"cmp"
	"slices"

	"github.com/drawgate/drawgate/store"
)

// ownPauses are the last pause of a bucket that this process set, and the last one that it ended,
// until that pause's end. A store that lost either is told again, by nobody else.
type ownPauses struct{ set, end ownPause }

type ownPause struct {
	at     int64 // when it was set or ended, on the store's clock
	until  int64 // the end of the pause
	reason string
	plan   *store.Plan
}

func (p *ownPauses) expire(now int64) {
	if p.set.until <= now {
		p.set = ownPause{}
	}
	if p.end.until <= now {
		p.end = ownPause{}
	}
}

// reset forgets what a reset ended.
func (p *ownPauses) reset(at int64) {
	if p.set.at <= at {
		p.set = ownPause{}
	}
	if p.end.at <= at {
		p.end = ownPause{}
	}
}

// notePause remembers a pause that the store has set or ended for this process.
func (l *Ledger) notePause(now Now, st *store.Settlement, o *store.Outcome) {
	if st.Op != store.OpPause && st.Op != store.OpUnpause || o.Err != nil {
		return
	}
	for i := range min(len(o.Histories), len(st.Buckets)) {
		a := &o.Histories[i]
		if !a.Wrote {
			continue
		}
		e := l.entries.find(st.Buckets[i].Key, now)
		if e == nil {
			continue
		}
		switch p := &e.historyOf().pauses; st.Op {
		case store.OpPause:
			p.set = ownPause{a.Last, o.End.UnixMicro(), st.Reason, st.Buckets[i].Plan}
		default:
			p.set, p.end = ownPause{}, ownPause{a.Last, st.At.UnixMicro(), st.Reason, st.Buckets[i].Plan}
		}
	}
}

// notePaused is notePause for what was delivered. What the store had before is remembered as it was
// first.
func (l *Ledger) notePaused(now Now, it *item, o *store.Outcome) {
	if !it.recovers {
		l.notePause(now, &it.st, o)
	}
}

// checkPause looks at a bucket in which a take was allowed although it should be paused.
func (l *Ledger) checkPause(now Now, e *entry, d *store.Verdict) {
	if !d.Replayed && e.hist != nil && e.hist.pauses.set.until > d.Now {
		l.pendLook(now, e)
	}
}

// pendLook makes a look at a bucket's pause pending.
func (l *Ledger) pendLook(now Now, e *entry) {
	e.hist.pauses.expire(now.Store)
	if e.hist.pauses == (ownPauses{}) ||
		slices.ContainsFunc(e.items, func(it *item) bool { return it.kind == lookItem }) {
		return
	}
	it := &item{kind: lookItem}
	plan := cmp.Or(e.hist.pauses.set.plan, e.hist.pauses.end.plan)
	it.st.Buckets = []store.BucketCost{{Key: e.key, Plan: plan}}
	l.pend(now, it, []*entry{e})
}

// comparePauses compares a bucket's pause with what this process did. Its own pause is set again,
// if none was ended since; what it ended is ended again, but not what was set later.
func (l *Ledger) comparePauses(now Now, e *entry, plan *store.Plan, st *store.State, a *store.History) {
	if e.hist == nil {
		return
	}
	p, until := &e.hist.pauses, int64(0)
	if !st.Pause.Until.IsZero() {
		until = st.Pause.Until.UnixMicro()
	}
	p.expire(now.Store)
	if p.set.at <= a.Resumed {
		p.set = ownPause{}
	}
	b := []store.BucketCost{{Key: e.key, Plan: plan}}
	if p.end.at > a.Resumed {
		it := &item{kind: unpauseItem, recovers: true}
		it.st = store.Settlement{
			Op: store.OpUnpause, At: store.Internal.Instant(p.end.until), Reason: p.end.reason, Buckets: b,
			Recovery: &store.Recovery{End: p.end.at},
		}
		if until > now.Store && a.Paused < p.end.at { // what was set before, and is in force again
			it.st.At, until = st.Pause.Until, 0
		}
		l.pend(now, it, []*entry{e})
	}
	if p.set.until > until {
		e.setPause(p.set.until, p.set.reason, now.Store)
		it := &item{kind: pauseItem, recovers: true}
		it.st = store.Settlement{
			Op: store.OpPause, At: store.Internal.Instant(p.set.until), Reason: p.set.reason, Buckets: b,
			Recovery: &store.Recovery{End: p.set.at},
		}
		l.pend(now, it, []*entry{e})
	}
}
