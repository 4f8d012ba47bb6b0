package model

import (
	"math"
	"math/big"
	"slices"

	"github.com/drawgate/drawgate/internal/record"
)

// Ask is one bucket's part of a take, like record.Ask.
type Ask struct {
	Ledger  *Ledger
	Specs   []record.Spec
	N       record.Amounts
	Out     [record.MaxLimits]record.Result
	Granted record.Amounts
}

// begin brings all ledgers to now, or to the latest instant that one of them has seen.
func begin(asks []Ask, now int64) int64 {
	for i := range asks {
		now = max(now, asks[i].Ledger.last)
	}
	for i := range asks {
		asks[i].Ledger.advance(asks[i].Specs, now)
	}
	return now
}

// Decide decides one take over its buckets: all or nothing. The verdict's EarliestRetry is exact
// here; in other implementations it may be earlier.
func Decide(asks []Ask, t *record.Take, now int64) record.Verdict {
	late := t.ID != "" && t.NotAfter != 0 && now > t.NotAfter
	now = begin(asks, now)
	v := record.Verdict{Now: now}
	open := 0
	if t.ID != "" {
		for i := range asks {
			h := asks[i].Ledger.holds[t.ID]
			if h == nil {
				continue
			}
			if h.grant != t.Grant {
				return record.Verdict{Now: now, Other: true}
			}
			if open == 0 || h.end < v.End {
				v.End = h.end
			}
			v.Start = max(v.Start, h.at)
			open++
		}
		for i := range asks {
			h := asks[i].Ledger.holds[t.ID]
			if open > 0 && (open < len(asks) || h.fingerprint != t.Fingerprint) {
				return record.Verdict{Now: now, Reused: true}
			}
			if open > 0 {
				asks[i].Granted = h.amounts(asks[i].Specs)
			}
		}
	}
	switch {
	case open > 0:
		return replay(asks, t, late, v)
	case late:
		return record.Verdict{Now: now, Late: true}
	}
	v.Paused = !t.Given && paused(asks, &v)
	if !v.Paused {
		v.Start, v.Allowed = start(asks, t, now)
	}
	if v.Allowed {
		if t.Hold > 0 {
			for i := range asks {
				if len(asks[i].Ledger.holds) >= record.MaxOpen {
					return record.Verdict{Now: now, Full: true}
				}
			}
			v.End = v.Start + t.Hold
		}
		for i := range asks {
			asks[i].charge(t, now, v.Start, v.End)
		}
	}
	answerAll(asks, t, &v)
	return v
}

// paused refuses a take if a bucket is paused.
func paused(asks []Ask, v *record.Verdict) (paused bool) {
	for i := range asks {
		if rest := asks[i].Ledger.pause.Until - v.Now; rest > 0 {
			paused = true
			v.RetryAfter, v.EarliestRetry = max(v.RetryAfter, rest), max(v.EarliestRetry, rest)
		}
	}
	return paused
}

// replay answers a grant that is already open: with the same answer, or, if that is too long ago
// for a limit, as if it were cancelled and taken now.
func replay(asks []Ask, t *record.Take, late bool, v record.Verdict) record.Verdict {
	aged := false
	for i := range asks {
		h := asks[i].Ledger.holds[t.ID]
		for _, p := range h.parts {
			aged = aged || !p.held && v.Now > h.at+p.margin
		}
	}
	v.Allowed, v.Replayed = true, true
	if !aged {
		answerAll(asks, t, &v)
		return v
	}
	if late {
		return record.Verdict{Now: v.Now, Late: true}
	}
	without := make([]Ask, len(asks))
	for i := range asks {
		without[i] = Ask{Ledger: asks[i].Ledger.clone(), Specs: asks[i].Specs, N: asks[i].N}
		l := without[i].Ledger
		h := l.holds[t.ID]
		for k := range h.parts {
			p := &h.parts[k]
			if spec := known(asks[i].Specs, p.limit); spec != nil && !p.held {
				lim := l.limits[p.limit]
				lim.settle(p, 0, v.Now, true)
				p.n, p.again = 0, p.n
			}
		}
	}
	again := record.Verdict{Now: v.Now}
	again.Paused = !t.Given && paused(asks, &again)
	if !again.Paused {
		again.Allowed = true
		for i := range without {
			for _, p := range without[i].Ledger.holds[t.ID].parts {
				if p.again > 0 {
					lim, held := without[i].Ledger.limits[p.limit], without[i].Ledger.pending(p.limit)
					again.Allowed = again.Allowed && lim.wait(held, v.Now, p.again, t.Priority) == 0
				}
			}
		}
	}
	if !again.Allowed {
		answerAll(without, t, &again)
		for i := range asks {
			asks[i].Out = without[i].Out
		}
		return again
	}
	for i := range without {
		l := without[i].Ledger
		h := l.holds[t.ID]
		h.at = v.Now
		for k := range h.parts {
			if p := &h.parts[k]; p.again > 0 {
				lim := l.limits[p.limit]
				p.n, p.again, p.at, p.margin = p.again, 0, v.Now, lim.holdMargin()
				p.counted = lim.count(v.Now, p.margin, p.n)
			} else if !p.held {
				p.margin = math.MaxInt64 / 4 // another version's limit: it stays unchanged
			}
		}
		*asks[i].Ledger = *l
	}
	v.Start = v.Now
	answerAll(asks, t, &v)
	return v
}

func known(specs []record.Spec, id uint64) *record.Spec {
	for i := range specs {
		if specs[i].ID == id {
			return &specs[i]
		}
	}
	return nil
}

// start returns the first instant from now, at most t.Ahead later, at which the take fits if
// nothing else happens and no hold ends.
func start(asks []Ask, t *record.Take, now int64) (at int64, ok bool) {
	if fits(asks, t, now) {
		return now, true
	}
	if t.Lease {
		return 0, false
	}
	for at = now; at <= now+t.Ahead; {
		next := at
		for i := range asks {
			for j := range asks[i].Specs {
				if asks[i].N[j] > 0 {
					next = max(next, asks[i].fitsFrom(j, t, at))
				}
			}
		}
		if next == at {
			for i := range asks {
				asks[i].Granted = asks[i].N
			}
			return at, t.Ahead > 0
		}
		at = next
	}
	return 0, false
}

// fitsFrom returns the first instant at or after at at which one limit has room.
func (a *Ask) fitsFrom(j int, t *record.Take, at int64) int64 {
	s, n := &a.Specs[j], a.N[j]
	lim, held := a.Ledger.limits[s.ID], a.Ledger.pending(s.ID)
	if n > s.Effective[t.Priority] || s.Kind == record.Concurrency && t.Hold == 0 {
		return math.MaxInt64
	}
	for i := range held {
		held[i].end = math.MaxInt64 / 2
	}
	at = first(at, func(x int64) bool { return n <= s.Effective[t.Priority]-lim.used(held, x) })
	if s.Kind == record.Calendar && at < math.MaxInt64/2 { // no further ahead than the next window
		_, end := s.Rule.Window(a.Ledger.last)
		if _, next := s.Rule.Window(end); at >= end && at+s.Margin >= next {
			return math.MaxInt64
		}
	}
	return at
}

func answerAll(asks []Ask, t *record.Take, v *record.Verdict) {
	for i := range asks {
		for j := range asks[i].Specs {
			n := asks[i].N[j]
			if v.Allowed {
				n = 0
			} else if t.Lease {
				n = min(n, 1)
			}
			earliest := asks[i].answer(j, v.Now, n, t.Priority)
			v.RetryAfter = max(v.RetryAfter, asks[i].Out[j].RetryAfter)
			v.EarliestRetry = max(v.EarliestRetry, earliest)
		}
	}
}

func (h *hold) amounts(specs []record.Spec) (a record.Amounts) {
	for _, p := range h.parts {
		for j := range specs {
			if specs[j].ID == p.limit {
				a[j] = p.n
			}
		}
	}
	return a
}

func fits(asks []Ask, t *record.Take, now int64) bool {
	for i := range asks {
		a := &asks[i]
		a.Granted = a.N
		for j := range a.Specs {
			n, s := a.N[j], &a.Specs[j]
			if n == 0 {
				continue
			}
			lim, held := a.Ledger.limits[s.ID], a.Ledger.pending(s.ID)
			least := n
			if t.Lease {
				a.Granted[j], least = min(n, lim.room(held, now, t.Priority)), 1
			}
			if s.Kind == record.Concurrency && t.Hold == 0 || lim.wait(held, now, least, t.Priority) > 0 {
				return false
			}
		}
	}
	return true
}

// charge counts, from at, what was granted at now.
func (a *Ask) charge(t *record.Take, now, at, end int64) {
	h := &hold{grant: t.Grant, lease: t.Lease, fingerprint: t.Fingerprint, at: at, end: end}
	for j := range a.Specs {
		n, s := a.Granted[j], &a.Specs[j]
		if n == 0 {
			continue
		}
		lim := a.Ledger.limits[s.ID]
		p := part{limit: s.ID, n: n, at: at, margin: lim.holdMargin(), held: s.Kind == record.Concurrency ||
			end != 0 && (t.Lease || s.ChargeEnd)}
		if p.held && s.Kind != record.Bucket && s.Kind != record.Concurrency {
			lim.late = max(lim.late, p.margin)
		}
		if !p.held {
			p.counted = lim.countAhead(now, at, p.margin, n)
		}
		if end != 0 {
			lim.peak = max(lim.peak, s.Rate)
		}
		h.parts = append(h.parts, p)
	}
	if end != 0 {
		if a.Ledger.holds == nil {
			a.Ledger.holds = map[string]*hold{}
		}
		a.Ledger.holds[t.ID] = h
	}
}

// answer describes one limit for a take of n units, and returns how soon it could pass if
// everything held were given back.
func (a *Ask) answer(j int, now, n int64, priority int8) (earliest int64) {
	s := &a.Specs[j]
	lim, held := a.Ledger.limits[s.ID], a.Ledger.pending(s.ID)
	a.Out[j] = record.Result{Remaining: lim.room(held, now, priority), ResetAt: lim.reset(held, now)}
	if n == 0 {
		return 0
	}
	a.Out[j].RetryAfter = lim.wait(held, now, n, priority)
	return a.Ledger.cancelled(lim).wait(nil, now, n, priority)
}

// Peek returns what a take would get, and changes nothing. Afterwards a.Ledger is a copy at the
// instant of the answer.
func Peek(a *Ask, priority int8, now int64) record.Verdict {
	a.Ledger.last = max(a.Ledger.last, now)
	a.Ledger = a.Ledger.clone()
	asks := []Ask{*a}
	v := record.Verdict{Now: begin(asks, now)}
	v.Paused = paused(asks, &v)
	for j := range a.Specs {
		earliest := asks[0].answer(j, v.Now, a.N[j], priority)
		v.RetryAfter = max(v.RetryAfter, asks[0].Out[j].RetryAfter)
		v.EarliestRetry = max(v.EarliestRetry, earliest)
	}
	v.Allowed = v.RetryAfter == 0
	a.Out = asks[0].Out
	return v
}

// Settle ends a reservation with what was really used, or with nothing; record.Keep means the
// estimate.
func Settle(asks []Ask, id string, grant uint64, cancel bool, now int64) (settled bool) {
	now = begin(asks, now)
	for i := range asks {
		l := asks[i].Ledger
		h := l.holds[id]
		if h == nil || h.grant != grant {
			continue
		}
		settled = true
		for k := range h.parts {
			p := &h.parts[k]
			n, known := p.n, false
			for j := range asks[i].Specs {
				if asks[i].Specs[j].ID == p.limit {
					known = true
					if asks[i].N[j] != record.KeepEstimate {
						n = asks[i].N[j]
					}
				}
			}
			if cancel {
				n = 0
			}
			l.limits[p.limit].settle(p, n, now, known)
		}
		for j := range asks[i].Specs {
			s := &asks[i].Specs[j]
			held := slices.ContainsFunc(h.parts, func(p part) bool { return p.limit == s.ID })
			if !cancel && !held && asks[i].N[j] > 0 && s.Kind != record.Concurrency {
				l.limits[s.ID].count(now, 0, asks[i].N[j])
			}
		}
		l.close(id)
	}
	return settled
}

func (lim *limit) settle(p *part, n, now int64, known bool) {
	switch {
	case p.held:
		lim.age(p, n, now, known, 0)
	case lim.spec.Kind != record.Bucket:
		p.counted.n = n
	case n >= p.n:
		lim.debit(n - p.n)
	default:
		lim.level = atLeast0(new(big.Int).Sub(lim.level, lim.credit(p, n, now)))
		lim.round()
	}
}

// Renew makes a hold end at now + d, but not earlier than before. It reports whether the ID was
// open, and the end.
func Renew(asks []Ask, id string, grant uint64, d, now int64) (renewed bool, end int64) {
	now = begin(asks, now)
	for i := range asks {
		if h := asks[i].Ledger.holds[id]; h != nil && h.grant == grant {
			h.end = max(h.end, now+d)
			renewed, end = true, max(end, h.end)
		}
	}
	return renewed, end
}

// KeptLease reports whether a lease is not renewed because one of its buckets is paused, and when
// it ends.
func KeptLease(asks []Ask, id string, grant uint64, now int64) (end int64, kept bool) {
	now = begin(asks, now)
	for i := range asks {
		if h := asks[i].Ledger.holds[id]; h != nil && h.grant == grant {
			kept = kept || h.lease && asks[i].Ledger.pause.Until > now
			if end == 0 || h.end < end {
				end = h.end
			}
		}
	}
	return end, kept
}

// PauseUntil makes the buckets refuse every take until an instant, but never shortens a pause. It
// returns when the last pause ends, and whether all of them last longer.
func PauseUntil(asks []Ask, until int64, reason string, now int64) (end int64, kept bool) {
	now = begin(asks, now)
	longer := 0
	for i := range asks {
		l := asks[i].Ledger
		l.endPause(now)
		if until > now && until > l.pause.Until {
			l.pause = record.Pause{Until: until, Reason: reason}
		}
		if l.pause.Until > max(now, until) {
			longer++
		}
		end = max(end, l.pause.Until)
	}
	return end, longer == len(asks)
}

// Unpause ends the pauses that end at until, and no other. It returns when the last one that is
// left ends.
func Unpause(asks []Ask, until, now int64) (end int64) {
	now = begin(asks, now)
	for i := range asks {
		l := asks[i].Ledger
		if l.endPause(now); l.pause.Until == until {
			l.pause = record.Pause{}
		}
		end = max(end, l.pause.Until)
	}
	return end
}

// endPause forgets a pause that is over.
func (l *Ledger) endPause(now int64) {
	if l.pause.Until <= now {
		l.pause = record.Pause{}
	}
}

// Charge counts units that were used at instant at: calendar limits in the window of that instant,
// the others now. Concurrency limits are left alone.
func Charge(asks []Ask, at, now int64) {
	now = begin(asks, now)
	for i := range asks {
		for j := range asks[i].Specs {
			lim := asks[i].Ledger.limits[asks[i].Specs[j].ID]
			switch lim.spec.Kind {
			case record.Concurrency:
			case record.Calendar:
				lim.count(min(at, now), 0, asks[i].N[j])
			default:
				lim.count(now, 0, asks[i].N[j])
			}
		}
	}
}
