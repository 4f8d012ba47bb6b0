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
	gcra  *gcra        // nil if a word cannot count them

	// hot is the bucket that two samples in a row met, or nil. Many a policy has one key, or one
	// that is asked for more than all others together: it need not be looked up, which is a quarter
	// of a decision.
	hot atomic.Pointer[hot]
	met atomic.Pointer[cell] // by the latest sample
}

// hot is a bucket and what callers need to know of it before they touch it. Others, on other
// processors, change it all the time: whoever reads what they wrote waits, and makes the next
// writer wait.
type hot struct {
	cell    *cell
	name    string
	refuses atomic.Bool // it refused the latest sample
}

// look reads the clock, and returns the bucket of that name, or nil. h is not nil if it is hot.
//
// Reading the clock waits for every memory access before it, while those behind it overlap with
// whatever the caller does next. So nothing comes before it but the name's bytes and the directory,
// which is small: neither the page and the cell, which among many buckets are in no cache, nor the
// cell of a hot key, which others write. The cell is only asked for, which waits for nothing: it is
// on its way while the clock is read.
func (b *Buckets) look(name string) (c *cell, h *hot, now int64) {
	s := b.space.store
	if h = b.hot.Load(); h != nil && h.name == name {
		return h.cell, h, s.now()
	}
	hash := s.index.hash(b.space, name)
	prefetch(s.index.dir.Load().entry(hash).begin(hash))
	now = s.now()
	return s.index.findHashed(b.space, name, hash), nil, now
}

// behind is how much earlier, in µs, one caller may have read the clock than another who changed
// the word in between.
const behind = 1000

// seldom is how often a sample is taken: at every so many µs, because writing what others read
// takes time of theirs.
const seldom = 64

func sampled(now int64) bool { return now&(seldom-1) == 0 }

// asked notes that c was asked for at now.
func (b *Buckets) asked(c *cell, now int64, refused bool) {
	if sampled(now) {
		b.sample(c, refused)
	}
}

func (b *Buckets) sample(c *cell, refused bool) {
	switch h := b.hot.Load(); {
	case h != nil && h.cell == c:
		if h.refuses.Load() != refused {
			h.refuses.Store(refused)
		}
	case b.met.Load() == c:
		b.hot.Store(&hot{cell: c, name: c.name.String()})
	default:
		b.met.Store(c)
		b.hot.Store(nil)
	}
}

// cool forgets that c is hot.
func (b *Buckets) cool(c *cell) {
	if h := b.hot.Load(); h != nil && h.cell == c {
		b.hot.CompareAndSwap(h, nil)
	}
}

// Bind returns the buckets as the limits specs count them.
func (sp *Space) Bind(specs []record.Spec) *Buckets {
	sp.note(specs)
	return &Buckets{space: sp, specs: specs, spec: &specs[0], gcra: sp.gcraOf(specs)}
}

// TakeGCRA decides a plain take of n units where the only limit is a bucket and nothing else was ever
// asked of it. Otherwise ok is false, nothing was done, and Take decides.
//
// The answer is raw, in parts (see [record.Spec.Scale]): what is left (it may be negative) and
// used, and if refused how much is too much, or -1 if the take can never fit. It is not a struct,
// because these travel in registers.
func (b *Buckets) TakeGCRA(name string, n int64, priority int8) (left, used, over, at int64, ok bool) {
	s := b.space.store
	if b.gcra == nil || s.closed.Load() {
		return 0, 0, 0, 0, false
	}
	// What does not need the cell is done before: a processor looks some 250 instructions ahead,
	// and what the caller does next should be among them while the cell is on its way from memory.
	spec, whose := b.spec, &b.gcra.owner
	never := n > spec.Effective[priority]
	most, parts := spec.Effective[priority]*spec.Scale, n*spec.Scale
	for {
		c, h, now := b.look(name)
		if c == nil {
			var err error
			if c, err = b.space.open(name, b.gcra); err != nil {
				return 0, 0, 0, 0, false
			}
			now = s.now() // making room may have taken long
		}
		for again := true; ; {
			w := c.look(h)
			if c.owner.Load() != whose { // a record, whose owner changed before its word, or who counts otherwise
				return 0, 0, 0, 0, false
			}
			if w == dead {
				b.cool(c)
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
				if used += parts; c.tat.CompareAndSwap(w, zero+used) {
					b.asked(c, now, false)
					return left - parts, used, 0, at, true
				}
			case again && over <= behind*spec.Drain: // it may only seem so, by a clock that was read before who wrote the word read his
				now, again = s.now(), false
			default:
				b.asked(c, now, true)
				return left, used, over, at, true
			}
		}
	}
}

// Take decides a plain take of one bucket, and says of each limit what remains in out, which has
// room for all of them. at is the instant of the decision; after and soonest are those of a
// [record.Verdict].
func (b *Buckets) Take(name string, n *record.Amounts, priority int8, out []record.Result) (allowed, paused bool, at, after, soonest int64, err error) {
	s := b.space.store
	if s.closed.Load() {
		return false, false, 0, 0, 0, ErrClosed
	}
	for {
		c, h, now := b.look(name) // not under the lock, for which others wait
		if c == nil {
			if c, err = b.space.open(name, b.gcra); err != nil {
				return false, false, 0, 0, 0, err
			}
		} else if c.tat.Load() == dead { // or moved: then a full store has it, and no room for another
			b.cool(c)
			continue
		}
		lr := c.owner.Load().locked
		if lr != nil {
			if f := lr.refusal.Load(); f != nil {
				if at, after, ok := f.Again(b.specs, n, priority, s.base+now, out); ok {
					b.asked(c, now, true)
					return false, false, at, after, after, nil
				}
			}
			lr.mu.Lock()
		} else if lr = c.lock(b.specs); lr == nil {
			continue
		}
		if lr.gone {
			lr.mu.Unlock()
			b.cool(c)
			continue
		}
		at, after, ok := record.One(&lr.rec, b.specs, n, priority, s.base+now, out)
		if !ok {
			v := b.decide(lr.whole(), n, priority, out)
			lr.mu.Unlock()
			return v.Allowed, v.Paused, v.Now, v.RetryAfter, v.Soonest, nil
		}
		if after == 0 {
			lr.recall()
		} else if h != nil && sampled(now) {
			lr.refusal.Store(lr.rec.Refusal(b.specs, n, priority, at, after, out))
		}
		lr.mu.Unlock()
		b.asked(c, now, after != 0)
		return after == 0, false, at, after, after, nil
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
