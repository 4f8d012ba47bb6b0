package memstore

import (
	"github.com/puzpuzpuz/xsync/v4"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

type xsyncOp = xsync.ComputeOp

const (
	xsyncDelete = xsync.DeleteOp
	xsyncKeep   = xsync.CancelOp
)

// local is the buckets of one plan.
type local struct {
	space *space
	plan  *drawgate.Plan
	lean  *lean
}

// Open implements [drawgate.Opener].
func (s *Store) Open(tenant string, plan *drawgate.Plan) drawgate.Local { return s.local(tenant, plan) }

func (s *Store) local(tenant string, plan *drawgate.Plan) *local {
	sp := s.space(tenant, plan.Name())
	return &local{space: sp, plan: plan, lean: sp.leanOf(plan)}
}

// TakeOne implements [drawgate.Local].
func (l *local) TakeOne(name string, n drawgate.Amounts, priority int8) (drawgate.Decision, error) {
	s := l.space.store
	if s.closed.Load() {
		return drawgate.Decision{}, drawgate.ErrClosed
	}
	for {
		c, err := l.space.cell(name, l.lean)
		if err != nil {
			return drawgate.Decision{}, s.fail("take", err)
		}
		if l.lean != nil && l.lean == c.lean {
			if d, ok := l.word(c, n[0], priority); ok {
				return d, nil
			}
		}
		fl := c.lock(s)
		if fl == nil {
			continue
		}
		d := drawgate.DecideOne(l.plan, &fl.rec, &n, priority, s.base+s.now())
		fl.mu.Unlock()
		return d, nil
	}
}

// word decides a plain take of n units on a bucket that is one word; false if it is one no more.
func (l *local) word(c *cell, n int64, priority int8) (d drawgate.Decision, ok bool) {
	s, spec := l.space.store, &l.plan.Specs(false)[0]
	now := s.now()
	zero, most := now*spec.Drain, spec.Effective[priority]
	for {
		w := c.word.Load()
		if w == isFull || w == dead {
			return d, false
		}
		used := max(0, w-zero)
		var over int64
		if n > most {
			over = -1
		} else if n > 0 {
			over = max(0, used+(n-most)*spec.Scale)
		}
		if over == 0 {
			if n > 0 && !c.word.CompareAndSwap(w, zero+used+n*spec.Scale) {
				continue
			}
			used += n * spec.Scale
		}
		at := s.base + now
		res := record.Result{Remaining: max(0, (most*spec.Scale-used)/spec.Scale), ResetAt: at + record.CeilDiv(used, spec.Drain)}
		if over != 0 {
			res.RetryAfter = record.Never
			if over > 0 {
				res.RetryAfter = record.CeilDiv(over, spec.Drain)
			}
		}
		return drawgate.AnswerOne(l.plan, over == 0, n, res, at), true
	}
}
