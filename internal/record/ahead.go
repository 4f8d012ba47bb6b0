package record

// start returns the instant from which the units of a take count: now if it fits, and otherwise the
// first instant at which it fits if nothing else happens until then, at most t.Ahead later; in any
// case t.From or later. Holds are assumed never to end, because they may be renewed.
func start(asks []Ask, t *Take, now int64) (at int64, ok bool) {
	if t.From <= now && fits(asks, t, now) {
		return now, true
	}
	if t.Ahead <= 0 || t.Lease {
		return 0, false
	}
	latest := addSat(now, t.Ahead)
	for at = max(now, t.From); at <= latest; {
		next := earliest(asks, t, now, at)
		if next == at {
			for i := range asks {
				asks[i].Granted = asks[i].N
			}
			return at, true
		}
		at = next
	}
	return 0, false
}

// earliest returns a lower bound, at or after at, for the instants at which the take fits. It is at
// itself if the take fits there.
func earliest(asks []Ask, t *Take, now, at int64) int64 {
	next := at
	for i := range asks {
		a := &asks[i]
		for j := range a.Specs {
			n, s := a.N[j], &a.Specs[j]
			switch st := a.Rec.state(s, j); {
			case n == 0:
			case n > s.Effective[t.Priority], s.Kind == Concurrency && t.Hold == 0:
				return Never
			case st == nil && s.Kind == Calendar:
				_, end := s.Rule.Window(now)
				next = max(next, (&State{End: end}).fitsInWindow(s, at, s.Effective[t.Priority]-n))
			case st != nil:
				next = max(next, st.fitsFrom(s, now, at, n, t.Priority))
			}
			if n > 0 && a.Line != nil && !a.leads(j, t, now) {
				return Never
			}
		}
	}
	return next
}

// fitsFrom returns the first instant at or after at at which n units fit if nothing else happens,
// or Never. The state has been advanced to now; n is at most what an unused limit grants.
func (st *State) fitsFrom(s *Spec, now, at, n int64, priority int8) int64 {
	room := s.Effective[priority] - n - st.Held // for units that age
	if room < 0 {
		return Never
	}
	switch s.Kind {
	case Bucket:
		if over := st.Used - mulSat(room, s.Scale); over > 0 {
			return max(at, addSat(now, CeilDiv(over, s.Drain)))
		}
	case Rolling:
		used := st.Used
		for i := 0; used > room && i < st.Entries.Len(); i++ {
			e := st.Entries.At(i)
			used -= e.N
			at = max(at, e.Last+st.Window)
		}
	case Calendar:
		return st.fitsInWindow(s, at, room)
	}
	return at
}

// fitsInWindow is fitsFrom for a calendar limit: it looks at the open window and the following one,
// because units are charged no further ahead.
func (st *State) fitsInWindow(s *Spec, at, room int64) int64 {
	if at < st.End && st.Used <= room && (at+s.reach() < st.End || st.Next <= room) {
		return at
	}
	at = max(at, st.End)
	_, end := s.Rule.Window(st.End)
	if st.Next > room || at+s.reach() >= end {
		return Never
	}
	return at
}

// enterAhead counts n units from instant at, which is now or later.
func (st *State) enterAhead(s *Spec, now, at, n int64) (ref int64, both bool) {
	margin := s.lateness()
	switch {
	case at == now || st.Kind == Rolling:
		return st.enter(s, at, margin, n)
	case st.Kind == Bucket:
		// The present level drains until then, and the new units follow it: so all of them are
		// there at that instant.
		at += s.Blur
		st.Lead, st.LeadEnd = 0, 0
		st.Used = min(addSat(max(st.Used, mulCap(at-now, s.Drain)), mulCap(n, st.Scale)), maxUsed)
		st.Ahead = max(st.Ahead, at)
		return at, false
	case at < st.End:
		return st.count(s, at, margin, n)
	}
	st.Next = min(addSat(st.Next, n), maxUsed)
	_, st.After = s.Rule.Window(st.End)
	return st.After, false
}

// raise keeps units that were booked ahead from draining faster than planned: a higher rate applies
// to them only from the instant that they were booked for. The rate was old until now.
func (st *State) raise(old, now int64) {
	if st.Ahead > now && st.Rate > old {
		st.Used = min(addSat(st.Used, mulDivUp(st.Ahead-now, st.Rate-old, st.Window/st.Scale)), maxUsed)
	}
}
