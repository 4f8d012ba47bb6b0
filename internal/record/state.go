package record

import "github.com/drawgate/drawgate/internal/calendar"

// State is what one limit of a bucket has used.
type State struct {
	ID      uint64 // of the Spec
	Used    int64  // units that age; bucket: in 1/Scale units; calendar: in the open window
	End     int64  // calendar: end of the open window, even if a later tzdata differs
	Entries Ring   // rolling

	Kind   Kind
	Window int64 // of the Spec
	Held   int64 // units that do not age: held and charged at the end, leased, or concurrency slots
	Loose  int64 // units of open reservations that already age, and that a settlement may give back
	At     int64 // bucket: drained up to here; calendar: start of the open window
	Next   int64 // calendar: units charged ahead to the following window
	// calendar, if Next > 0: end of the following window; 0 if unknown. See count for an unknown
	// open window (At == End)
	After int64
	Rate  int64 // bucket: the rate that was used last
	Peak  int64 // bucket: the highest rate since the oldest open reservation was taken
	Scale int64 // bucket
	Late  int64 // rolling, calendar: the largest margin of what was held since nothing was open
	Ahead int64 // bucket: the latest instant for which units were granted ahead; see raise

	// Only stores with a Blur have these, and keep them beside the record: without them the lead
	// counts as used, which is safe.
	Lead    int64 // bucket, in 1/Scale units: what of Used is no use but stands for units that may come later; see lead
	LeadEnd int64 // bucket: the latest instant at which they come; 0: none may

	Log *Log // rolling: recorded unless nil, for stores that keep entries one by one
}

// lateness is how long after the end of their hold units may still arrive. The holder relies on the
// margin that it was given, whichever version of the policy ends the hold. s may be nil.
func (st *State) lateness(s *Spec) int64 {
	if s == nil {
		return st.Late
	}
	return max(st.Late, s.lateness())
}

// Log records what happened to the entries of a rolling limit since a store cleared it.
type Log struct {
	Dirty  []int64 // First of those that were added or changed
	Older  bool    // one of these was not the newest when it was changed
	Popped int64   // First of the newest entry that was dropped; all before it were dropped, too
}

func newState(s *Spec, now int64) State {
	st := State{ID: s.ID, Kind: s.Kind, Window: s.Window}
	if s.Kind == Bucket {
		st.At, st.Rate, st.Scale = now, s.Rate, s.Scale
	}
	return st
}

// advance brings the state to now. s may be nil if the caller does not know this limit: then a
// bucket does not drain, and a calendar window that is over stays.
func (st *State) advance(s *Spec, now int64) {
	switch st.Kind {
	case Bucket:
		st.drain(s, now)
	case Rolling:
		st.expire(now)
	case Calendar:
		if now >= st.End && s != nil {
			st.roll(s, now)
		}
	}
}

// drain lets a bucket leak until now. If the rate has changed since the last time, it is unknown
// when: the lower of the two drains, so that no unit is created.
func (st *State) drain(s *Spec, now int64) {
	if s == nil { // then the rate is unknown too: nothing drains
		st.At = max(st.At, now)
		return
	}
	if s.Rate != st.Rate {
		st.Leak(s, now)
		old := st.Rate
		st.adopt(s)
		st.raise(old, now)
		return
	}
	dt := now - st.At
	if dt <= 0 {
		return
	}
	if st.Used > 0 {
		st.Used = max(0, st.Used-mulSat(dt, s.Drain))
	}
	st.At = now
}

// Leak drains at the rate of s or the one used last, whichever is lower. Used counts in the parts
// of that rate, so that a whole number drains per µs.
func (st *State) Leak(s *Spec, now int64) {
	if s.Rate < st.Rate {
		st.adopt(s)
	}
	if dt := now - st.At; dt > 0 {
		st.Used = max(0, st.Used-mulSat(dt, st.Rate/(st.Window/st.Scale)))
		st.At = now
	}
}

// adopt switches to the rate of s. Used is rounded up to a whole part: by less than drains in a µs.
func (st *State) adopt(s *Spec) {
	st.Used = rescale(st.Used, st.Scale, s.Scale)
	st.Rate, st.Scale = s.Rate, s.Scale
	st.Lead, st.LeadEnd = 0, 0
	if st.Peak > 0 {
		st.Peak = max(st.Peak, s.Rate)
	}
}

// expire drops the entries whose window is over: a unit counted at t counts in [t, t+window).
func (st *State) expire(now int64) {
	for st.Entries.Len() > 0 {
		e := st.Entries.At(0)
		if e.Last+st.Window > now {
			st.Entries.due = e.Last
			return
		}
		st.Used = max(0, st.Used-e.N)
		if st.Log != nil {
			st.Log.Popped = e.First
		}
		st.Entries.Pop()
	}
}

// roll opens the window that contains now. An open window stays open until its end, even if the
// clock runs backwards or tzdata changes.
func (st *State) roll(s *Spec, now int64) {
	start, end := s.Rule.Window(now)
	carry := int64(0)
	if st.End > 0 && (start <= st.End || start < st.After) {
		carry = st.Next
	}
	st.At, st.End, st.Used, st.Next, st.After = start, end, carry, 0, 0
}

// used returns the units that count now, rounded up.
func (st *State) used(now int64) int64 {
	u := st.Used
	if st.Kind == Bucket {
		u = CeilDiv(u-st.lead(now), st.Scale)
	}
	return addSat(u, st.Held)
}

// lead returns how much of what is used, in 1/Scale units, stands for units that may come later
// than now. A unit of a store whose clock may be behind by Blur comes up to that much later, and
// what drains until then is entered together with it: it keeps the units from draining before they
// have come, but it is no use, and nobody who comes meanwhile has to leave room for it.
func (st *State) lead(now int64) int64 {
	if st.LeadEnd <= now {
		return 0
	}
	return min(st.Lead, st.Used, mulSat(st.LeadEnd-now, st.Rate/(st.Window/st.Scale)))
}

// excess returns by how much n more units would exceed what may be used: 0 if they fit. For a
// bucket it is in 1/Scale units. The state has been advanced to now.
func (st *State) excess(s *Spec, now, n int64, priority int8) int64 {
	eff := s.Effective[priority]
	if s.Kind == Bucket {
		return max(0, addSat(st.Used-st.lead(now), mulSat(addSat(st.Held, n), s.Scale))-eff*s.Scale)
	}
	over := addSat(addSat(st.Used, st.Held), n) - eff
	if s.Kind == Calendar && now+s.reach() >= st.End {
		over = max(over, addSat(addSat(st.Next, st.Held), n)-eff)
	}
	return max(0, over)
}

// room returns how many units would be granted now.
func (st *State) room(s *Spec, now int64, priority int8) int64 {
	eff := s.Effective[priority]
	if s.Kind == Bucket {
		return max(0, (eff*s.Scale-st.Used+st.lead(now))/s.Scale-st.Held)
	}
	used := st.Used
	if s.Kind == Calendar && now+s.reach() >= st.End {
		used = max(used, st.Next)
	}
	return max(0, eff-addSat(used, st.Held))
}

// enter counts n units from instant at, whatever the limit says. It returns what a settlement needs
// to find them again. s may be nil: see advance.
func (st *State) enter(s *Spec, at, margin, n int64) (ref int64, both bool) {
	if n <= 0 {
		return 0, false
	}
	n = min(n, maxUsed) // an entry keeps no more
	switch st.Kind {
	case Bucket:
		if s != nil && s.Blur > 0 { // the units may only come then, and what is there drains until then
			if lead := mulCap(s.Blur, st.Rate/(st.Window/st.Scale)); lead > st.Used {
				st.Lead, st.LeadEnd, st.Used = lead-st.Used, at+s.Blur, lead
			}
			st.Ahead = max(st.Ahead, at+s.Blur)
		}
		st.Used = min(addSat(st.Used, mulCap(n, st.Scale)), maxUsed)
		return at, false
	case Rolling:
		join := int64(0)
		if s != nil {
			join = s.Join
		}
		return st.push(at+margin, join, n), false
	case Calendar:
		return st.count(s, at, margin, n)
	}
	return 0, false
}

// push adds n units at instant at to the newest entry, if that entry's first take is near enough,
// or to a new one. An entry never starts before the newest one's last take: units that arrive out
// of order count longer, never shorter.
func (st *State) push(at, join, n int64) int64 {
	st.Used = min(addSat(st.Used, n), maxUsed)
	if k := st.Entries.Len(); k > 0 {
		e := st.Entries.At(k - 1)
		at = max(at, e.Last)
		if at-e.First < join || at == e.First {
			e.Last = at
			e.N = min(addSat(e.N, n), maxUsed)
			st.touch(e.First)
			return e.First
		}
	}
	st.Entries.Push(Entry{First: at, Last: at, N: n})
	st.touch(at)
	return at
}

func (st *State) touch(first int64) {
	l := st.Log
	if l == nil {
		return
	}
	l.Older = l.Older || first != st.Entries.At(st.Entries.Len()-1).First
	if len(l.Dirty) == 0 || l.Dirty[len(l.Dirty)-1] != first {
		l.Dirty = append(l.Dirty, first)
	}
}

// count charges the open window and, if [at, at+margin] crosses its end, the following one too.
func (st *State) count(s *Spec, at, margin, n int64) (ref int64, both bool) {
	if at >= st.End && s != nil {
		st.roll(s, at)
	}
	// the zone is not known any more: the window that starts before at + margin is charged for
	// whoever uses the limit next
	if at >= st.End {
		st.Next = min(addSat(st.Next, n), maxUsed)
		st.At, st.End, st.Used, st.After = at, at, 0, max(st.After, at+margin+1)
		return st.End, false
	}
	if at < st.At { // a window that is over
		return 0, false
	}
	st.Used = min(addSat(st.Used, n), maxUsed)
	if at+margin < st.End {
		return st.End, false
	}
	st.Next = min(addSat(st.Next, n), maxUsed)
	if st.After == 0 && s != nil {
		_, st.After = s.Rule.Window(st.End)
	}
	return st.End, true
}

// until returns the instant from which nothing that ages is used.
func (st *State) until() int64 {
	switch st.Kind {
	case Bucket:
		if st.Used > 0 {
			return addSat(st.At, CeilDiv(st.Used, st.Rate/(st.Window/st.Scale)))
		}
	case Rolling:
		if k := st.Entries.Len(); k > 0 {
			return addSat(st.Entries.At(k-1).Last, st.Window)
		}
	case Calendar:
		if st.Next > 0 && (st.After == 0 || st.At == st.End) { // the window that they count in is unknown
			return addSat(max(st.End, st.After), calendar.Longest)
		}
		if st.Next > 0 {
			return st.After
		}
		if st.Used > 0 {
			return st.End
		}
	}
	return 0
}
