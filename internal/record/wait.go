package record

import (
	"cmp"
	"slices"
)

// Freed is an instant at which held units of a limit are released.
type Freed struct{ At, N int64 }

// SetHeld sets until when how many units of a limit are held, for a record that is only to be read
// and did not get its reservations. It keeps and sorts held.
func (r *Record) SetHeld(limit uint64, held []Freed) {
	slices.SortFunc(held, func(a, b Freed) int { return cmp.Compare(a.At, b.At) })
	if r.partial == nil {
		r.partial = &partial{}
	}
	if r.partial.freed == nil {
		r.partial.freed = make(map[uint64][]Freed)
	}
	r.partial.freed[limit] = held
}

// ends lists the held parts of a limit in the order in which their holds end.
func (r *Record) ends(st *State) []Freed {
	if st.Held == 0 {
		return nil
	}
	if r.partial != nil && r.partial.freed[st.ID] != nil {
		return r.partial.freed[st.ID]
	}
	fs := make([]Freed, 0, len(r.order))
	for _, o := range r.order {
		for i := range o.Parts {
			if p := &o.Parts[i]; p.Held && p.Limit == st.ID {
				fs = append(fs, Freed{o.End, p.N})
			}
		}
	}
	return fs
}

// wait returns the time in µs after which n units would fit if nothing else happened: holds end at
// their end and then count as used. n is at most what an unused limit grants.
func (r *Record) wait(s *Spec, st *State, now, n int64, priority int8) int64 {
	eff := s.Effective[priority]
	fs := r.ends(st)
	switch s.Kind {
	case Bucket:
		return st.waitBucket(s, fs, now, eff*s.Scale-n*s.Scale)
	case Rolling:
		return st.waitRolling(s, fs, now, addSat(addSat(st.Used, st.Held), n)-eff)
	case Calendar:
		return st.waitCalendar(s, fs, now, eff-n)
	case Concurrency:
		need := st.Held + n - eff
		for _, f := range fs {
			if need -= f.N; need <= 0 {
				return f.At - now
			}
		}
	}
	return Never
}

// waitBucket returns when used, in 1/Scale units, is at most want. Held units start to drain when
// their hold ends.
func (st *State) waitBucket(s *Spec, fs []Freed, now, want int64) int64 {
	level, held, at := st.Used, mulSat(st.Held, s.Scale), now
	for i := 0; ; i++ {
		if need := addSat(level, held) - want; need <= 0 {
			return at - now
		} else if t := CeilDiv(need, s.Drain); need <= level && (i == len(fs) || at+t <= fs[i].At) {
			return at + t - now
		}
		if i == len(fs) {
			return Never
		}
		level = max(0, level-mulSat(fs[i].At-at, s.Drain))
		moved := min(held, mulSat(fs[i].N, s.Scale))
		level, held, at = addSat(level, moved), held-moved, fs[i].At
	}
}

// waitRolling returns when need units have left the window. An entry leaves one window after its
// last take.
func (st *State) waitRolling(s *Spec, fs []Freed, now, need int64) int64 {
	n := st.Entries.Len()
	if len(fs) > 0 {
		n-- // the newest entry is the first of the later ones
	}
	for i := range n {
		e := st.Entries.At(i)
		if need -= e.N; need <= 0 {
			return e.Last + st.Window - now
		}
	}
	for _, e := range st.later(s, fs) {
		if need -= e.N; need <= 0 {
			return e.Last + st.Window - now
		}
	}
	return Never
}

// later returns the newest entry and those after it as they will be once all holds are over. Units
// whose hold ends may join the newest entry, which then leaves later. It returns nothing if nothing
// is held.
func (st *State) later(s *Spec, fs []Freed) (es []Entry) {
	if len(fs) == 0 {
		return nil
	}
	margin := st.lateness(s)
	if k := st.Entries.Len(); k > 0 {
		es = append(es, *st.Entries.At(k - 1))
	}
	for _, f := range fs {
		at := f.At + margin
		if k := len(es); k > 0 {
			e := &es[k-1]
			at = max(at, e.Last)
			if at-e.First < s.Join || at == e.First {
				e.Last, e.N = at, addSat(e.N, f.N)
				continue
			}
		}
		es = append(es, Entry{First: at, Last: at, N: f.N})
	}
	return es
}

// waitCalendar goes from window to window until used is at most want.
func (st *State) waitCalendar(s *Spec, fs []Freed, now, want int64) int64 {
	end, carry := st.End, st.Next
	held, margin := st.Held, st.lateness(s)
	for {
		at := end
		_, end = s.Rule.Window(at)
		used := carry
		carry = 0
		// the hold is over: it counts in an earlier window, and in this one if it ended at the
		// boundary
		for len(fs) > 0 && fs[0].At <= at {
			held -= fs[0].N
			if fs[0].At+margin >= at {
				used += fs[0].N
			}
			fs = fs[1:]
		}
		if used+held <= want {
			return at - now
		}
		if len(fs) == 0 && used == 0 {
			return Never
		}
	}
}

// soonest returns a lower bound for the time until excess units fit, assuming that every open hold
// ends now and gives back all it can.
func (st *State) earliestRetry(s *Spec, now, excess int64) int64 {
	back := addSat(st.Held, st.Loose)
	if s.Kind == Bucket {
		back = mulSat(back, s.Scale)
	}
	need := excess - back
	if need <= 0 {
		return 0
	}
	switch s.Kind {
	case Bucket:
		return CeilDiv(need, s.Drain)
	case Rolling:
		for i := range st.Entries.Len() {
			e := st.Entries.At(i)
			if need -= e.N; need <= 0 {
				return e.Last + st.Window - now
			}
		}
	case Calendar:
		return st.End - now
	}
	return 0
}

// resetAt returns when nothing is used any more. Holds count as used from their end. For a calendar
// limit it is the end of the window.
func (r *Record) resetAt(s *Spec, st *State, now int64) int64 {
	switch s.Kind {
	case Calendar:
		return st.End
	case Bucket:
		if st.Held == 0 {
			return now + CeilDiv(st.Used, s.Drain)
		}
		return addSat(now, st.waitBucket(s, r.ends(st), now, 0))
	}
	if s.Kind == Rolling {
		return st.resetRolling(s, r.ends(st), now)
	}
	return r.lastEnd(st, now)
}

// lastEnd returns the end of the last hold with units of a limit, or now.
func (r *Record) lastEnd(st *State, now int64) int64 {
	if r.partial != nil && len(r.partial.freed[st.ID]) > 0 {
		fs := r.partial.freed[st.ID]
		return fs[len(fs)-1].At
	}
	for _, o := range slices.Backward(r.order) {
		for i := range o.Parts {
			if p := &o.Parts[i]; p.Held && p.Limit == st.ID {
				return o.End
			}
		}
	}
	return now
}

// resetRolling returns when the newest entry with units leaves.
func (st *State) resetRolling(s *Spec, fs []Freed, now int64) int64 {
	es := st.later(s, fs)
	for i := len(es) - 1; i >= 0; i-- { //nolint:modernize // as the loop below, and without copies
		if es[i].N > 0 {
			return es[i].Last + st.Window
		}
	}
	for i := st.Entries.Len() - 1; i >= 0; i-- {
		if e := st.Entries.At(i); e.N > 0 {
			return e.Last + st.Window
		}
	}
	return now
}
