package record

// SeenLife is how long after an instant a refund, or a charge, that follows from what was seen then
// may arrive, in µs. It is the same as store.SendLife.
const SeenLife = 2_000_000

// TooLate reports whether what was seen at an instant was seen too long ago to charge or to give
// back something because of it.
func TooLate(asks []Ask, at, now int64) bool { return latest(asks, now)-at > SeenLife }

// Refund gives back asks[i].N units that were taken without an ID, as far as they are there.
// asks[i].Got is what it gave back.
//
// It is unknown which take the units belong to. So they are taken from what counts now and would
// count longest: the newest entries of a rolling limit, the open window of a calendar limit (not
// the one that is charged ahead), the level of a bucket. Units of open reservations stay: their own
// settlements give them back. Concurrency limits and limits without a state are left alone.
//
// at, if it is not 0, is when somebody saw that the units are used: calendar windows that were
// opened later are left alone, and later than SeenLife nothing is given back.
func Refund(asks []Ask, at, now int64) int64 {
	now = latest(asks, now)
	advance(asks, now)
	for i := range asks {
		a := &asks[i]
		a.Granted = Amounts{}
		if at != 0 && now-at > SeenLife {
			continue
		}
		for j := range a.Specs {
			st := a.Rec.state(&a.Specs[j], j)
			if st != nil && a.N[j] > 0 && (at == 0 || st.Kind != Calendar || st.At <= at) {
				a.Granted[j] = a.Rec.refund(st, a.N[j])
				a.Rec.forgetPast(st.ID) // the units may be theirs
			}
		}
	}
	return now
}

// refund gives back at most n units of an advanced limit, and returns how many, rounded up for a
// bucket.
func (r *Record) refund(st *State, n int64) (back int64) {
	switch st.Kind {
	case Bucket:
		// It is unknown how much of the drained units belonged to open reservations. So all of
		// theirs are assumed to be still there.
		parts := min(st.spared(mulCap(n, st.Scale), r.Last), max(0, st.Used-mulCap(st.Loose, st.Scale)))
		st.Used -= parts
		st.Lead, st.LeadEnd = 0, 0
		return CeilDiv(parts, st.Scale)
	case Rolling:
		return st.refundRolling(r.reserved(st), n)
	case Calendar:
		back = min(n, max(0, st.Used-r.reserved(st)[st.End]))
		st.Used -= back
	}
	return back
}

// refundRolling removes n units from the newest entries, except for those of open reservations.
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

// reserved returns the units of open reservations that already count, by where they count: an
// entry's First, or the end of the open window.
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
			if st.Kind == Calendar && p.Both && st.At <= ref && ref < st.End { // the window that was ahead is now open
				ref = st.End
			}
			at[ref] = addSat(at[ref], p.N)
		}
	}
	return at
}
