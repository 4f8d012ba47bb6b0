package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/drawgate/drawgate/internal/record"
)

// Bounds of leases. A unit that is leased counts for up to one lease life longer than it would
// otherwise, so a life is at most a hundredth of the shortest window.
const (
	maxLeaseLife = 500 * time.Millisecond
	minLeaseLife = 10 * time.Millisecond // shorter ones would end on their way from the store
	livesPerSpan = 100                   // least, in a window
	unitsPerLife = 50                    // least, by the limit's amount: fewer are not worth a lease
)

// LeaseLife returns how long a lease of this policy lasts for takes of a priority, from 10ms to
// 500ms: a hundredth of the shortest window, of a bucket limit the time in which its burst comes
// back. It is 0 where takes are not leased: if the policy is not, or if one of its limits would
// have fewer than 50 units per life.
func (p *Plan) LeaseLife(priority int) time.Duration { return p.lives[priority] }

// leasable reports why a policy with this limit cannot be leased.
func (l *Limit) leasable() error {
	switch {
	case l.Kind == Concurrency:
		return errors.New("a leased policy cannot limit concurrency, because a slot that is leased would stand empty: " +
			"put this limit into a policy of its own, or leave leased out")
	case l.Every == Total:
		return errors.New("a leased policy cannot have a total: put this limit into a policy of its own, or leave leased out")
	case l.Kind != Calendar && l.Window < livesPerSpan*minLeaseLife:
		return fmt.Errorf("a leased policy needs windows of at least %v, because they must be 100 times as long as "+
			"a lease, and this one is %v: choose a longer window, or leave leased out", livesPerSpan*minLeaseLife,
			l.Window)
	}
	return nil
}

// span returns the time in which a limit's units come back, for takes of a priority: of a calendar
// limit how long one of its windows lasted.
func (l *Limit) span(s *record.Spec, priority int) time.Duration {
	switch l.Kind {
	case Bucket:
		return time.Duration(float64(s.Effective[priority]) / float64(s.Rate) * float64(l.Window))
	case Rolling:
		return l.Window
	}
	start, end := s.Rule.Window(0)
	return duration(end - start)
}

// leaseLives returns how long leases last per priority.
func leaseLives(specs []record.Spec, limits []Limit) (lives [record.Priorities]time.Duration) {
	for priority := range lives {
		life := maxLeaseLife
		for i := range limits {
			life = min(life, limits[i].span(&specs[i], priority)/livesPerSpan)
		}
		life = life.Truncate(time.Microsecond)
		enough := life >= minLeaseLife
		for i := range limits {
			span := limits[i].span(&specs[i], priority)
			enough = enough && float64(specs[i].Effective[priority])*float64(life) >= unitsPerLife*float64(span)
		}
		if enough {
			lives[priority] = life
		}
	}
	return lives
}
