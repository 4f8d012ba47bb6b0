package ledger

import (
	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/answer"
	"github.com/drawgate/drawgate/internal/record"
)

// A process does not know what earlier processes were admitted. The store may have said how much of
// a limit everybody uses, which is no less; otherwise the whole amount may be used. In both cases
// the use was before this process started, and ages from then on.

// usedByOthers returns how much of each limit of bucket k others have used, besides this take,
// according to the store. If nothing was left, it is more than any limit.
func usedByOthers(d *drawgate.Decision, k int, priority int8, took *drawgate.Amounts) func(f *FallbackPlan, i int) int64 {
	return func(f *FallbackPlan, i int) int64 {
		j := 0
		for r := range d.Limits() {
			if r.Bucket != k {
				continue
			}
			if j == i {
				if r.Remaining == 0 {
					return unlimited
				}
				return max(0, answer.Specs(f.Plan, false)[i].Effective[priority]-r.Remaining-took[i])
			}
			j++
		}
		return unlimited
	}
}

// everything assumes that the whole amount was used.
func everything(*FallbackPlan, int) int64 { return unlimited }

// assumePriorUse enters into a fresh entry what earlier processes may have used: at most a share.
// used returns how much of limit i of the plan.
//
// Slots are not entered: an earlier process that held them has ended, and its slots with it. But
// what the store granted while there was no room for an entry may still be held, and count later.
// The entry stays fresh until it no longer can.
func (l *Ledger) assumePriorUse(now Now, p *part, used func(f *FallbackPlan, i int) int64) {
	from := l.entries.lost
	if from > now.Own {
		return
	}
	p.e.fresh = false
	if !l.opts.StartFull {
		from = max(from, 1)
	}
	if from == 0 {
		return
	}
	at, f := now.at(from), p.plan
	ask := [1]record.Ask{{Rec: &p.e.rec, Specs: f.unbounded}}
	some := false
	for k, i := range f.at {
		spec := &f.share[k]
		if f.Mode[i] != drawgate.FallbackShare || spec.Kind == record.Concurrency || !spec.Lasts(at, now.Store) {
			continue
		}
		ask[0].N[k] = min(spec.Effective[drawgate.MaxPriority], used(f, i))
		some = some || ask[0].N[k] > 0
	}
	if some {
		record.Charge(ask[:], at, at)
	}
}
