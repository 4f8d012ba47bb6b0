package record

// Refund gives asks[i].N units back that were taken without an id, as far as they are there: what
// it gave back is in asks[i].Got.
//
// Nobody knows which take the units are of, so they come off what counts now and would count
// longest: the newest entries of a rolling limit, the open window of a calendar limit (not the one
// that is charged ahead), the level of a bucket. What open reservations took stays: their own
// settlements give that back. Concurrency limits are left alone, and so is a limit of which nothing
// is stored.
func Refund(asks []Ask, now int64) int64 {
	now = latest(asks, now)
	advance(asks, now)
	for i := range asks {
		a := &asks[i]
		a.Got = Amounts{}
		for j := range a.Specs {
			if st := a.Rec.state(&a.Specs[j], j); st != nil && a.N[j] > 0 {
				a.Got[j] = a.Rec.refund(st, a.N[j])
			}
		}
	}
	return now
}

// refund gives back at most n units of an advanced limit, and returns how many; of a bucket rounded
// up.
func (r *Record) refund(st *State, n int64) (back int64) {
	switch st.Kind {
	case Bucket:
		// How much of an open reservation has drained, and how much of what others took, nobody can
		// tell: all of it is taken to be there.
		parts := min(st.spared(mulCap(n, st.Scale), r.Last), max(0, st.Used-mulCap(st.Loose, st.Scale)))
		st.Used -= parts
		return CeilDiv(parts, st.Scale)
	case Rolling:
		return st.refundRolling(r.reserved(st), n)
	case Calendar:
		back = min(n, max(0, st.Used-r.reserved(st)[st.End]))
		st.Used -= back
	}
	return back
}

// refundRolling takes n units off the newest entries, but for those that are reserved there.
func (st *State) refundRolling(reserved map[int64]int64, n int64) (back int64) {
	for i := st.Entries.Len() - 1; i >= 0 && back < n; i-- {
		e := st.Entries.At(i)
		d := min(n-back, max(0, e.N-reserved[e.First]))
		if d == 0 {
			continue
		}
		e.N -= d
		back += d
		st.touch(e.First)
	}
	st.Used = max(0, st.Used-back)
	return back
}

// reserved returns the units of open reservations that count already, by where they do: an entry's
// First, or the end of the open window.
func (r *Record) reserved(st *State) map[int64]int64 {
	if st.Loose == 0 {
		return nil
	}
	at := map[int64]int64{}
	for _, o := range r.Open {
		for i := range o.Parts {
			p := &o.Parts[i]
			if p.Limit != st.ID || p.Held {
				continue
			}
			ref := p.Ref
			if st.Kind == Calendar && p.Both && st.At <= ref && ref < st.End { // the window that was ahead is open now
				ref = st.End
			}
			at[ref] = addSat(at[ref], p.N)
		}
	}
	return at
}
