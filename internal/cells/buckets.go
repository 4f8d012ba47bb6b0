package cells

import (
	"sync/atomic"

	"github.com/drawgate/drawgate/internal/record"
)

// Buckets is the buckets of a space as counted by one policy.
type Buckets struct {
	space *Space
	specs []record.Spec
	spec  *record.Spec // the first
	gcra  *gcra        // nil if a TAT cannot count them

	// hot is the bucket of two samples in a row, or nil. Many policies have a single key, or one
	// that is used more than all others together. Such a bucket need not be looked up, which saves
	// a quarter of a decision.
	hot atomic.Pointer[hot]
	met atomic.Pointer[cell] // the bucket of the latest sample
}

// hot is a bucket and what callers need to know about it before they touch it. Other processors
// change the bucket all the time: a processor that reads it waits, and makes the next writer wait.
type hot struct {
	cell    *cell
	name    string
	refuses atomic.Bool // it refused the latest sample
}

// look reads the clock, and returns the bucket of that name, or nil. h is not nil if it is hot.
//
// Reading the clock waits for all earlier memory accesses, while later ones overlap with whatever
// the caller does next. So only the name's bytes and the small directory are read before it, and
// not the page and the cell, which are in no cache if there are many buckets, nor the cell of a hot
// key, which others write. The cell is only prefetched, which does not wait: it arrives while the
// clock is read.
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

// behind is how many µs earlier one caller may have read the clock than another that changed the
// TAT in between.
const behind = 1000

// seldom is the time in µs between samples. Sampling writes to memory that others read, which costs
// them time.
const seldom = 64

func sampled(now int64) bool { return now&(seldom-1) == 0 }

// asked takes a sample, if one is due: c was asked for at now.
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

// Bind returns the buckets as counted by specs.
func (sp *Space) Bind(specs []record.Spec) *Buckets {
	sp.note(specs)
	return &Buckets{space: sp, specs: specs, spec: &specs[0], gcra: sp.gcraOf(specs)}
}

// TakeGCRA decides a plain take of n units if the only limit is a bucket and the bucket has no
// record. Otherwise ok is false, nothing was done, and Take must decide.
//
// The results are in parts (see [record.Spec.Scale]): what is left (possibly negative) and used,
// and after a refusal how much is missing, or -1 if the take can never fit. They are not a struct,
// so that they travel in registers.
func (b *Buckets) TakeGCRA(name string, n int64, priority int8) (left, used, over, at int64, ok bool) {
	s := b.space.store
	if b.gcra == nil || s.closed.Load() {
		return 0, 0, 0, 0, false
	}
	// Everything that does not need the cell is computed first: a processor looks about 250
	// instructions ahead, and the caller's next steps should be among them while the cell arrives
	// from memory.
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
			if c.owner.Load() != whose { // it has a record, whose owner changes before its TAT, or counts differently
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
			// perhaps only because this clock was read before that of the caller who wrote the TAT
			case again && over <= behind*spec.Drain:
				now, again = s.now(), false
			default:
				b.asked(c, now, true)
				return left, used, over, at, true
			}
		}
	}
}

// Take decides a plain take of one bucket, and sets out to what remains of each limit. out has room
// for all of them. at is the instant of the decision; after and earliest are those of a
// [record.Verdict].
func (b *Buckets) Take(name string, n *record.Amounts, priority int8, out []record.Result) (allowed, paused bool, at,
	after, earliest int64, err error,
) {
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
		} else if c.tat.Load() == dead { // or moved: a full store may have it elsewhere, and has no room for another
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
		at, after, ok := record.DecidePlain(&lr.rec, b.specs, n, priority, s.base+now, out)
		if !ok {
			v := b.decide(lr.whole(), n, priority, out)
			lr.mu.Unlock()
			return v.Allowed, v.Paused, v.Now, v.RetryAfter, v.EarliestRetry, nil
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

// decide takes the long way.
func (b *Buckets) decide(rec *record.Record, n *record.Amounts, priority int8, out []record.Result) record.Verdict {
	asks := [1]record.Ask{{Rec: rec, Specs: b.specs, N: *n}}
	t := record.Take{Priority: priority}
	v := record.Decide(asks[:], &t, b.space.store.Now())
	copy(out, asks[0].Out[:])
	return v
}
