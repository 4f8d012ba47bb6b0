package record

// own is what is known about the grant that a take names.
type own uint8

const (
	unknown own = iota // the ID is not open in any bucket
	mine               // it is open in all of them, by this grant and with this content
	reused             // by this grant, with other content or only in some of the buckets
	others             // by another grant
)

// find looks up the ID of a take, and sets how long its hold lasts and what it was granted.
//
// If an ID is open in only some of the buckets, because the others were settled or reset
// separately, it is not this take any more.
func find(asks []Ask, t *Take, v *Verdict) own {
	open, same := 0, true
	for i := range asks {
		o := asks[i].Rec.Open[t.ID]
		if o == nil {
			continue
		}
		if o.Grant != t.Grant {
			return others
		}
		open++
		same = same && o.Fingerprint == t.Fingerprint
		if v.End == 0 || o.End < v.End {
			v.End = o.End
		}
		v.Start = max(v.Start, o.At)
		for _, p := range o.Parts {
			for j := range asks[i].Specs {
				if asks[i].Specs[j].ID == p.Limit {
					asks[i].Granted[j] = p.N
				}
			}
		}
	}
	switch {
	case open == 0:
		return unknown
	case open < len(asks) || !same:
		return reused
	}
	return mine
}

// replay answers a take that is already open. Within its margin the answer is repeated. Later, its
// units would expire before the work that starts now: they are given back and taken again in one
// step, and the hold's end stays. If they do not fit again the take is refused, and nothing
// changes: the grant stays open until its taker cancels it.
//
// Checked in models/replay.pml.
func replay(asks []Ask, t *Take, late bool, v *Verdict) {
	if !aged(asks, t.ID, v.Now) {
		v.Allowed, v.Replayed = true, true
		answer(asks, t, v)
		return
	}
	end := v.End
	v.End, v.Start = 0, v.Now
	if late {
		*v = Verdict{Now: v.Now, Late: true}
		return
	}
	trial := make([]Ask, len(asks)) // a refusal changes nothing, so it is tried on copies
	for i := range asks {
		trial[i] = asks[i]
		trial[i].Rec = asks[i].Rec.clone()
		trial[i].giveBack(t.ID, v.Now)
	}
	if !t.Given {
		v.paused(asks)
	}
	if !v.Paused {
		v.Allowed = fitsAgain(trial, t, v.Now)
	}
	if !v.Allowed {
		answer(trial, t, v)
		for i := range asks {
			asks[i].Out, asks[i].Granted = trial[i].Out, Amounts{}
		}
		return
	}
	for i := range asks {
		asks[i].giveBack(t.ID, v.Now)
		asks[i].takeAgain(t.ID, v.Now)
	}
	v.Replayed, v.End = true, end
	answer(asks, t, v)
}

// aged reports whether a replay at now comes later than the margin of the grant's units that
// already count.
func aged(asks []Ask, id string, now int64) bool {
	for i := range asks {
		if o := asks[i].Rec.Open[id]; now > addSat(o.At, o.Margin) {
			return true
		}
	}
	return false
}

// moves reports whether a replay takes a part again. Held units do not age, and limits that the
// caller does not know stay unchanged.
func (a *Ask) moves(p *Part) (*Spec, *State) {
	s := specOf(a.Specs, p.Limit)
	if p.Held || s == nil {
		return nil, nil
	}
	return s, a.Rec.byID(p.Limit)
}

// giveBack cancels the units of an open reservation that already count, and leaves it open.
func (a *Ask) giveBack(id string, now int64) {
	for k := range a.Rec.Open[id].Parts {
		p := &a.Rec.Open[id].Parts[k]
		if _, st := a.moves(p); st != nil {
			a.Rec.settlePart(a.Specs, p, 0, now)
		}
	}
}

// fitsAgain tests every limit to which giveBack gave something back.
func fitsAgain(asks []Ask, t *Take, now int64) bool {
	for i := range asks {
		a := &asks[i]
		for k := range a.Rec.Open[t.ID].Parts {
			p := &a.Rec.Open[t.ID].Parts[k]
			if s, st := a.moves(p); st != nil && st.excess(s, now, p.N, t.Priority) > 0 {
				return false
			}
		}
	}
	return true
}

// takeAgain counts the units of an open reservation from now.
func (a *Ask) takeAgain(id string, now int64) {
	o := a.Rec.Open[id]
	was := *o
	o.At, o.Margin = now, forever
	for k := range o.Parts {
		p := &o.Parts[k]
		s, st := a.moves(p)
		if st != nil {
			p.Ref, p.Both = st.enter(s, now, s.lateness(), p.N)
			st.Loose = min(addSat(st.Loose, p.N), maxUsed)
			o.Margin = min(o.Margin, s.way())
		}
		a.againPassed(&was, p, now)
	}
	a.Rec.touch(id)
}
