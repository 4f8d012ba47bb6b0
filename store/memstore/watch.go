package memstore

import (
	"sync"
	"sync/atomic"

	"github.com/drawgate/drawgate/store"
)

// watchers receive buckets whose units may have come free early.
type watchers struct {
	mu    sync.Mutex
	some  atomic.Bool
	chans map[chan<- store.Key]bool // guarded by mu
}

// Watch implements [store.Watcher].
func (w *watchers) Watch(keys chan<- store.Key) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.chans == nil {
		w.chans = make(map[chan<- store.Key]bool)
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

// hint never blocks: a slow watcher misses it.
func (w *watchers) hint(buckets []store.BucketCost) {
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
