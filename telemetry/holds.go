package telemetry

import (
	"hash/maphash"
	"sync"
	"time"
)

// maxHolds bounds how many reservations are followed. Those beyond it are not counted as open.
const maxHolds = 100_000

// sweepEvery bounds how often the holds are searched for those that are over.
const sweepEvery = time.Second

// holds knows when the open holds of this process end. A hold ends by itself, without an event, so
// open counts those that have not ended.
type holds struct {
	seed maphash.Seed

	mu    sync.Mutex
	ends  map[uint64]int64 // guarded by mu: Unix nanoseconds, by the hash of the reservation's id
	swept int64            // guarded by mu: when ends was last swept because it was full, in Unix nanoseconds
}

func newHolds() *holds { return &holds{seed: maphash.MakeSeed(), ends: map[uint64]int64{}} }

func (h *holds) hash(id string) uint64 { return maphash.String(h.seed, id) }

// start records a hold that begins, or is renewed, now and lasts d.
func (h *holds) start(id string, d time.Duration) {
	k, now := h.hash(id), time.Now().UnixNano()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ends) >= maxHolds && now-h.swept >= int64(sweepEvery) {
		h.swept = now
		h.sweep(now)
	}
	if old, ok := h.ends[k]; ok || len(h.ends) < maxHolds {
		h.ends[k] = max(old, now+int64(d))
	}
}

// stop records that a hold has ended.
func (h *holds) stop(id string) {
	k := h.hash(id)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.ends, k)
}

// open returns how many have not ended.
func (h *holds) open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sweep(time.Now().UnixNano())
	return len(h.ends)
}

// sweep forgets the holds that are over. h.mu is held.
func (h *holds) sweep(now int64) {
	for k, end := range h.ends {
		if end <= now {
			delete(h.ends, k)
		}
	}
}
