package ledger

import (
	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// A process does not know what processes before it were admitted in its place. The store may have
// said how much of a limit is used by all, which is no less; otherwise it may have been everything.
// Either way that was before this process started, and ages from then on.

// usedByOthers returns how much of each limit of bucket k was used by others than this take, by
// what the store said; more than anything if nothing was left.
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
				return max(0, f.Plan.Specs(false)[i].Effective[priority]-r.Remaining-took[i])
			}
			j++
		}
		return unlimited
	}
}

// everything says that everything may have been used.
func everything(*FallbackPlan, int) int64 { return unlimited }

// assumePriorUse enters on a fresh entry what earlier processes may have used: at most a share.
// used says how much of limit i of the plan.
//
// Slots are not entered: whoever held them in this process's place has ended with it. But what the
// store gave while there was no room for an entry may be held still, and count later: until it
// cannot any more the entry stays fresh.
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
