package guard

import (
	"sync"

	"github.com/drawgate/drawgate/store"
)

// watchers receive, besides the store's own hints, the buckets that refused a take during an outage
// once the store is back.
type watchers struct {
	mu      sync.Mutex
	chans   map[chan<- store.Key]bool // guarded by mu
	refused map[store.Key]struct{}    // guarded by mu
}

// mostRefused bounds the number of buckets that are remembered for watchers.
const mostRefused = 1024

// Watch implements [store.Watcher].
func (s *Store) Watch(keys chan<- store.Key) (stop func()) {
	inner := func() {}
	if w, ok := s.store().(store.Watcher); ok {
		inner = w.Watch(keys)
	}
	h := &s.hints
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.chans == nil {
		h.chans = make(map[chan<- store.Key]bool)
	}
	h.chans[keys] = true
	return func() {
		inner()
		h.mu.Lock()
		defer h.mu.Unlock()
		if delete(h.chans, keys); len(h.chans) == 0 {
			h.refused = nil
		}
	}
}

// note remembers the buckets of a take that the guard refused, if anybody may be waiting for them.
func (w *watchers) note(buckets []store.BucketCost) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.chans) == 0 || len(w.refused) >= mostRefused {
		return
	}
	if w.refused == nil {
		w.refused = make(map[store.Key]struct{})
	}
	for i := range buckets {
		w.refused[buckets[i].Key] = struct{}{}
	}
}

// all sends the remembered buckets to the watchers. It never blocks: a slow watcher misses some.
func (w *watchers) all() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.chans {
		for k := range w.refused {
			select {
			case ch <- k:
			default:
			}
		}
	}
	w.refused = nil
}
