package cells

import "github.com/drawgate/drawgate/internal/record"

// Buckets is the buckets of a space as one policy counts them.
type Buckets struct {
	space *Space
	specs []record.Spec
	spec  *record.Spec // the first
	lean  *lean        // nil if a word cannot count them
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
		c := s.index.find(b.space, name)
		if c == nil {
			var err error
			if c, err = b.space.open(name, b.lean); err != nil {
				return 0, 0, 0, 0, false
			}
		}
		now := s.now() // before the cell is touched: its cache line may be wanted elsewhere
		zero, most := now*b.spec.Drain, b.spec.Effective[priority]*b.spec.Scale
		at = s.base + now
		for {
			w := c.word.Load()
			if w == isFull || c.home.Load() != &b.lean.home {
				return 0, 0, 0, 0, false
			}
			if w == dead {
				s.remove(c)
				break
			}
			used = max(0, w-zero)
			left = most - used
			if n > b.spec.Effective[priority] {
				return left, used, -1, at, true
			}
			parts := n * b.spec.Scale
			if over = parts - left; over > 0 && n > 0 {
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
		c := s.index.find(b.space, name)
		if c == nil || c.word.Load() == dead {
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
		at, after, ok := record.One(&fl.rec, b.specs, n, priority, s.Now(), out)
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
