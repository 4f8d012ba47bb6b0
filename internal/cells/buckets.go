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

// Grant is the raw answer of [Buckets.Lean], in parts: see [record.Spec.Scale]. It is small enough to travel in registers.
type Grant struct {
	Allowed bool
	Left    int64 // parts; may be negative
	Used    int64 // parts
	Over    int64 // parts that are too many if refused; -1 if the take can never fit
	At      int64 // Unix µs
}

// Lean decides a plain take of n units where the only limit is a bucket and nothing else was ever asked of it. Otherwise ok is false, nothing was
// done, and Take decides.
func (b *Buckets) Lean(name string, n int64, priority int8) (g Grant, ok bool) {
	s := b.space.store
	if b.lean == nil || s.closed.Load() {
		return g, false
	}
	for {
		c := s.index.find(b.space, name)
		if c == nil {
			var err error
			if c, err = b.space.open(name, b.lean); err != nil {
				return g, false
			}
		}
		now := s.now() // before the cell is touched: its cache line may be wanted elsewhere
		zero, most := now*b.spec.Drain, b.spec.Effective[priority]*b.spec.Scale
		g.At = s.base + now
		for {
			w := c.word.Load()
			if w == isFull || c.lean != b.lean {
				return g, false
			}
			if w == dead {
				s.remove(c)
				break
			}
			g.Used = max(0, w-zero)
			g.Left = most - g.Used
			if n > b.spec.Effective[priority] {
				g.Over = -1
				return g, true
			}
			parts := n * b.spec.Scale
			if g.Over = parts - g.Left; g.Over > 0 && n > 0 {
				return g, true
			}
			if g.Used += parts; n == 0 || c.word.CompareAndSwap(w, zero+g.Used) {
				g.Allowed, g.Left = true, g.Left-parts
				return g, true
			}
		}
	}
}

// Take decides a plain take of one bucket, and says of each limit what remains in out, which has room for all of them.
func (b *Buckets) Take(name string, n *record.Amounts, priority int8, out []record.Result) (record.Verdict, error) {
	s := b.space.store
	if s.closed.Load() {
		return record.Verdict{}, ErrClosed
	}
	for {
		c := s.index.find(b.space, name)
		if c == nil || c.word.Load() == dead {
			var err error
			if c, err = b.space.open(name, b.lean); err != nil {
				return record.Verdict{}, err
			}
		}
		fl := c.full.Load()
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
		v, ok := record.One(&fl.rec, b.specs, n, priority, s.Now(), out)
		if !ok {
			v = b.decide(&fl.rec, n, priority, out)
		}
		fl.mu.Unlock()
		return v, nil
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
