package cells

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/drawgate/drawgate/internal/record"
)

// cell is one bucket.
//
// A bucket whose policy is a single bucket limit, and which has no reservations, is one word that a
// compare-and-swap changes: the instant since the store was made, in 1/Drain µs, at which nothing
// is used any more (the virtual scheduling form of the leaky bucket, ITU-T I.371). Whatever needs
// more (a reservation, another version of the policy) turns it into a record under a lock, for as
// long as it lives.
//
// It is a cache line, so that it never lies on two, and nothing else that is busy lies beside it.
type cell struct {
	tat   atomic.Int64
	owner atomic.Pointer[owner] // changes before a word becomes isRecord
	name  nameCopy
}

// owner is whose a cell is and how it counts. All words that count alike share one; a record has its
// own.
type owner struct {
	space  *Space
	gcra   *gcra         // how the word counts, or did; nil if it was never a word
	locked *lockedRecord // nil for a word
}

// Words that are not instants.
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
	refusal atomic.Pointer[record.Refusal] // changed with mu held; nil, or how takes are refused until one is granted or something else is done
	gone    bool                           // guarded by mu: swept, look the bucket up again
	_       [15]byte                       // makes it a multiple of a cache line
}

// whole returns the record, in which all is counted, to be changed. lr.mu is held.
func (lr *lockedRecord) whole() *record.Record {
	lr.recall()
	lr.rec.FlushRun()
	return &lr.rec
}

// recall takes back that takes are refused. lr.mu is held.
func (lr *lockedRecord) recall() {
	if lr.refusal.Load() != nil {
		lr.refusal.Store(nil)
	}
}

// newFull returns an empty record.
func newLockedRecord(sp *Space, l *gcra) *lockedRecord {
	lr := &lockedRecord{owner: owner{space: sp, gcra: l}}
	lr.locked = lr
	return lr
}

// gcra is how a word counts.
type gcra struct {
	owner
	spec record.Spec
	most atomic.Int64 // the largest burst with which words were counted
}

// maxDrain keeps words of the next hundred years below 2^62.
const maxDrain = 1 << 62 / (100 * 366 * 24 * 3600 * 1_000_000)

// gcraOf returns how a word counts, or nil if a word cannot. Equal ways are the same pointer.
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

// open returns the bucket of that name, made if it does not exist: as a word if l is not nil.
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
		return s.now() * l.spec.Drain, &l.owner // unused from now on: who read the clock before a sweep took the cell before it away does not count from then
	})
	if made {
		s.opened()
	}
	return c, nil
}

// look returns a word that is about to be changed; h is not nil if others change it, too.
//
// Reading fetches a cache line that another processor has written, and changing it then asks that
// processor a second time. Adding nothing fetches it to be changed at once. Where takes are refused
// nothing changes, and processors read at the same time.
func (c *cell) look(h *hot) int64 {
	if h != nil && !h.refuses.Load() {
		return c.tat.Add(0)
	}
	return c.tat.Load()
}

// lock returns the bucket's record, locked, made if it does not exist. specs are how the caller
// counts.
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

// lock returns the cell's record, locked, or nil if the cell is dead. A word becomes a record.
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

// become makes a record, locked, of the word, or unlocks it and returns nil if the cell is dead.
// What is dead stays so, and does not seem to live for an instant: who moves the page's cells
// relies on it.
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

// record returns what a word says to a caller that counts by specs.
//
// A word does not know when it was used last, and so not how long the rate of a caller that counts
// slower may have been in force: at the longest since somebody came with that rate, or since the
// word was at its burst.
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
