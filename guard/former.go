package guard

import (
	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// A process does not know what a former one was admitted in its place. The store may have said how much of a limit is used by all, which is no less;
// otherwise it may have been everything. Either way it was before this process started, and ages from then on.

// leftAt returns how much of each limit of bucket k was used by others than this take, by what the store said; more than anything if nothing was left.
func leftAt(d *drawgate.Decision, k int, priority int8, took *drawgate.Amounts) func(t *terms, i int) int64 {
	return func(t *terms, i int) int64 {
		j := 0
		for r := range d.Limits() {
			if r.Bucket != k {
				continue
			}
			if j == i {
				if r.Remaining == 0 {
					return unbounded
				}
				return max(0, t.plan.Specs(false)[i].Effective[priority]-r.Remaining-took[i])
			}
			j++
		}
		return unbounded
	}
}

// all says that everything may have been used.
func all(*terms, int) int64 { return unbounded }

// former enters on a new page, which is locked, what former processes may have used: at most a share. used says how much of limit i of the plan.
//
// Slots are not entered: whoever held them in this process's place has ended with it. But what the store gave when there was no room for a page may be held
// still, and count later: until it cannot any more the page stays fresh.
func (s *Store) former(p *page, pt *part, used func(t *terms, i int) int64) {
	cold := s.book.parts[pt.shard].lost
	if cold > s.clock.now().own {
		return
	}
	p.fresh = false
	if !s.opts.StartFull {
		cold = max(cold, 1)
	}
	if cold == 0 {
		return
	}
	at, t := s.clock.at(cold), pt.terms
	ask := [1]record.Ask{{Rec: &p.rec, Specs: t.wide}}
	some := false
	for k, i := range t.at {
		spec := &t.part[k]
		if t.mode[i] != drawgate.FallbackShare || spec.Kind == record.Concurrency || !spec.Lasts(at, s.clock.now().at) {
			continue
		}
		ask[0].N[k] = min(spec.Effective[drawgate.MaxPriority], used(t, i))
		some = some || ask[0].N[k] > 0
	}
	if some {
		record.Charge(ask[:], at, at)
	}
}
