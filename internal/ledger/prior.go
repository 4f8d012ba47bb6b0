package ledger

import (
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// A process does not know what earlier processes were admitted. The store may have said how much of
// a limit everybody uses, which is no less; otherwise the whole amount may be used, and the policy
// says how much of its share a process admits nevertheless. In all cases the use was before this
// process started, and ages from then on. models/cold.py shows how far that leads.

// usedByOthers returns how much of each limit of bucket k others have used, besides what this take
// was granted, according to the store. If nothing was left before, it is more than any limit.
func usedByOthers(d *store.Verdict, k int, priority int8, took *store.Amounts) func(f *FallbackPlan, i int) int64 {
	return func(f *FallbackPlan, i int) int64 {
		left := d.Bucket(k).Limits[i].Remaining
		if spent := d.Allowed && !d.Replayed && d.Delay() == 0 && took[i] > 0; left == 0 && !spent {
			return unlimited // it may be in debt, which a take that was granted shows that it is not
		}
		return max(0, store.Internal.Specs(f.Plan, false)[i].Effective[priority]-left-took[i])
	}
}

// priorUse is what earlier processes may have used of one limit of a bucket.
type priorUse struct {
	id      uint64 // of the limit
	used    int64  // units, at most
	start   bool   // nothing is known: the policy's start says how much is admitted nevertheless
	entered int64  // what the record has of it
}

// assumes reports whether the entry lacks what earlier processes may have used of a plan's limits.
func (e *entry) assumes(f *FallbackPlan) bool { return e.fresh || e.prior != f && !e.wasReset }

// assumePriorUse enters into an entry what earlier processes may have used: at most a share. used
// returns how much of limit i of the plan; if it is nil, that is unknown, and the policy says how a
// process starts. That is for use before this process started. If there was no room for an entry
// later, it may have been this process that used everything, so then everything counts.
//
// Takes of one bucket may have plans with different amounts. For a larger share more is entered,
// unless it is known that no more was used.
//
// Slots are not entered: an earlier process that held them has ended, and its slots with it. But
// what the store granted while there was no room for an entry may still be held, and count later.
// The entry stays fresh until it no longer can.
func (l *Ledger) assumePriorUse(now Now, p *part, used func(f *FallbackPlan, i int) int64) {
	from := l.entries.lost
	if from > now.Own && p.e.fresh {
		return
	}
	p.e.fresh, p.e.prior = false, p.plan
	at, f := now.at(max(from, 1)), p.plan
	ask := [1]record.Ask{{Rec: &p.e.rec, Specs: f.unbounded}}
	some, start, until := false, false, int64(0)
	for k, i := range f.at {
		spec := &f.share[k]
		if f.Mode[i] != store.FallbackShare || spec.Kind == record.Concurrency || !spec.Lasts(at, now.Store) {
			continue
		}
		u := p.e.priorUse(spec.ID)
		switch {
		case u.id == spec.ID: // it was assumed before, perhaps for a smaller share
		case used != nil && f.start == store.StartFull && f.instances > 1: // it may be the use of other instances
			*u = priorUse{id: spec.ID}
		case used != nil:
			*u = priorUse{id: spec.ID, used: used(f, i)}
		default:
			*u = priorUse{id: spec.ID, used: unlimited, start: from <= 0}
		}
		share := spec.Effective[store.MaxPriority]
		n := min(share, u.used)
		if u.start {
			n -= l.initial(f, share)
		}
		ask[0].N[k] = max(0, n-u.entered)
		u.entered += ask[0].N[k]
		some, start, until = some || ask[0].N[k] > 0, start || u.start, max(until, spec.LastsUntil(at))
	}
	switch {
	case used != nil && !start:
		p.e.known = max(p.e.known, until)
	case some:
		p.e.unknown = max(p.e.unknown, until)
	}
	if some {
		record.Charge(ask[:], at, at)
	}
}

// priorUse returns what was assumed of a limit; its id is 0 if nothing was.
func (e *entry) priorUse(id uint64) *priorUse {
	for i := range e.uses {
		if e.uses[i].id == id {
			return &e.uses[i]
		}
	}
	e.uses = append(e.uses, priorUse{})
	return &e.uses[len(e.uses)-1]
}

// initial returns how much of a share this process may admit although it does not know what was
// used before it started.
func (l *Ledger) initial(f *FallbackPlan, share int64) int64 {
	switch {
	case f.start == store.StartClosed:
		return 0
	case f.start == store.StartFull && (l.opts.Full == nil || l.opts.Full()):
		return share
	}
	return ColdPart(share, f.instances)
}

// startsUncounted reports whether a policy lets a process go on that is not counted. It may not
// while the use of its own is unknown, because there was no room for an entry.
func (l *Ledger) startsUncounted(f *FallbackPlan) bool {
	return f.start != store.StartClosed && l.entries.lost == 0
}

// learn enters into an entry what the store says about a bucket without having granted
// anything of it: in a refusal, or a peek.
func (l *Ledger) learn(now Now, p *part, d *store.Verdict, k int, priority int8) {
	if p.e != nil && p.plan.records() && p.e.assumes(p.plan) {
		l.assumePriorUse(now, p, usedByOthers(d, k, priority, &store.Amounts{}))
	}
}

// Peeked records what the store says about a bucket.
func (l *Ledger) Peeked(now Now, b *store.BucketCost, priority int8, st *store.State) {
	l.Pause(now, b.Key, st.Pause, st.At().UnixMicro())
	n, _ := l.plans.instances()
	p := part{plan: l.plans.of(b.Plan, n), key: b.Key}
	l.hearAll(now, []store.BucketCost{*b}, st.Histories)
	if !p.plan.records() {
		return
	}
	if p.e = l.entries.ensure(b.Key, now); p.e != nil {
		l.learn(now, &p, &st.Verdict, 0, priority)
		l.entries.release(p.e)
	}
}
