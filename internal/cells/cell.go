package cells

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/drawgate/drawgate/internal/record"
)

// cell is one bucket.
//
// A bucket whose policy is a single bucket limit, and which has no reservations, is one word, its
// TAT, changed by compare-and-swap. The TAT (theoretical arrival time) is the instant at which
// nothing is used any more, in 1/Drain µs since the store was made (the virtual scheduling form of
// the leaky bucket, ITU-T I.371). Anything that needs more (a reservation, another version of the
// policy) turns it into a record under a lock, for the rest of its life.
//
// A cell fills exactly one cache line, so that it never spans two and never shares one with other
// busy data.
type cell struct {
	tat   atomic.Int64
	owner atomic.Pointer[owner] // changes before the TAT becomes isRecord
	name  nameCopy
}

// owner is what a cell belongs to and how it counts. All TATs that count alike share one owner; a
// record has its own.
type owner struct {
	space  *Space
	gcra   *gcra         // how the TAT counts, or did before it became a record; nil if it never was a TAT
	locked *lockedRecord // nil for a TAT
}

// TATs with a special meaning.
const (
	dead     = math.MinInt64     // swept, or another cell has taken its place: look the bucket up again
	isRecord = math.MinInt64 + 1 // see owner.locked
)

// lockedRecord is a bucket with a record.
//
// A key that is asked for far more than it may have, which is what limits are for, is refused
// without the lock: on all processors at once.
type lockedRecord struct {
	mu  sync.Mutex
	rec record.Record // guarded by mu; see whole. The words that most takes change lie in the cache line of mu
	owner
	// changed with mu held; nil, or how takes are refused until one is granted or something else is
	// done
	refusal atomic.Pointer[record.Refusal]
	gone    bool    // guarded by mu: swept, look the bucket up again
	_       [7]byte // makes it a multiple of a cache line
}

// whole returns the record with everything counted, ready to be changed. lr.mu is held.
func (lr *lockedRecord) whole() *record.Record {
	lr.recall()
	lr.rec.FlushRun()
	return &lr.rec
}

// recall ends the refusals without the lock. lr.mu is held.
func (lr *lockedRecord) recall() {
	if lr.refusal.Load() != nil {
		lr.refusal.Store(nil)
	}
}

// newLockedRecord returns an empty record.
func newLockedRecord(sp *Space, l *gcra) *lockedRecord {
	lr := &lockedRecord{owner: owner{space: sp, gcra: l}}
	lr.locked = lr
	return lr
}

// gcra is how a TAT counts.
type gcra struct {
	owner
	spec record.Spec
	most atomic.Int64 // the largest burst with which TATs were counted
}

// maxDrain keeps the TATs of the next hundred years below 2^62.
const maxDrain = 1 << 62 / (100 * 366 * 24 * 3600 * 1_000_000)

// gcraOf returns how a TAT counts specs, or nil if a TAT cannot. Equal ways of counting are the
// same pointer.
func (sp *Space) gcraOf(specs []record.Spec) *gcra {
	if len(specs) != 1 || specs[0].Kind != record.Bucket || specs[0].Drain > maxDrain {
		return nil
	}
	sp.mu.Lock()
	defer sp.mu.Unlock()
	for _, l := range sp.gcras {
		if l.spec.ID == specs[0].ID && l.spec.Rate == specs[0].Rate {
			l.most.Store(max(l.most.Load(), specs[0].Effective[record.Priorities-1]))
			return l
		}
	}
	l := &gcra{owner: owner{space: sp}, spec: specs[0]}
	l.gcra = l
	l.most.Store(specs[0].Effective[record.Priorities-1])
	sp.gcras = append(sp.gcras, l)
	return l
}

// open returns the bucket of that name, and makes it if it does not exist: as a TAT if l is not
// nil.
func (sp *Space) open(name string, l *gcra) (*cell, error) {
	s := sp.store
	if !s.room(s.most) {
		return nil, ErrFull
	}
	c, made := s.index.insert(sp, name, func() (int64, *owner) {
		sp.cells.Add(1)
		if l == nil {
			return isRecord, &newLockedRecord(sp, nil).owner
		}
		// It is unused from now on. A caller that read the clock before a sweep removed the
		// previous cell must not count from that earlier time.
		return s.now() * l.spec.Drain, &l.owner
	})
	if made {
		s.opened()
	}
	return c, nil
}

// look returns a TAT that is about to be changed; h is not nil if others change it, too.
//
// Reading fetches a cache line that another processor has written, and changing it then asks that
// processor a second time. Adding zero fetches it for writing at once. Where takes are refused
// nothing changes, and processors can read at the same time.
func (c *cell) look(h *hot) int64 {
	if h != nil && !h.refuses.Load() {
		return c.tat.Add(0)
	}
	return c.tat.Load()
}

// lock returns the bucket's record, locked, and makes it if it does not exist. The caller counts by
// specs.
func (sp *Space) lock(name string, specs []record.Spec) (*lockedRecord, error) {
	for {
		c := sp.store.index.find(sp, name)
		if c == nil {
			var err error
			if c, err = sp.open(name, nil); err != nil {
				return nil, err
			}
		}
		if lr := c.lock(specs); lr != nil {
			return lr, nil
		}
	}
}

// lock returns the cell's record, locked, or nil if the cell is dead. It turns a TAT into a record.
func (c *cell) lock(specs []record.Spec) *lockedRecord {
	h := c.owner.Load()
	if h.locked == nil {
		mine := newLockedRecord(h.space, h.gcra)
		mine.mu.Lock()
		if c.owner.CompareAndSwap(h, &mine.owner) {
			return c.become(mine, specs)
		}
		h = c.owner.Load()
	}
	lr := h.locked
	lr.mu.Lock()
	if lr.gone {
		lr.mu.Unlock()
		return nil
	}
	return lr
}

// become turns the TAT into a record, locked. If the cell is dead, it unlocks it and returns nil. A
// dead cell must stay dead, and not seem alive even for an instant: the code that moves the page's
// cells relies on it.
func (c *cell) become(lr *lockedRecord, specs []record.Spec) *lockedRecord {
	for {
		w := c.tat.Load()
		if w == dead {
			lr.gone = true
			lr.mu.Unlock()
			return nil
		}
		if c.tat.CompareAndSwap(w, isRecord) {
			lr.rec = lr.record(w, specs)
			return lr
		}
	}
}

// record returns the record that is equivalent to a TAT, for a caller that counts by specs.
//
// A TAT does not show when it was last used, and so not how long the rate of a caller with a slower
// rate has been in force: at the longest since a caller first came with that rate, or since the TAT
// was at its burst.
func (h *owner) record(tat int64, specs []record.Spec) record.Record {
	s, spec := h.space.store, &h.gcra.spec
	now := s.now()
	st := record.State{
		ID: spec.ID, Kind: spec.Kind, Window: spec.Window, At: s.base + now, Rate: spec.Rate, Scale: spec.Scale,
		Used: max(0, tat-now*spec.Drain),
	}
	for i := range specs {
		if specs[i].ID == spec.ID && specs[i].Rate < spec.Rate {
			since := min(now, max(h.space.since(&specs[i]), (tat-h.gcra.most.Load()*spec.Scale)/spec.Drain))
			st.Used, st.At = max(0, tat-since*spec.Drain), s.base+since
			st.Leak(&specs[i], s.base+now)
		}
	}
	if st.Used == 0 {
		return record.Record{}
	}
	return record.Record{Last: s.base + now, Limits: []record.State{st}}
}
