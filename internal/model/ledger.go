package model

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/drawgate/drawgate/internal/record"
)

// Ledger is the list of everything that was admitted by one bucket and may still count. The zero value is a bucket of which nothing is used.
type Ledger struct {
	last   int64 // the latest instant that was seen
	limits map[uint64]*limit
	holds  map[string]*hold
}

// limit is what was admitted by one limit.
type limit struct {
	spec  record.Spec // as it was last seen
	list  []*counted  // rolling, calendar: what counts from an instant on
	group *group      // rolling: the newest
	level *big.Int    // bucket: units × Window
	drain *big.Int    // bucket: all that could have drained up to now, units × Window
	at    int64       // bucket: the instant of level and drain
}

// counted is a number of units that age.
type counted struct {
	n        int64
	from, to int64  // calendar: counts in every window that touches [from, to]
	group    *group // rolling
}

// group is what a rolling limit counts together: until one window after last.
type group struct{ first, last int64 }

// hold is an open reservation.
type hold struct {
	print uint64
	end   int64
	parts []part
}

// part is what a hold has of one limit.
type part struct {
	limit   uint64
	n       int64
	held    bool     // does not age yet: counted nowhere else
	counted *counted // rolling, calendar, not held
	drain   *big.Int // bucket, not held: limit.drain at the take
}

// pending is a held number of units, which start to age at end if nothing else happens.
type pending struct{ end, n int64 }

// clone returns a copy that shares nothing that changes.
func (l *Ledger) clone() *Ledger {
	c := &Ledger{last: l.last, limits: map[uint64]*limit{}, holds: map[string]*hold{}}
	groups, entries := map[*group]*group{nil: nil}, map[*counted]*counted{nil: nil}
	copied := func(g *group) *group {
		if _, ok := groups[g]; !ok {
			one := *g
			groups[g] = &one
		}
		return groups[g]
	}
	entry := func(from *counted) *counted {
		if _, ok := entries[from]; !ok {
			one := *from
			one.group = copied(from.group)
			entries[from] = &one
		}
		return entries[from]
	}
	for id, lim := range l.limits {
		one := *lim
		one.group, one.list = copied(lim.group), slices.Clone(lim.list)
		for i := range one.list {
			one.list[i] = entry(one.list[i])
		}
		c.limits[id] = &one
	}
	for id, h := range l.holds {
		one := *h
		one.parts = slices.Clone(h.parts)
		for i := range one.parts {
			one.parts[i].counted = entry(one.parts[i].counted)
		}
		c.holds[id] = &one
	}
	return c
}

// know returns the limit of s, remembering s.
func (l *Ledger) know(s *record.Spec) *limit {
	if l.limits == nil {
		l.limits = map[uint64]*limit{}
	}
	lim := l.limits[s.ID]
	if lim == nil {
		lim = &limit{level: new(big.Int), drain: new(big.Int), at: l.last}
		l.limits[s.ID] = lim
	}
	lim.spec = *s
	return lim
}

// advance lets time pass until now, from which on specs hold.
func (l *Ledger) advance(specs []record.Spec, now int64) {
	l.last = max(l.last, now)
	// Nobody knows when a bucket's rate changed: the lower one is taken for all the time since the last look.
	rates := map[uint64]int64{}
	for id, lim := range l.limits {
		rates[id] = lim.spec.Rate
	}
	for i := range specs {
		l.know(&specs[i])
		if old, ok := rates[specs[i].ID]; ok {
			rates[specs[i].ID] = min(old, specs[i].Rate)
		}
	}
	for _, id := range l.over() {
		h := l.holds[id]
		for _, p := range h.parts {
			lim := l.limits[p.limit]
			if p.held && lim.spec.Kind != record.Concurrency {
				lim.drainTo(rates[p.limit], h.end)
				lim.count(h.end, lim.holdMargin(), p.n)
			}
		}
		delete(l.holds, id)
	}
	for id, lim := range l.limits {
		lim.drainTo(rates[id], l.last)
		lim.forget(l.last)
	}
}

// over returns the ids of holds that have ended, in the order of their ends.
func (l *Ledger) over() []string {
	var ids []string
	for id, h := range l.holds {
		if h.end <= l.last {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Or(cmp.Compare(l.holds[a].end, l.holds[b].end), cmp.Compare(a, b)) })
	return ids
}

func (lim *limit) drainTo(rate, t int64) {
	if lim.spec.Kind != record.Bucket || t <= lim.at {
		return
	}
	d := product(rate, t-lim.at)
	lim.drain = new(big.Int).Add(lim.drain, d)
	lim.level = atLeast0(new(big.Int).Sub(lim.level, d))
	lim.at = t
}

// forget drops what can never count again.
func (lim *limit) forget(now int64) {
	switch lim.spec.Kind {
	case record.Rolling:
		lim.list = slices.DeleteFunc(lim.list, func(c *counted) bool { return c.group.last+lim.spec.Window <= now })
	case record.Calendar:
		start, _ := lim.spec.Rule.Window(now)
		lim.list = slices.DeleteFunc(lim.list, func(c *counted) bool { return c.to < start })
	}
}

// holdMargin is the margin with which held units are counted once their hold is over. (Charged at the end, they have arrived by then.)
func (lim *limit) holdMargin() int64 {
	if lim.spec.ChargeEnd {
		return 0
	}
	return lim.spec.Margin
}

// count counts n units from at on, whatever the limit says. They arrive at at+margin at the latest.
func (lim *limit) count(at, margin, n int64) *counted {
	if n <= 0 {
		return nil
	}
	c := &counted{n: n, from: at, to: at + margin}
	switch lim.spec.Kind {
	case record.Bucket:
		lim.owe(n)
		return nil
	case record.Rolling:
		c.group = lim.join(at + margin)
	}
	lim.list = append(lim.list, c)
	return c
}

// most is where what is used saturates, in every store; a bucket counts 1/Scale units.
const most = 1<<53 - 1

// owe adds n units to a bucket's level.
func (lim *limit) owe(n int64) {
	lim.level = new(big.Int).Add(lim.level, product(n, lim.spec.Window))
	if full := product(most, lim.spec.Window/lim.spec.Scale); lim.level.Cmp(full) > 0 {
		lim.level = full
	}
}

// join returns the group of a take that counts at at.
func (lim *limit) join(at int64) *group {
	if g := lim.group; g != nil {
		at = max(at, g.last)
		if at == g.first || at-g.first < lim.spec.Join {
			g.last = at
			return g
		}
	}
	lim.group = &group{at, at}
	return lim.group
}

// pending returns what is held of a limit, in the order in which the holds end.
func (l *Ledger) pending(id uint64) (ps []pending) {
	for _, h := range l.holds {
		for _, p := range h.parts {
			if p.held && p.limit == id {
				ps = append(ps, pending{h.end, p.n})
			}
		}
	}
	slices.SortFunc(ps, func(a, b pending) int { return cmp.Compare(a.end, b.end) })
	return ps
}

// cancelled returns a limit as it were if every open hold were given back now. Nothing is pending then.
func (l *Ledger) cancelled(lim *limit) *limit {
	c := *lim
	back := map[*counted]bool{}
	for _, h := range l.holds {
		for _, p := range h.parts {
			if p.limit == lim.spec.ID && !p.held {
				back[p.counted] = true
				if lim.spec.Kind == record.Bucket {
					c.level = atLeast0(new(big.Int).Sub(c.level, lim.credit(&p, 0)))
				}
			}
		}
	}
	c.list = slices.DeleteFunc(slices.Clone(lim.list), func(c *counted) bool { return back[c] })
	return &c
}

// credit returns what a settlement of p with n gives back to a bucket, times Window: no more than what cannot have drained since the take.
func (lim *limit) credit(p *part, n int64) *big.Int {
	back := product(p.n-n, lim.spec.Window)
	since := new(big.Int).Sub(lim.drain, p.drain)
	undrained := atLeast0(new(big.Int).Sub(product(p.n, lim.spec.Window), since))
	if back.Cmp(undrained) > 0 {
		return undrained
	}
	return back
}

func product(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }

func atLeast0(x *big.Int) *big.Int {
	if x.Sign() < 0 {
		return new(big.Int)
	}
	return x
}
