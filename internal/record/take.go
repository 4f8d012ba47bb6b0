package record

import "time"

// Ask is one bucket's part of a take, with room for the answer.
type Ask struct {
	Rec     *Record
	Specs   []Spec
	N       Amounts           // units asked for, per limit; for a lease, the most wanted
	Out     [MaxLimits]Result // per limit, after the decision
	Granted Amounts           // units charged: N, or less for a lease
	Line    *Line             // of the bucket; nil: the store keeps none
	Rank    int               // of the bucket among those of the take, in an order that all takes agree on
	passes  [MaxLimits]bool   // per limit, whether what is granted passes a ticket
}

// Result is a decision's result for one limit.
type Result struct {
	Remaining  int64 // units that a take of the same priority would be granted right now; never negative
	RetryAfter int64 // µs until this limit would pass the take if nothing else happened; 0 if it passes
	ResetAt    int64 // when nothing is used (calendar: the window's end)
}

// Take is what a take's buckets have in common.
type Take struct {
	ID          string // "" for a plain take
	Grant       uint64 // of a take with an ID: distinguishes logical takes that use the same ID
	Fingerprint uint64 // fingerprint of the content
	Hold        int64  // µs; 0 for a plain take
	NotAfter    int64  // a take with an ID opens nothing later than this, see [Latest]; 0: no bound
	Ahead       int64  // µs: it may be granted for a later instant, at most this far ahead
	From        int64  // it is granted for no earlier instant; 0: none
	Given       bool   // it was allowed before, elsewhere: a pause does not refuse it
	Barge       bool   // it pays no heed to who waits
	Place       *Place // in the line, if it may wait
	Lease       bool
	Priority    int8
}

// Latest returns an instant as a NotAfter, within what records can keep. The zero time is no bound.
func Latest(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case t.After(time.UnixMicro(maxTime)):
		return maxTime
	case t.Before(time.UnixMicro(1)):
		return 1 // which is over
	}
	return t.UnixMicro()
}

// Verdict is the answer to a take.
type Verdict struct {
	Now           int64 // the instant of the decision
	Allowed       bool
	Replayed      bool     // the grant is open: this repeats its answer, and nothing more was charged
	Reused        bool     // the grant is open with different content: nothing was decided
	Other         bool     // the id is open by another grant: nothing was decided
	Late          bool     // it came after its NotAfter: nothing was decided
	Full          bool     // it fits, but MaxOpen reservations are open in one of its buckets: nothing was taken
	Unknown       bool     // refused because of use that was assumed: nobody has seen it
	Paused        bool     // refused because a bucket is paused; a limit may refuse it, too
	Queued        bool     // refused only because others wait in front
	Arrival       int64    // of the ticket that it left, or would leave if it were its turn; 0: there is no line
	Standing      Standing // of that ticket
	PausedAt      int      // position of the bucket whose pause ends last
	Start         int64    // allowed: the instant from which the units count; Now, unless it was granted ahead
	End           int64    // when its holder must have stopped: the hold ends then, or later by the clock's blur
	RetryAfter    int64    // the largest of the refusing limits
	EarliestRetry int64    // µs until it could pass if every open hold ended now; at most RetryAfter
}

// Decide decides one take over its buckets: all or nothing. A refusal changes nothing.
//
// now may be before a record's last change (a clock that was set back): the decision is then made
// as of that change.
func Decide(asks []Ask, t *Take, now int64) Verdict {
	late := t.ID != "" && t.NotAfter != 0 && now > t.NotAfter // by the clock, whatever a record has seen
	now = latest(asks, now)
	v := Verdict{Now: now}
	advance(asks, now)
	lines := inLine(asks)
	if lines {
		openLines(asks, t, now)
	}
	if t.ID != "" {
		switch find(asks, t, &v) {
		case mine:
			replay(asks, t, late, &v)
			return v
		case others:
			return Verdict{Now: now, Other: true}
		case reused:
			return Verdict{Now: now, Reused: true}
		}
		if late {
			return Verdict{Now: now, Late: true}
		}
	}
	if !t.Given {
		v.paused(asks)
	}
	if !v.Paused {
		v.Start, v.Allowed = start(asks, t, now)
	}
	if v.Allowed {
		if t.Hold > 0 {
			if full(asks) {
				return Verdict{Now: now, Full: true}
			}
			v.End = v.Start + t.Hold + blurOf(asks)
		}
		if lines {
			passing(asks, t, &v)
		}
		for i := range asks {
			asks[i].charge(t, &v)
		}
	}
	answer(asks, t, &v)
	switch {
	case !lines:
	case v.Allowed:
		leaveLine(asks, t, now)
	default:
		queued(asks, t, &v)
		standInLine(asks, t, &v)
	}
	return v
}

// blurOf returns by how much the clock may be ahead of the instant that the store says. A hold is
// kept that much longer than its holder is told: the holder's time begins when it asks, which may
// be that much later than the instant of the decision.
func blurOf(asks []Ask) (blur int64) {
	for i := range asks {
		for j := range asks[i].Specs {
			blur = max(blur, asks[i].Specs[j].Blur)
		}
	}
	return blur
}

// Enter counts a take that was allowed before, with all of its units, whatever the limits say now:
// for stores that write down what they granted before they count it. A take whose ID is open is
// counted already. Its hold is kept for as long as t says: what [Decide] adds to it is in it.
func Enter(a *Ask, t *Take, now int64) {
	now = max(now, a.Rec.Last)
	a.Rec.Advance(a.Specs, now)
	if t.ID != "" && a.Rec.Open[t.ID] != nil {
		return
	}
	v := Verdict{Start: now, Now: now}
	if t.Hold > 0 {
		v.End = now + t.Hold
	}
	a.Granted = a.N
	a.charge(t, &v)
}

// paused refuses a take if one of its buckets is paused.
func (v *Verdict) paused(asks []Ask) {
	for i := range asks {
		if until := asks[i].Rec.pausedUntil(); until > v.Now {
			v.Paused = true
			if until-v.Now > v.RetryAfter {
				v.PausedAt = i
			}
			v.RetryAfter, v.EarliestRetry = max(v.RetryAfter, until-v.Now), max(v.EarliestRetry, until-v.Now)
		}
	}
}

// fits tests every limit, and decides how much of it a lease gets.
func fits(asks []Ask, t *Take, now int64) bool {
	for i := range asks {
		a := &asks[i]
		a.Granted = a.N
		for j := range a.Specs {
			n, s := a.N[j], &a.Specs[j]
			if n == 0 {
				continue
			}
			st := a.Rec.state(s, j)
			switch {
			case s.Kind == Concurrency && t.Hold == 0: // nothing would ever free the slot
				return false
			case t.Lease:
				room := s.Effective[t.Priority]
				if st != nil {
					room = st.room(s, now, t.Priority)
				}
				if a.Granted[j] = a.spare(j, min(n, room), t, now); a.Granted[j] == 0 {
					return false
				}
				continue
			case st == nil:
				if n > s.Effective[t.Priority] {
					return false
				}
			case st.excess(s, now, n, t.Priority) > 0:
				return false
			}
			if a.Line != nil {
				if yes, _ := a.yields(j, n, t, now); yes {
					return false
				}
			}
		}
	}
	return true
}

// full reports whether the reservation cannot be opened because one of the buckets has too many.
func full(asks []Ask) bool {
	for i := range asks {
		if len(asks[i].Rec.Open) >= MaxOpen {
			return true
		}
	}
	return false
}

// charge counts the units of an allowed take in one bucket.
func (a *Ask) charge(t *Take, v *Verdict) {
	end, margin := v.End, int64(forever)
	var parts []Part
	if end != 0 {
		parts = make([]Part, 0, len(a.Specs))
	}
	for j := range a.Specs {
		n, s := a.Granted[j], &a.Specs[j]
		if n == 0 {
			continue
		}
		st := a.Rec.ensure(a.Specs, j, v.Now)
		p := Part{Limit: s.ID, N: n, Passed: a.passes[j]}
		if s.holds(t, end) {
			p.Held, p.Ref = true, s.lateness()
			st.Held = min(addSat(st.Held, n), maxUsed)
		} else {
			p.Ref, p.Both = st.enterAhead(s, v.Now, v.Start, n)
			margin = min(margin, s.way())
			if end != 0 {
				st.Loose = min(addSat(st.Loose, n), maxUsed)
			}
		}
		if end != 0 {
			parts = append(parts, p)
		}
	}
	if end != 0 {
		a.Rec.add(t.ID, &Open{
			Grant: t.Grant, Fingerprint: t.Fingerprint, At: v.Start, Margin: margin, End: end, Lease: t.Lease,
			Parts: parts,
		})
	}
}

// answer fills in what the holder is told, and the decision's result for each limit.
func answer(asks []Ask, t *Take, v *Verdict) {
	if v.End != 0 {
		v.End -= blurOf(asks)
	}
	for i := range asks {
		a := &asks[i]
		for j := range a.Specs {
			n := a.N[j]
			if v.Allowed {
				n = 0 // nothing is left to wait for
			} else if t.Lease {
				n = min(n, 1) // a lease accepts any part
			}
			earliest := a.result(j, v.Now, n, t.Priority)
			v.RetryAfter = max(v.RetryAfter, a.Out[j].RetryAfter)
			v.EarliestRetry = max(v.EarliestRetry, earliest)
		}
	}
}

// result describes one limit for a take of n units, and returns how soon it could pass.
func (a *Ask) result(j int, now, n int64, priority int8) (earliest int64) {
	s, res := &a.Specs[j], &a.Out[j]
	st := a.Rec.state(s, j)
	if st == nil {
		*res = Result{Remaining: s.Effective[priority], ResetAt: now}
		if s.Kind == Calendar {
			_, res.ResetAt = s.Rule.Window(now)
		}
	} else {
		*res = Result{Remaining: st.room(s, now, priority), ResetAt: a.Rec.resetAt(s, st, now)}
	}
	if n == 0 {
		return 0
	}
	if n > s.Effective[priority] || n > 0 && s.Effective[priority] <= 0 {
		res.RetryAfter = Never
		return Never
	}
	if st == nil {
		return 0
	}
	over := st.excess(s, now, n, priority)
	if over == 0 {
		return 0
	}
	res.RetryAfter = a.Rec.wait(s, st, now, n, priority)
	if st.Held == 0 && st.Loose == 0 {
		return res.RetryAfter // nothing could come back
	}
	return min(res.RetryAfter, st.earliestRetry(s, now, over))
}

// Peek returns what a take would get, and spends nothing. Afterwards a.Rec has been advanced to the
// instant of the answer; it may be a copy.
func Peek(a *Ask, priority int8, now int64) Verdict {
	now = max(now, a.Rec.Last)
	if a.Rec.MustPersist(a.Specs, now) {
		a.Rec.Last = now
		a.Rec = a.Rec.clone()
	}
	a.Rec.Advance(a.Specs, now)
	asks := [1]Ask{*a}
	v := Verdict{Now: now}
	v.paused(asks[:])
	allowed := !v.Paused
	for j := range a.Specs {
		earliest := asks[0].result(j, now, a.N[j], priority)
		allowed = allowed && asks[0].Out[j].RetryAfter == 0
		v.RetryAfter = max(v.RetryAfter, asks[0].Out[j].RetryAfter)
		v.EarliestRetry = max(v.EarliestRetry, earliest)
	}
	v.Allowed = allowed
	if a.Line != nil {
		t := Take{Priority: priority}
		a.Line.Expire(now)
		queued(asks[:], &t, &v)
		v.Allowed = allowed && !v.Queued
	}
	a.Out = asks[0].Out
	return v
}

// Usage describes one limit of an advanced record.
type Usage struct {
	Used, Held, Debt, Max int64
	Start, End            int64 // calendar: the open window
}

// Usage returns what is used of s. The record has been advanced.
func (r *Record) Usage(s *Spec, priority int8) Usage {
	u := Usage{Max: s.Effective[priority]}
	if s.Kind == Calendar {
		u.Start, u.End = s.Rule.Window(r.Last)
	}
	st := r.byID(s.ID)
	if st == nil {
		return u
	}
	u.Used, u.Held = st.used(r.Last), st.Held
	u.Debt = max(0, u.Used-s.Effective[Priorities-1])
	if s.Kind == Calendar {
		u.Start, u.End = st.At, st.End
	}
	return u
}
