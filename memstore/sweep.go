package memstore

import (
	"sync"
	"sync/atomic"

	"github.com/drawgate/drawgate"
)

// grace is how long in µs a bucket of which nothing is used is kept, because it is likely to be used again; not when the store is full.
const grace = 10_000_000

// firstSweep is the number of buckets from which on the store looks for ones of which nothing is used.
const firstSweep = 4096

// sweeper gives up buckets of which nothing is used: an absent bucket means the same. It runs when the number of buckets has doubled since the
// last time, so that the memory is at most twice what is in use, at a constant cost per new bucket.
type sweeper struct {
	count   atomic.Int64 // buckets in the maps
	sweepAt atomic.Int64
	busy    atomic.Bool
	running sync.WaitGroup
}

// room reports whether another bucket may be opened. When the store is full it sweeps first, at most one caller at a time.
func (s *Store) room(most int64) bool {
	if s.count.Load() < most {
		return true
	}
	if s.busy.CompareAndSwap(false, true) {
		s.sweep(0)
	}
	return s.count.Load() < most
}

// opened counts a new bucket, and starts a sweep when there are many.
func (sw *sweeper) opened(s *Store) {
	if sw.count.Add(1) < sw.sweepAt.Load() || !sw.busy.CompareAndSwap(false, true) {
		return
	}
	sw.running.Add(1)
	go func() {
		defer sw.running.Done()
		s.sweep(grace)
	}()
}

// sweep gives up buckets that have been idle for so many µs. The caller has set busy.
func (s *Store) sweep(idle int64) {
	defer s.busy.Store(false)
	for _, sp := range s.spaces.All() {
		for name, c := range sp.cells.All() {
			if sp.kill(c, s.now()-idle) {
				sp.remove(name, c)
			}
		}
	}
	s.sweepAt.Store(max(firstSweep, 2*s.count.Load()))
}

// kill marks a bucket dead of which nothing was used at then: whoever holds it looks it up again.
func (sp *space) kill(c *cell, then int64) bool {
	s := sp.store
	w := c.word.Load()
	if w != isFull {
		return w == dead || w <= then*c.lean.spec.Drain && c.word.CompareAndSwap(w, dead)
	}
	fl := c.full.Load()
	if fl == nil || !fl.mu.TryLock() { // in use this instant
		return false
	}
	defer fl.mu.Unlock()
	if fl.rec.Until() > s.base+then {
		return false
	}
	fl.gone = true
	c.word.Store(dead)
	return true
}

// idle reports whether nothing of a bucket is used.
func (sp *space) idle(c *cell) bool {
	s := sp.store
	if w := c.word.Load(); w != isFull {
		return w == dead || w <= s.now()*c.lean.spec.Drain
	}
	fl := c.lock(s)
	if fl == nil {
		return true
	}
	defer fl.mu.Unlock()
	return fl.rec.Until() <= s.base+s.now()
}

// watchers are told when units of a bucket may have come free early.
type watchers struct {
	mu    sync.Mutex
	some  atomic.Bool
	chans map[chan<- drawgate.Key]bool // guarded by mu
}

// Watch implements [drawgate.Watcher].
func (w *watchers) Watch(keys chan<- drawgate.Key) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.chans == nil {
		w.chans = make(map[chan<- drawgate.Key]bool)
	}
	w.chans[keys] = true
	w.some.Store(true)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.chans, keys)
		w.some.Store(len(w.chans) > 0)
	}
}

// hint never blocks: a watcher that is behind misses it.
func (w *watchers) hint(buckets []drawgate.BucketCost) {
	if !w.some.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.chans {
		for i := range buckets {
			select {
			case ch <- buckets[i].Key:
			default:
			}
		}
	}
}
