package cells

import (
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/drawgate/drawgate/internal/record"
)

// grace is how long in µs an unused bucket is kept, because it is likely to be used again. It does
// not apply to a store that is full.
const grace = 10_000_000

// firstSweep is the number of buckets from which the store looks for unused ones.
const firstSweep = 4096

// The timing of sweeps when there are hardly any new buckets, so that memory is released after a
// flood. Sweeps become rarer as long as they find little. Sweeping very many buckets takes a while:
// the pause before the next sweep is a multiple of that time, which bounds the processor time of
// sweeps.
const (
	sweepSoon  = 30 * time.Second
	sweepLate  = 8 * time.Minute
	sweepShare = 50
	fewSwept   = 8   // less than one in this many
	timedSweep = 256 // the number of buckets from which timed sweeps run
)

// sweeper removes unused buckets, because a missing bucket means the same. It runs when the number
// of buckets has doubled since the last time, so memory is at most twice what is in use, at a
// constant cost per new bucket; and from time to time, see sweepSoon.
type sweeper struct {
	count   atomic.Int64 // buckets in the index
	sweepAt atomic.Int64
	busy    atomic.Bool
	again   atomic.Int64 // when a full store may sweep again, in µs since it was made
	timed   atomic.Bool  // a timer will sweep

	starting sync.Mutex     // held to start a sweep, and to close
	running  sync.WaitGroup // incremented under starting, and no more once the store is closed
}

// room reports whether another bucket may be opened. If the store is full it sweeps first, with at
// most one caller at a time, and for at most a tenth of the time. Otherwise, in a flood of new
// names, each would look at all buckets.
func (s *Store) room(most int64) bool {
	if s.count.Load() < most {
		return true
	}
	if start := s.now(); start >= s.again.Load() && s.busy.CompareAndSwap(false, true) {
		s.sweep(0)
		end := s.now()
		s.again.Store(end + 9*(end-start))
	}
	return s.count.Load() < most
}

// opened counts a new bucket, and starts a sweep when there are many.
func (s *Store) opened() {
	n := s.count.Add(1)
	if n >= timedSweep && !s.timed.Load() {
		s.sweepAfter(sweepSoon)
	}
	if n < s.sweepAt.Load() || !s.busy.CompareAndSwap(false, true) {
		return
	}
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.closed.Load() {
		s.busy.Store(false)
		return
	}
	s.running.Go(func() { s.sweep(grace) })
}

// sweepAfter lets a timer sweep. The timer does not keep an unreferenced store in memory.
func (s *Store) sweepAfter(d time.Duration) {
	if !s.timed.CompareAndSwap(false, true) {
		return
	}
	w := weak.Make(s)
	time.AfterFunc(d, func() {
		if s := w.Value(); s != nil {
			s.sweepTimed(d)
		}
	})
}

// sweepTimed runs when the timer fires after d: it sweeps, and schedules another sweep if many
// buckets are left.
func (s *Store) sweepTimed(d time.Duration) {
	s.starting.Lock()
	if s.closed.Load() {
		s.starting.Unlock()
		return
	}
	s.running.Add(1)
	s.starting.Unlock()
	defer s.running.Done()
	start, before := s.now(), s.count.Load()
	if s.busy.CompareAndSwap(false, true) { // otherwise a sweep is running
		s.sweep(grace)
	}
	took := time.Duration(s.now()-start) * time.Microsecond
	s.timed.Store(false)
	left := s.count.Load()
	if left < timedSweep {
		return
	}
	next := sweepSoon
	if (before-left)*fewSwept < before {
		next = min(2*d, sweepLate)
	}
	s.sweepAfter(max(next, sweepShare*took))
}

// sweep removes buckets that have been idle for so many µs. The caller has set busy.
func (s *Store) sweep(idle int64) {
	defer s.busy.Store(false)
	s.index.sweep(func(c *cell) bool { return c.kill(s, s.now()-idle) })
	s.sweepAt.Store(max(firstSweep, 2*s.count.Load()))
}

// kill marks a bucket dead that was unused at then. Callers that hold it look it up again. Its page
// is locked.
func (c *cell) kill(s *Store, then int64) bool {
	w := c.tat.Load()
	h := c.owner.Load() // read after the TAT: a cell that is isRecord has its record
	switch {
	case w == dead:
		return false
	case w != isRecord:
		if w > then*h.gcra.spec.Drain || !c.tat.CompareAndSwap(w, dead) {
			return false
		}
	case !h.locked.end(s.base + then):
		return false
	default:
		c.tat.Store(dead)
	}
	s.count.Add(-1)
	if h.space.cells.Add(-1) == 0 {
		h.space.drop()
	}
	return true
}

// end empties a record that was unused at then, unless it is in use right now.
func (lr *lockedRecord) end(then int64) bool {
	if !lr.mu.TryLock() {
		return false
	}
	defer lr.mu.Unlock()
	if lr.gone = lr.whole().Until() <= then; lr.gone {
		// the cell keeps its record until its page is replaced, and callers that found it even
		// longer
		lr.rec = record.Record{}
	}
	return lr.gone
}

// idle reports whether a bucket is unused.
func (s *Store) idle(c *cell) bool {
	for sp := c.owner.Load().space; c != nil; c = s.index.find(sp, c.name.String()) {
		w := c.tat.Load()
		if w == dead {
			continue
		}
		if w != isRecord {
			return w <= s.now()*c.owner.Load().gcra.spec.Drain
		}
		if lr := c.lock(nil); lr != nil {
			defer lr.mu.Unlock()
			return lr.whole().Until() <= s.base+s.now()
		}
	}
	return true
}
