package cells

import (
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/drawgate/drawgate/internal/record"
)

// grace is how long in µs a bucket of which nothing is used is kept, because it is likely to be
// used again; not when the store is full.
const grace = 10_000_000

// firstSweep is the number of buckets from which on the store looks for ones of which nothing is
// used.
const firstSweep = 4096

// How often a store looks for buckets of which nothing is used when there are hardly any new ones,
// so that memory comes back after a flood: more seldom as long as it finds few. A sweep of very
// many takes a while: then the next one is so many times as long away, which bounds what sweeps
// take of a processor.
const (
	sweepSoon  = 30 * time.Second
	sweepLate  = 8 * time.Minute
	sweepShare = 50
	fewSwept   = 8   // less than one in so many
	timedSweep = 256 // the number of buckets from which on it does so
)

// sweeper gives up buckets of which nothing is used: an absent bucket means the same. It runs when
// the number of buckets has doubled since the last time, so that the memory is at most twice what
// is in use, at a constant cost per new bucket; and from time to time, see sweepSoon.
type sweeper struct {
	count   atomic.Int64 // buckets in the maps
	sweepAt atomic.Int64
	busy    atomic.Bool
	again   atomic.Int64 // when a full store may sweep again, in µs since it was made
	timed   atomic.Bool  // a timer will sweep

	starting sync.Mutex     // held to start a sweep, and to close
	running  sync.WaitGroup // grows under starting, and no more once the store is closed
}

// room reports whether another bucket may be opened. When the store is full it sweeps first, at
// most one caller at a time, and for at most a tenth of the time: otherwise a flood of new names
// would have each of them look at all buckets.
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

// sweepAfter has a timer sweep. It does not keep a store that nobody has any more.
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

// sweepTimed is what the timer does after d: it sweeps, and again later if there are many buckets
// left.
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
	if s.busy.CompareAndSwap(false, true) { // otherwise one is under way
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

// sweep gives up buckets that have been idle for so many µs. The caller has set busy.
func (s *Store) sweep(idle int64) {
	defer s.busy.Store(false)
	s.index.sweep(func(c *cell) bool { return c.kill(s, s.now()-idle) })
	s.sweepAt.Store(max(firstSweep, 2*s.count.Load()))
}

// kill marks a bucket dead of which nothing was used at then: whoever holds it looks it up again.
// Its page is locked.
func (c *cell) kill(s *Store, then int64) bool {
	w := c.tat.Load()
	h := c.owner.Load() // after the word: what is full has its record
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

// end gives a record up of which nothing was used at then, unless it is in use this instant.
func (lr *lockedRecord) end(then int64) bool {
	if !lr.mu.TryLock() {
		return false
	}
	defer lr.mu.Unlock()
	if lr.gone = lr.whole().Until() <= then; lr.gone {
		lr.rec = record.Record{} // the cell keeps its record until its page is replaced, and whoever found it last longer
	}
	return lr.gone
}

// idle reports whether nothing of a bucket is used.
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
