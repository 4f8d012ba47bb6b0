package telemetry

import "sync/atomic"

// sampler lets a few events through per interval, and counts the others. It is safe for concurrent
// use.
type sampler struct {
	until atomic.Int64 // the end of the interval, in Unix nanoseconds
	n     atomic.Int64 // let through in it
	held  atomic.Int64 // not let through, and not reported yet
}

// pass reports whether an event at now is let through, and if so how many were held back before it.
func (s *sampler) pass(now, interval, most int64) (held int64, ok bool) {
	if until := s.until.Load(); now >= until && s.until.CompareAndSwap(until, now+interval) {
		s.n.Store(1)
		return s.held.Swap(0), true
	}
	if s.n.Load() < most && s.n.Add(1) <= most {
		return 0, true
	}
	s.held.Add(1)
	return 0, false
}

// rest returns how many were held back, if the interval is over and no later event has reported
// them.
func (s *sampler) rest(now int64) int64 {
	if now < s.until.Load() {
		return 0
	}
	return s.held.Swap(0)
}
