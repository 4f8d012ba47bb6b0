package simulator

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// pruneAt is how many counters there may be before those are removed that count nothing.
const pruneAt = 4096

// hold is what one limit counts of a call.
type hold struct {
	dimension Dimension
	window    Window
	counter   *keptCounter
	entry     *entry // what was counted at the admission; nil if that was nothing
}

// keptCounter is a counter that is kept while it counts something, or while a call runs that may
// add to it.
type keptCounter struct {
	counter
	calls int // that run
}

// state is a limit after a call was admitted or refused, for the headers of the answer.
type state struct {
	limit     *limit
	used      int64
	remaining int64
	full      time.Duration // until nothing is used any more; negative means never
}

// admission is what the limits decided about a call.
type admission struct {
	quota  *Quota // nil: none is for this model
	holds  []hold
	states []state
}

// quotaOf returns the quota for a model, and its place; -1 if there is none. known is false if the
// provider has quotas, but none for this model.
func (s *Server) quotaOf(p Provider, model string) (i int, known bool) {
	known = true
	for i, q := range s.quotas {
		if q.fits(p, model) {
			return i, true
		}
		known = known && q.Provider != p
	}
	return -1, known
}

// admit lets a call pass all its limits, or refuses it and says which were full in c.Refusals. What
// must fit is need, and what is counted is charge. The caller holds s.mu.
func (s *Server) admit(c *Call, i int, now time.Time, charge, need Amounts) (a admission) {
	if i < 0 {
		c.Admitted = true
		return a
	}
	a.quota = &s.quotas[i]
	limits := s.limits[i]
	for j := range limits {
		a.holds = append(a.holds, hold{
			dimension: limits[j].Dimension, window: limits[j].Window,
			counter: s.counter(i, j, c, now),
		})
		a.holds[j].counter.calls++
	}
	for j := range limits {
		l := &limits[j]
		n := need.Of(l.Dimension)
		if n <= 0 {
			continue
		}
		if at := a.holds[j].counter.fits(now, n); !at.Equal(now) {
			c.Refusals = append(c.Refusals, refusal(l, a.holds[j].counter.used(now), n))
		}
	}
	c.Admitted = len(c.Refusals) == 0
	if c.Admitted {
		a.charge(now, charge)
	}
	if !c.Admitted && s.options.Charging[c.Provider].Refused {
		a.countRefused(now)
		c.Charged.Requests = 1
	}
	a.look(limits, c, now)
	return a
}

// look sets when each refusal will pass, and the states.
func (a *admission) look(limits []limit, c *Call, now time.Time) {
	for i := range c.Refusals {
		r := &c.Refusals[i]
		j := slices.IndexFunc(limits, func(l limit) bool { return l.Name == r.Limit })
		r.RetryAfter = -1
		if at := a.holds[j].counter.fits(now, r.Requested); !at.IsZero() {
			r.RetryAfter = at.Sub(now)
		}
	}
	for j := range limits {
		a.states = append(a.states, stateOf(&limits[j], a.holds[j].counter, now))
	}
}

func refusal(l *limit, used, n int64) Refusal {
	r := Refusal{Limit: l.Name, Dimension: l.Dimension, Window: l.Window, Amount: l.Amount, Used: used, Requested: n}
	if l.Window == Bucket {
		r.Amount = l.Burst
	}
	r.Over = max(1, r.Used+r.Requested-r.Amount)
	return r
}

func stateOf(l *limit, c counter, now time.Time) state {
	s := state{limit: l, used: c.used(now), full: -1}
	most := l.Amount
	if l.Window == Bucket {
		most = l.Burst
	}
	s.remaining = max(0, most-s.used)
	if at := c.empty(now); !at.IsZero() {
		s.full = at.Sub(now)
	}
	return s
}

// charge counts amounts, and remembers where.
func (a *admission) charge(now time.Time, amount Amounts) {
	for i := range a.holds {
		if n := amount.Of(a.holds[i].dimension); n > 0 {
			a.holds[i].entry = a.holds[i].counter.add(now, n)
		}
	}
}

// later counts more.
func (a *admission) later(now time.Time, more Amounts) {
	for _, h := range a.holds {
		if n := more.Of(h.dimension); n > 0 {
			h.counter.add(now, n)
		}
	}
}

// giveBack corrects what was counted at the admission.
func (a *admission) giveBack(now time.Time, back Amounts) {
	for _, h := range a.holds {
		if n := back.Of(h.dimension); n > 0 && h.entry != nil {
			h.counter.reduce(now, h.entry, n)
		}
	}
}

// release says that the call counts nothing more.
func (a *admission) release() {
	for _, h := range a.holds {
		h.counter.calls--
	}
}

// countRefused counts a refused call as a request, against limits shorter than a day.
func (a *admission) countRefused(now time.Time) {
	for _, h := range a.holds {
		if h.dimension == Requests && h.window != Day && h.window != Month {
			h.counter.add(now, 1)
		}
	}
}

// counter returns the counter of a limit for those who share it with a call. The caller holds s.mu.
func (s *Server) counter(i, j int, c *Call, now time.Time) *keptCounter {
	k := counterKey{quota: i, limit: j, organization: c.Organization}
	if !s.quotas[i].Shared {
		k.model = c.Model
	}
	l := &s.limits[i][j]
	if l.Scope == Project {
		k.project = c.Project
	}
	if found := s.counters[k]; found != nil {
		return found
	}
	if len(s.counters) >= s.prune {
		for k, c := range s.counters {
			if c.calls == 0 && c.empty(now).Equal(now) {
				delete(s.counters, k)
			}
		}
		s.prune = max(pruneAt, 2*len(s.counters))
	}
	made := &keptCounter{counter: newCounter(l.Limit, l.zone)}
	s.counters[k] = made
	return made
}

// longest returns the refusal that takes longest to pass, which is the one to name. One that never
// passes is the longest.
func longest(all []Refusal) Refusal {
	return slices.MaxFunc(all, func(a, b Refusal) int { return cmp.Compare(wait(a), wait(b)) })
}

func wait(r Refusal) time.Duration {
	if r.RetryAfter < 0 {
		return math.MaxInt64
	}
	return r.RetryAfter
}
