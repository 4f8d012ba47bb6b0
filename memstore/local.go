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
	spec  *record.Spec // the only one, if lean
}

// Open implements [drawgate.Opener].
func (s *Store) Open(tenant string, plan *drawgate.Plan) drawgate.Local { return s.local(tenant, plan) }

func (s *Store) local(tenant string, plan *drawgate.Plan) *local {
	sp := s.space(tenant, plan.Name())
	return &local{space: sp, plan: plan, lean: sp.leanOf(plan), spec: &plan.Specs(false)[0]}
}

// TakeOne implements [drawgate.Local].
func (l *local) TakeOne(name string, n drawgate.Amounts, priority int8) (d drawgate.Decision, err error) {
	s := l.space.store
	if s.closed.Load() {
		return d, drawgate.ErrClosed
	}
	for {
		c, err := l.space.cell(name, l.lean)
		if err != nil {
			return d, s.fail("take", err)
		}
		if fl := c.lock(s); fl != nil {
			drawgate.DecideOne(&d, l.plan, &fl.rec, &n, priority, s.base+s.now())
			fl.mu.Unlock()
			return d, nil
		}
	}
}

// TakeLean implements [drawgate.Local].
func (l *local) TakeLean(name string, n int64, priority int8) (g drawgate.Grant, ok bool) {
	s := l.space.store
	if l.lean == nil || s.closed.Load() {
		return g, false
	}
	for {
		c, ok := l.space.cells.Load(name)
		if !ok {
			var err error
			if c, err = l.space.open(name, l.lean); err != nil {
				return g, false
			}
		}
		spec, now := l.spec, s.now() // before the cell is touched: its cache line may be wanted elsewhere
		zero, most := now*spec.Drain, spec.Effective[priority]
		for {
			w := c.word.Load()
			if w == isFull || c.lean != l.lean {
				return g, false
			}
			if w == dead {
				l.space.remove(name, c)
				break
			}
			used := max(0, w-zero)
			over := used + (min(n, most)-most)*spec.Scale
			if n > 0 && (over > 0 || n > most) {
				g := l.grant(false, used, most, now)
				if g.RetryAfter = record.Never; n <= most {
					g.RetryAfter = record.CeilDiv(over, spec.Drain)
				}
				return g, true
			}
			if used += n * spec.Scale; n == 0 || c.word.CompareAndSwap(w, zero+used) {
				return l.grant(true, used, most, now), true
			}
		}
	}
}

// grant describes a bucket of which used parts are used.
func (l *local) grant(allowed bool, used, most, now int64) drawgate.Grant {
	at := l.space.store.base + now
	left, reset := most*l.spec.Scale-used, used
	if l.spec.Scale != 1 {
		left /= l.spec.Scale
	}
	if l.spec.Drain != 1 {
		reset = record.CeilDiv(used, l.spec.Drain)
	}
	return drawgate.Grant{Allowed: allowed, Remaining: max(0, left), ResetAt: at + reset, At: at}
}
