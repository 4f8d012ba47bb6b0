// Package sampler lets a few events through per interval, and counts the others.
package sampler

import (
	"sync/atomic"
	"time"
)

// Sampler is safe for concurrent use. The zero value is ready to use.
type Sampler struct {
	until atomic.Int64 // the end of the interval, in Unix nanoseconds
	n     atomic.Int64 // let through in it
	held  atomic.Int64 // not let through, and not reported yet
}

// Pass reports whether an event is let through: most of them are in an interval. held is how many
// were not since the last interval's first one.
func (s *Sampler) Pass(now time.Time, interval time.Duration, most int64) (held int64, ok bool) {
	at := now.UnixNano()
	if until := s.until.Load(); at >= until && s.until.CompareAndSwap(until, at+int64(interval)) {
		s.n.Store(1)
		return s.held.Swap(0), true
	}
	if s.n.Load() < most && s.n.Add(1) <= most {
		return 0, true
	}
	s.held.Add(1)
	return 0, false
}

// Reported takes back that the latest event was held: it was reported in another way.
func (s *Sampler) Reported() { s.held.Add(-1) }

// Rest returns how many were held, if the interval is over at an instant, in Unix nanoseconds, and
// nothing came since that would have reported it.
func (s *Sampler) Rest(at int64) int64 {
	if at < s.until.Load() {
		return 0
	}
	return s.held.Swap(0)
}
