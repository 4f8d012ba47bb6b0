package ledger

import (
	"slices"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

const (
	// manyCells is how many cells of one limit are kept apart. Neighbours are merged then.
	manyCells = 16
	// mostCells is how many there are at most: neighbours that have other marks or grants are not
	// merged. Those that end first are forgotten.
	mostCells = 16 * manyCells
)

// cell is units of one limit that the store has, or has to have.
type cell struct {
	n      int64
	at     int64 // when they were admitted, on the store's clock; of several, the last ones
	since  int64 // and the first ones
	from   int64 // when they begin to count
	until  int64 // when they no longer do; of several, the last ones
	first  int64 // and the first ones
	stamps stamps
	claim  *claim // by which they are charged, or were
	lost   bool   // they have to be
}

// claim is one charge: of units that the store has lost, or that were admitted here. The store
// carries it out once, by its grant. So its units stay the same from when it is first sent.
type claim struct {
	grant  store.Grant
	plan   *store.Plan
	it     *item
	outage bool // the units were admitted here, and were never charged
	sent   bool
	plain  bool          // it goes without its grant, for which the store has no room
	labels []store.Label // of a caller's charge, while it is one of an outage
}

// joins reports whether another cell may be merged with c: what is said of one is true of both.
func (c *cell) joins(o *cell, apart int64) bool {
	return c.claim == o.claim && c.lost == o.lost && c.stamps[0].mark == o.stamps[0].mark &&
		c.stamps[1].mark == o.stamps[1].mark && (c.stamps[0].at == 0) == (o.stamps[0].at == 0) &&
		(c.stamps[1].at == 0) == (o.stamps[1].at == 0) &&
		max(c.until, o.until)-min(c.first, o.first) <= apart
}

// join merges two cells. It has the later stamp: a loss in the middle of it charges all of it.
func (c *cell) join(o *cell) {
	c.n = min(c.n+o.n, unlimited)
	c.at, c.since, c.from = max(c.at, o.at), min(c.since, o.since), max(c.from, o.from)
	c.until, c.first = max(c.until, o.until), min(c.first, o.first)
	for i := range c.stamps {
		c.stamps[i].at = max(c.stamps[i].at, o.stamps[i].at)
	}
}

// series is the units of one limit.
type series struct {
	plan  *store.Plan // by which units were taken last
	pos   int         // the limit's position in it
	id    uint64      // of the limit
	cells []cell      // the one that ends first is the first
	level int64       // of a bucket: what this process's own units fill, in 1/Scale units
	last  int64       // and when
}

func (s *series) spec() *record.Spec { return &store.Internal.Specs(s.plan, false)[s.pos] }

// seriesOf returns the series of a plan's limit, and makes a missing one.
func (h *history) seriesOf(now int64, plan *store.Plan, pos int) *series {
	id := store.Internal.Specs(plan, false)[pos].ID
	for i := range h.limits {
		if s := &h.limits[i]; s.id == id {
			s.adopt(now, plan, pos)
			return s
		}
	}
	h.limits = append(h.limits, series{plan: plan, pos: pos, id: id})
	return &h.limits[len(h.limits)-1]
}

// adopt makes plan the one by which units were taken last. Its bucket may drain at another rate. As
// at the store, the slower one applies until now.
func (s *series) adopt(now int64, plan *store.Plan, pos int) {
	old := s.spec()
	s.plan, s.pos = plan, pos
	spec := s.spec()
	if spec.Kind != record.Bucket || spec.Rate == old.Rate && spec.Window == old.Window {
		return
	}
	if spec.Rate > old.Rate {
		s.leakAs(old, now)
	}
	s.level = min(mulDivUp(s.level, spec.Scale, old.Scale), unlimited)
	end := s.last + record.CeilDiv(s.level, spec.Drain)
	for k := range s.cells { // what is charged is bounded by the level
		s.cells[k].until = max(s.cells[k].until, end)
	}
}

// units are what was admitted of one bucket.
type units struct {
	plan   *store.Plan
	n      store.Amounts
	at     int64 // when, on the store's clock
	start  int64 // from when on they count
	end    int64 // the same for limits that charge at the end of a hold; 0: as others
	stamps stamps
	claim  *claim
	lost   bool
}

// add enters units. Slots are none: they do not outlast their hold.
func (h *history) add(now int64, u *units) {
	specs := store.Internal.Specs(u.plan, false)
	for i := range specs {
		if u.n[i] > 0 && specs[i].Kind != record.Concurrency {
			h.seriesOf(now, u.plan, i).add(now, u, u.n[i])
		}
	}
}

func (s *series) add(now int64, u *units, n int64) {
	s.trim(now)
	c := cell{n: n, at: u.at, since: u.at, stamps: u.stamps, claim: u.claim, lost: u.lost}
	start := u.start
	if u.end > 0 && s.spec().ChargeEnd {
		start = u.end
	}
	c.from, c.until = s.counts(start, n)
	c.first = c.until
	if c.until <= now {
		return
	}
	k := len(s.cells)
	for k > 0 && s.cells[k-1].until > c.until {
		k--
	}
	if k > 0 && s.cells[k-1].stamps == c.stamps && s.cells[k-1].joins(&c, 0) { // one call took both
		s.cells[k-1].join(&c)
		return
	}
	s.cells = slices.Insert(s.cells, k, c)
	if len(s.cells) > manyCells {
		s.merge(now)
	}
}

// counts returns from when on and until when n units count that were used at an instant. Units may
// arrive within the limit's margin after it.
func (s *series) counts(at, n int64) (from, until int64) {
	spec := s.spec()
	late := spec.Margin + spec.Blur
	if spec.ChargeEnd {
		late = spec.Blur
	}
	switch spec.Kind {
	case record.Bucket:
		s.leak(at)
		s.level = min(s.level+min(n, unlimited/spec.Scale)*spec.Scale, unlimited)
		return at, s.last + record.CeilDiv(s.level, spec.Drain)
	case record.Calendar:
		_, end := spec.Rule.Window(at)
		if at+late >= end {
			_, end = spec.Rule.Window(at + late)
			return at + late, end
		}
		return at, end
	default:
		return at + late, at + late + spec.Window
	}
}

// leak lets a bucket drain until an instant.
func (s *series) leak(at int64) { s.leakAs(s.spec(), at) }

func (s *series) leakAs(spec *record.Spec, at int64) {
	if dt := at - s.last; s.last > 0 && dt > 0 {
		if dt >= record.CeilDiv(s.level, spec.Drain) {
			s.level = 0
		} else {
			s.level -= dt * spec.Drain
		}
	}
	s.last = max(s.last, at)
}

// left returns how many units of a bucket have not drained, rounded up. Other units all count until
// their end.
func (s *series) left(now int64) int64 {
	spec := s.spec()
	if spec.Kind != record.Bucket {
		return unlimited
	}
	s.leak(now)
	return record.CeilDiv(s.level, spec.Scale)
}

// trim forgets what no longer counts.
func (s *series) trim(now int64) {
	k := 0
	for k < len(s.cells) && s.cells[k].until <= now {
		k++
	}
	s.cells = slices.Delete(s.cells, 0, k)
}

// merge merges two neighbours that can be: ends that lie within an eighth of the window are as good
// as one. A loss in the middle of a cell charges all of it, and losses are of the last moments. So
// of all neighbours it merges those whose takes are nearest to each other, compared with how long
// ago they were: a loss then charges about as much in addition as was lost.
func (s *series) merge(now int64) {
	spec := s.spec()
	apart := spec.Window / 8
	if spec.Kind == record.Bucket {
		apart = spec.LastsUntil(0) / 8
	}
	best, least := -1, 0.0
	for k := 0; k+1 < len(s.cells); k++ {
		a, b := &s.cells[k], &s.cells[k+1]
		if !a.joins(b, apart) {
			continue
		}
		last := max(a.at, b.at)
		near := float64(last-min(a.since, b.since)) / float64(max(1, now-last))
		if best < 0 || near < least {
			best, least = k, near
		}
	}
	switch {
	case best >= 0:
		s.cells[best].join(&s.cells[best+1])
		s.cells = slices.Delete(s.cells, best+1, best+2)
	case len(s.cells) > mostCells:
		s.cells = slices.Delete(s.cells, 0, 1)
	}
}

// credit takes units back that were given back at the store: the newest ones.
func (h *history) credit(now int64, plan *store.Plan, n *store.Amounts) {
	specs := store.Internal.Specs(plan, false)
	for i := range specs {
		if n[i] <= 0 || specs[i].Kind == record.Concurrency {
			continue
		}
		s := h.seriesOf(now, plan, i)
		s.trim(now)
		s.credit(now, n[i])
	}
}

func (s *series) credit(now, n int64) {
	if spec := s.spec(); spec.Kind == record.Bucket {
		s.leak(now)
		s.level = max(0, s.level-min(n, unlimited/spec.Scale)*spec.Scale)
	}
	for k := len(s.cells) - 1; k >= 0 && n > 0; k-- {
		back := min(n, s.cells[k].n)
		s.cells[k].n -= back
		n -= back
	}
	s.cells = slices.DeleteFunc(s.cells, func(c cell) bool { return c.n == 0 })
}
