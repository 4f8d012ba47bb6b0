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

	// last is a cell that was asked for not long ago. Many a policy has one key, or one that is asked for more than all others together: it need not be
	// looked up, which is a quarter of a decision.
	last atomic.Pointer[cell]
}

// cell returns the bucket of that name, or nil.
func (b *Buckets) cell(name string) *cell {
	if c := b.last.Load(); c != nil && c.name == name {
		return c
	}
	return b.space.store.index.find(b.space, name)
}

// behind is how much earlier, in µs, one caller may have read the clock than another who changed the word in between.
const behind = 1000

// seldom is how often a cell becomes the last one: at every so many µs, because writing what others read takes time of theirs.
const seldom = 64

// asked notes that c was asked for at now.
func (b *Buckets) asked(c *cell, now int64) {
	if now&(seldom-1) == 0 && b.last.Load() != c {
		b.last.Store(c)
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
	for {
		c := b.cell(name)
		if c == nil {
			var err error
			if c, err = b.space.open(name, b.lean); err != nil {
				return 0, 0, 0, 0, false
			}
		}
		now := s.now() // before the cell is touched: its cache line may be wanted elsewhere
		most := b.spec.Effective[priority] * b.spec.Scale
		for again := true; ; {
			w := c.word.Load()
			if w == isFull || c.home.Load() != &b.lean.home {
				return 0, 0, 0, 0, false
			}
			if w == dead {
				s.remove(c)
				b.last.CompareAndSwap(c, nil)
				break
			}
			b.asked(c, now)
			at = s.base + now
			zero := now * b.spec.Drain
			used = max(0, w-zero)
			left = most - used
			if n > b.spec.Effective[priority] {
				return left, used, -1, at, true
			}
			parts := n * b.spec.Scale
			if over = parts - left; over > 0 && n > 0 {
				if again && over <= behind*b.spec.Drain { // it may only seem so, by a clock that was read before who wrote the word read his
					now, again = s.now(), false
					continue
				}
				return left, used, over, at, true
			}
			if used += parts; n == 0 || c.word.CompareAndSwap(w, zero+used) {
				return left - parts, used, 0, at, true
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
		c := b.cell(name)
		if c == nil || c.word.Load() == dead {
			b.last.CompareAndSwap(c, nil)
			if c, err = b.space.open(name, b.lean); err != nil {
				return false, 0, 0, 0, err
			}
		}
		now := s.Now() // not under the lock, for which others wait
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
		at, after, ok := record.One(&fl.rec, b.specs, n, priority, now, out)
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
