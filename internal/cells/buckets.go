package cells

import (
	"sync/atomic"

	"github.com/drawgate/drawgate/internal/record"
)

// Buckets is the buckets of a space as one policy counts them.
type Buckets struct {
	space *Space
	specs []record.Spec
	spec  *record.Spec // the first
	lean  *lean        // nil if a word cannot count them

	// last is the cell that two samples in a row met, or nil. Many a policy has one key, or one that is asked for more than all others together: it need
	// not be looked up, which is a quarter of a decision.
	last atomic.Pointer[cell]
	met  atomic.Pointer[cell] // by the latest sample
}

// look reads the clock, and returns the bucket of that name, or nil.
//
// Reading the clock waits for every memory access before it, while those behind it overlap with whatever the caller does next. So nothing comes before it
// but the name's bytes: neither the index and the cell, which among many buckets are in no cache, nor the cell of a hot key, which others write.
func (b *Buckets) look(name string) (c *cell, now int64) {
	s := b.space.store
	if c = b.last.Load(); c != nil {
		if now = s.now(); c.name.is(name) {
			return c, now
		}
		return s.index.find(b.space, name), now
	}
	h := s.index.hash(b.space, name)
	now = s.now()
	return s.index.findHashed(b.space, name, h), now
}

// behind is how much earlier, in µs, one caller may have read the clock than another who changed the word in between.
const behind = 1000

// seldom is how often a sample is taken: at every so many µs, because writing what others read takes time of theirs.
const seldom = 64

// asked notes that c was asked for at now.
func (b *Buckets) asked(c *cell, now int64) {
	if now&(seldom-1) == 0 {
		b.sample(c)
	}
}

func (b *Buckets) sample(c *cell) {
	switch c {
	case b.last.Load():
	case b.met.Load():
		b.last.Store(c)
	default:
		b.met.Store(c)
		b.last.Store(nil)
	}
}

// Bind returns the buckets as the limits specs count them.
func (sp *Space) Bind(specs []record.Spec) *Buckets {
	sp.note(specs)
	return &Buckets{space: sp, specs: specs, spec: &specs[0], lean: sp.leanOf(specs)}
}

// Lean decides a plain take of n units where the only limit is a bucket and nothing else was ever asked of it. Otherwise ok is false, nothing was
// done, and Take decides.
//
// The answer is raw, in parts (see [record.Spec.Scale]): what is left (it may be negative) and used, and if refused how much is too much, or -1 if the
// take can never fit. It is not a struct, because these travel in registers.
func (b *Buckets) Lean(name string, n int64, priority int8) (left, used, over, at int64, ok bool) {
	s := b.space.store
	if b.lean == nil || s.closed.Load() {
		return 0, 0, 0, 0, false
	}
	// What does not need the cell is done before: a processor looks some 250 instructions ahead, and what the caller does next should be among them while
	// the cell is on its way from memory.
	spec, whose := b.spec, &b.lean.home
	never := n > spec.Effective[priority]
	most, parts := spec.Effective[priority]*spec.Scale, n*spec.Scale
	for {
		c, now := b.look(name)
		if c == nil {
			var err error
			if c, err = b.space.open(name, b.lean); err != nil {
				return 0, 0, 0, 0, false
			}
			now = s.now() // making room may have taken long
		}
		for again := true; ; {
			w := c.word.Load()
			if c.home.Load() != whose { // a record, whose home changed before its word, or who counts otherwise
				return 0, 0, 0, 0, false
			}
			if w == dead {
				s.remove(c)
				b.last.CompareAndSwap(c, nil)
				break
			}
			at = s.base + now
			zero := now * spec.Drain
			used = max(0, w-zero)
			left = most - used
			switch over = parts - left; {
			case never:
				return left, used, -1, at, true
			case n == 0:
				return left, used, 0, at, true
			case over <= 0:
				if used += parts; c.word.CompareAndSwap(w, zero+used) {
					b.asked(c, now)
					return left - parts, used, 0, at, true
				}
			case again && over <= behind*spec.Drain: // it may only seem so, by a clock that was read before who wrote the word read his
				now, again = s.now(), false
			default:
				b.asked(c, now)
				return left, used, over, at, true
			}
		}
	}
}

// Take decides a plain take of one bucket, and says of each limit what remains in out, which has room for all of them. at is the instant of the decision;
// after and soonest are those of a [record.Verdict].
func (b *Buckets) Take(name string, n *record.Amounts, priority int8, out []record.Result) (allowed bool, at, after, soonest int64, err error) {
	s := b.space.store
	if s.closed.Load() {
		return false, 0, 0, 0, ErrClosed
	}
	for {
		c, now := b.look(name) // not under the lock, for which others wait
		if c == nil || c.word.Load() == dead {
			b.last.CompareAndSwap(c, nil)
			if c, err = b.space.open(name, b.lean); err != nil {
				return false, 0, 0, 0, err
			}
		}
		fl := c.home.Load().full
		if fl == nil {
			fl = c.lock(b.specs)
		} else {
			fl.mu.Lock()
		}
		if fl == nil {
			continue
		}
		if fl.gone {
			fl.mu.Unlock()
			continue
		}
		b.asked(c, now)
		at, after, ok := record.One(&fl.rec, b.specs, n, priority, s.base+now, out)
		if !ok {
			v := b.decide(&fl.rec, n, priority, out)
			fl.mu.Unlock()
			return v.Allowed, v.Now, v.RetryAfter, v.Soonest, nil
		}
		fl.mu.Unlock()
		return after == 0, at, after, after, nil
	}
}

// decide is the long way.
func (b *Buckets) decide(rec *record.Record, n *record.Amounts, priority int8, out []record.Result) record.Verdict {
	asks := [1]record.Ask{{Rec: rec, Specs: b.specs, N: *n}}
	t := record.Take{Priority: priority}
	v := record.Decide(asks[:], &t, b.space.store.Now())
	copy(out, asks[0].Out[:])
	return v
}
