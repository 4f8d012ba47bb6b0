package model

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/drawgate/drawgate/internal/record"
)

// Ledger lists everything that was admitted by one bucket and may still count. The zero value is an
// unused bucket.
type Ledger struct {
	last   int64 // the latest instant that was seen
	limits map[uint64]*limit
	holds  map[string]*hold
	pause  record.Pause
}

// limit is what was admitted by one limit.
type limit struct {
	spec  record.Spec // as last seen
	list  []*counted  // rolling, calendar: units that count from some instant
	group *group      // rolling: the newest
	level *big.Int    // bucket: units × Window
	at    int64       // bucket: the instant of level
	late  int64       // rolling, calendar: the largest margin of what was held since nothing was
	ahead int64       // bucket: the latest instant for which units were granted ahead
	peak  int64       // bucket: the highest rate since a reservation of it was taken, while any is open; otherwise 0
}

// counted is a number of units that age.
type counted struct {
	n        int64
	from, to int64  // calendar: counts in every window that touches [from, to]
	group    *group // rolling
}

// group is the span of units that a rolling limit counts together, until one window after last.
type group struct{ first, last int64 }

// hold is an open reservation.
type hold struct {
	grant       uint64
	fingerprint uint64
	at          int64 // from when its units count, or when it was granted
	end         int64
	lease       bool
	parts       []part
}

// part is what a hold has of one limit.
type part struct {
	limit   uint64
	n       int64
	held    bool     // does not age yet: counted nowhere else
	margin  int64    // held: its margin
	counted *counted // rolling, calendar, not held
	at      int64    // time of the take
	again   int64    // units that a replay gave back, to take them again
}

// pending is a held number of units, which start to age at end if nothing else happens.
type pending struct{ end, n int64 }

// clone returns a copy that shares nothing that changes.
func (l *Ledger) clone() *Ledger {
	c := &Ledger{last: l.last, pause: l.pause, limits: map[uint64]*limit{}, holds: map[string]*hold{}}
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

// know returns the limit of s, and remembers s.
func (l *Ledger) know(s *record.Spec) *limit {
	if l.limits == nil {
		l.limits = map[uint64]*limit{}
	}
	lim := l.limits[s.ID]
	if lim == nil {
		lim = &limit{level: new(big.Int), at: l.last}
		l.limits[s.ID] = lim
	}
	lim.spec = *s
	return lim
}

// raise keeps units that were granted ahead from draining faster than at the old rate: see
// countAhead.
func (lim *limit) raise(old, now int64) {
	if more := lim.spec.Rate - old; more > 0 && old > 0 && lim.ahead > now {
		lim.level = new(big.Int).Add(lim.level, product(more, lim.ahead-now))
	}
}

// advance lets time pass until now, from when specs apply. Limits that are not in specs stay
// unchanged, except for the holds that end.
func (l *Ledger) advance(specs []record.Spec, now int64) {
	l.last = max(l.last, now)
	// It is unknown when a bucket's rate changed: the lower one applies to all the time since the
	// last look.
	rates, old := map[uint64]int64{}, map[uint64]int64{}
	for i := range specs {
		s := &specs[i]
		rates[s.ID] = s.Rate
		if lim := l.limits[s.ID]; lim != nil {
			rates[s.ID], old[s.ID] = min(s.Rate, lim.spec.Rate), lim.spec.Rate
		}
		l.know(s)
	}
	for _, id := range l.over() {
		h := l.holds[id]
		for i := range h.parts {
			rate, known := rates[h.parts[i].limit]
			l.limits[h.parts[i].limit].age(&h.parts[i], h.parts[i].n, h.end, known, rate)
		}
		l.close(id)
	}
	for id, rate := range rates {
		lim := l.limits[id]
		lim.drainTo(rate, l.last)
		lim.round()
		lim.raise(old[id], l.last)
		lim.round()
		lim.forget(l.last)
		if lim.peak > 0 {
			lim.peak = max(lim.peak, lim.spec.Rate)
		}
	}
}

// close removes a hold.
func (l *Ledger) close(id string) {
	delete(l.holds, id)
	if len(l.holds) == 0 {
		for _, lim := range l.limits {
			lim.peak, lim.late = 0, 0
		}
	}
}

// age makes held units count from at. n units were used. rate drained until then. If the limit is
// unknown to the caller that notices the end, so are the rate and how units are joined: then
// nothing drained, and the units stand alone.
func (lim *limit) age(p *part, n, at int64, known bool, rate int64) {
	if !p.held || lim.spec.Kind == record.Concurrency {
		return
	}
	if known {
		lim.drainTo(rate, at)
		lim.count(at, lim.lateMargin(), n)
		return
	}
	lim.at = max(lim.at, at)
	lim.enter(at, lim.late, n, 0)
}

// over returns the IDs of holds that have ended, in the order of their ends.
func (l *Ledger) over() []string {
	var ids []string
	for id, h := range l.holds {
		if h.end <= l.last {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(l.holds[a].end, l.holds[b].end),
			cmp.Compare(a, b))
	})
	return ids
}

func (lim *limit) drainTo(rate, t int64) {
	if lim.spec.Kind != record.Bucket || t <= lim.at {
		return
	}
	lim.level = atLeast0(new(big.Int).Sub(lim.level, product(rate, t-lim.at)))
	lim.at = t
}

// round rounds a bucket's level up to a whole number of parts: the parts of a unit of which a whole
// number drains per microsecond.
func (lim *limit) round() {
	if lim.spec.Kind == record.Bucket {
		part := big.NewInt(lim.spec.Window / lim.spec.Scale)
		lim.level = new(big.Int).Mul(up(lim.level, part), part)
	}
}

// up returns a/b, rounded up.
func up(a, b *big.Int) *big.Int {
	q, rest := new(big.Int).QuoRem(a, b, new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
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

// holdMargin is the margin with which held units count once their hold is over. (Units charged at
// the end have arrived by then.)
func (lim *limit) holdMargin() int64 {
	if lim.spec.ChargeEnd {
		return 0
	}
	return lim.spec.Margin
}

// lateMargin is holdMargin for what is held: at least the margin that its holder was given.
func (lim *limit) lateMargin() int64 { return max(lim.late, lim.holdMargin()) }

// count counts n units from at, whatever the limit says. They arrive at at+margin at the latest.
func (lim *limit) count(at, margin, n int64) *counted { return lim.enter(at, margin, n, lim.spec.Join) }

// enter is count for units that may join a group whose first take is less than join earlier.
func (lim *limit) enter(at, margin, n, join int64) *counted {
	if n <= 0 {
		return nil
	}
	c := &counted{n: n, from: at, to: at + margin}
	switch lim.spec.Kind {
	case record.Bucket:
		lim.debit(n)
		return nil
	case record.Rolling:
		c.group = lim.join(at+margin, join)
	}
	lim.list = append(lim.list, c)
	return c
}

// countAhead counts n units at an instant that is now or later. A bucket's level is a queue: units
// that drain until then come before them.
func (lim *limit) countAhead(now, at, margin, n int64) *counted {
	if lim.spec.Kind == record.Bucket && at > now {
		if before := product(lim.spec.Rate, at-now); lim.level.Cmp(before) < 0 {
			lim.level = before
		}
		lim.ahead = max(lim.ahead, at)
	}
	return lim.count(at, margin, n)
}

// most is where used saturates, in every store; a bucket counts 1/Scale units.
const most = 1<<53 - 1

// debit adds n units to a bucket's level.
func (lim *limit) debit(n int64) {
	lim.level = new(big.Int).Add(lim.level, product(n, lim.spec.Window))
	if full := product(most, lim.spec.Window/lim.spec.Scale); lim.level.Cmp(full) > 0 {
		lim.level = full
	}
}

// join returns the group of a take that counts at at.
func (lim *limit) join(at, join int64) *group {
	if g := lim.group; g != nil {
		at = max(at, g.last)
		if at == g.first || at-g.first < join {
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

// cancelled returns a limit as it would be if every open hold were given back now, so that nothing
// is pending.
func (l *Ledger) cancelled(lim *limit) *limit {
	c := *lim
	back := map[*counted]bool{}
	for _, h := range l.holds {
		for _, p := range h.parts {
			if p.limit == lim.spec.ID && !p.held {
				back[p.counted] = true
				if lim.spec.Kind == record.Bucket {
					c.level = atLeast0(new(big.Int).Sub(c.level, lim.credit(&p, 0, l.last)))
				}
			}
		}
	}
	c.list = slices.DeleteFunc(slices.Clone(lim.list), func(c *counted) bool { return back[c] })
	return &c
}

// credit returns what a settlement of p with n gives back to a bucket, times Window: at most what
// cannot have drained, at the highest rate that applied, between the take and the latest instant
// for which others may have been granted units.
func (lim *limit) credit(p *part, n, now int64) *big.Int {
	back := product(p.n-n, lim.spec.Window)
	dt := max(0, max(now, lim.ahead)-p.at)
	undrained := atLeast0(new(big.Int).Sub(product(p.n, lim.spec.Window), product(lim.peak, dt)))
	if back.Cmp(undrained) > 0 {
		return undrained
	}
	return back
}

// spared returns how much of what comes free at instant at is not needed by units that were granted
// ahead: those need what drains until then.
func (lim *limit) spared(back *big.Int, at int64) *big.Int {
	if lim.ahead <= at {
		return back
	}
	part := big.NewInt(lim.spec.Window / lim.spec.Scale)
	drains := up(product(max(lim.peak, lim.spec.Rate), lim.ahead-at), part)
	return atLeast0(new(big.Int).Sub(back, drains.Mul(drains, part)))
}

func product(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }

func atLeast0(x *big.Int) *big.Int {
	if x.Sign() < 0 {
		return new(big.Int)
	}
	return x
}
