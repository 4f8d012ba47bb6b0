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
	word atomic.Int64
	home atomic.Pointer[home] // changes before a word becomes isFull
	name nameCopy
}

// home is whose a cell is and how it counts. All words that count alike share one; a record has its
// own.
type home struct {
	space *Space
	lean  *lean // how the word counts, or did; nil if it was never a word
	full  *full // nil for a word
}

// Words that are not instants.
const (
	dead   = math.MinInt64     // swept, or another cell has taken its place: look the bucket up again
	isFull = math.MinInt64 + 1 // see home.full
)

// full is a bucket with a record.
//
// A key that is asked for far more than it may have, which is what limits are for, is refused
// without the lock: on all processors at once.
type full struct {
	mu  sync.Mutex
	rec record.Record // guarded by mu; see whole. The words that most takes change lie in the cache line of mu
	home
	refusal atomic.Pointer[record.Refusal] // changed with mu held; nil, or how takes are refused until one is granted or something else is done
	gone    bool                           // guarded by mu: swept, look the bucket up again
	_       [15]byte                       // makes it a multiple of a cache line
}

// whole returns the record, in which all is counted, to be changed. fl.mu is held.
func (fl *full) whole() *record.Record {
	fl.recall()
	fl.rec.EndRun()
	return &fl.rec
}

// recall takes back that takes are refused. fl.mu is held.
func (fl *full) recall() {
	if fl.refusal.Load() != nil {
		fl.refusal.Store(nil)
	}
}

// newFull returns an empty record.
func newFull(sp *Space, l *lean) *full {
	fl := &full{home: home{space: sp, lean: l}}
	fl.full = fl
	return fl
}

// lean is how a word counts.
type lean struct {
	home
	spec record.Spec
	most atomic.Int64 // the largest burst with which words were counted
}

// maxDrain keeps words of the next hundred years below 2^62.
const maxDrain = 1 << 62 / (100 * 366 * 24 * 3600 * 1_000_000)

// leanOf returns how a word counts, or nil if a word cannot. Equal ways are the same pointer.
func (sp *Space) leanOf(specs []record.Spec) *lean {
	if len(specs) != 1 || specs[0].Kind != record.Bucket || specs[0].Drain > maxDrain {
		return nil
	}
	sp.mu.Lock()
	defer sp.mu.Unlock()
	for _, l := range sp.leans {
		if l.spec.ID == specs[0].ID && l.spec.Rate == specs[0].Rate {
			l.most.Store(max(l.most.Load(), specs[0].Effective[record.Priorities-1]))
			return l
		}
	}
	l := &lean{home: home{space: sp}, spec: specs[0]}
	l.lean = l
	l.most.Store(specs[0].Effective[record.Priorities-1])
	sp.leans = append(sp.leans, l)
	return l
}

// open returns the bucket of that name, made if it does not exist: as a word if l is not nil.
func (sp *Space) open(name string, l *lean) (*cell, error) {
	s := sp.store
	if !s.room(s.most) {
		return nil, ErrFull
	}
	c, made := s.index.insert(sp, name, func() (int64, *home) {
		sp.cells.Add(1)
		if l == nil {
			return isFull, &newFull(sp, nil).home
		}
		return s.now() * l.spec.Drain, &l.home // unused from now on: who read the clock before a sweep took the cell before it away does not count from then
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
		return c.word.Add(0)
	}
	return c.word.Load()
}

// lock returns the bucket's record, locked, made if it does not exist. specs are how the caller
// counts.
func (sp *Space) lock(name string, specs []record.Spec) (*full, error) {
	for {
		c := sp.store.index.find(sp, name)
		if c == nil {
			var err error
			if c, err = sp.open(name, nil); err != nil {
				return nil, err
			}
		}
		if fl := c.lock(specs); fl != nil {
			return fl, nil
		}
	}
}

// lock returns the cell's record, locked, or nil if the cell is dead. A word becomes a record.
func (c *cell) lock(specs []record.Spec) *full {
	h := c.home.Load()
	if h.full == nil {
		mine := newFull(h.space, h.lean)
		mine.mu.Lock()
		if c.home.CompareAndSwap(h, &mine.home) {
			return c.become(mine, specs)
		}
		h = c.home.Load()
	}
	fl := h.full
	fl.mu.Lock()
	if fl.gone {
		fl.mu.Unlock()
		return nil
	}
	return fl
}

// become makes a record, locked, of the word, or unlocks it and returns nil if the cell is dead.
// What is dead stays so, and does not seem to live for an instant: who moves the page's cells
// relies on it.
func (c *cell) become(fl *full, specs []record.Spec) *full {
	for {
		w := c.word.Load()
		if w == dead {
			fl.gone = true
			fl.mu.Unlock()
			return nil
		}
		if c.word.CompareAndSwap(w, isFull) {
			fl.rec = fl.record(w, specs)
			return fl
		}
	}
}

// record returns what a word says to a caller that counts by specs.
//
// A word does not know when it was used last, and so not how long the rate of a caller that counts
// slower may have been in force: at the longest since somebody came with that rate, or since the
// word was at its burst.
func (h *home) record(word int64, specs []record.Spec) record.Record {
	s, spec := h.space.store, &h.lean.spec
	now := s.now()
	st := record.State{
		ID: spec.ID, Kind: spec.Kind, Window: spec.Window, At: s.base + now, Rate: spec.Rate, Scale: spec.Scale,
		Used: max(0, word-now*spec.Drain),
	}
	for i := range specs {
		if specs[i].ID == spec.ID && specs[i].Rate < spec.Rate {
			since := min(now, max(h.space.since(&specs[i]), (word-h.lean.most.Load()*spec.Scale)/spec.Drain))
			st.Used, st.At = max(0, word-since*spec.Drain), s.base+since
			st.Leak(&specs[i], s.base+now)
		}
	}
	if st.Used == 0 {
		return record.Record{}
	}
	return record.Record{Last: s.base + now, Limits: []record.State{st}}
}
