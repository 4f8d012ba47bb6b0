package record

import "slices"

// Settle ends a reservation in every bucket that knows it, with what was really used: asks[i].N per
// limit, or [KeepEstimate] for the estimate. Limits that the caller's policy does not have keep the
// estimate; of those of which nothing was reserved it counts from now, as a charge does. With
// cancel everything is given back. It reports whether the grant was open anywhere.
func Settle(asks []Ask, id string, grant uint64, cancel bool, now int64) (settled bool, at int64) {
	now = latest(asks, now)
	advance(asks, now)
	for i := range asks {
		r, specs := asks[i].Rec, asks[i].Specs
		o := r.Open[id]
		if o == nil || o.Grant != grant {
			continue
		}
		settled = true
		for k := range o.Parts {
			p := &o.Parts[k]
			n := used(specs, &asks[i].N, p, cancel) //nolint:gosec // i is of asks
			r.settlePart(specs, p, n, now)
			asks[i].settledPassed(o, p, n, now) //nolint:gosec // as above
		}
		if !cancel {
			asks[i].chargeRest(o, now) //nolint:gosec // as above
		}
		r.forget(id)
	}
	return settled, now
}

// chargeRest counts what was used of limits of which a reservation has nothing.
func (a *Ask) chargeRest(o *Open, now int64) {
	for j := range a.Specs {
		s, n := &a.Specs[j], a.N[j]
		if n <= 0 || s.Kind == Concurrency || slices.ContainsFunc(o.Parts,
			func(p Part) bool { return p.Limit == s.ID }) {
			continue
		}
		a.Rec.ensure(a.Specs, j, now).enter(s, now, 0, n)
	}
}

// used returns how much a settlement says was used of one part.
func used(specs []Spec, actual *Amounts, p *Part, cancel bool) int64 {
	if cancel {
		return 0
	}
	for j := range specs {
		if specs[j].ID == p.Limit && actual[j] != KeepEstimate {
			return min(actual[j], maxUsed)
		}
	}
	return p.N
}

// settlePart corrects one limit. Held units are entered now; units that already count are corrected
// where they were counted.
func (r *Record) settlePart(specs []Spec, p *Part, n, now int64) {
	if p.Held {
		r.closePart(specs, p, n, now)
		return
	}
	st := r.byID(p.Limit)
	if st == nil {
		return
	}
	st.Loose -= p.N
	st.correct(p, n, now)
}

// correct corrects a part that already counts, where it was counted: n units of it were used.
func (st *State) correct(p *Part, n, now int64) {
	switch st.Kind {
	case Bucket:
		st.settleBucket(p, n, now)
	case Rolling:
		if e := st.Entries.Find(p.Ref); e != nil {
			was := e.N
			e.N = max(0, min(was+n-p.N, maxUsed))
			st.Used = max(0, min(st.Used+e.N-was, maxUsed))
			st.touch(e.First)
		}
	case Calendar:
		st.settleCalendar(p, n-p.N)
	}
}

// settleBucket gives back at most what cannot have drained between the take and the latest instant
// at which others may have been granted units: now, or State.Ahead if that is later. Those who came
// after the take rely on no more. At most rate × elapsed can have drained, at the highest rate
// since. (Limiting what is used to the burst instead would create units.) What exceeds the estimate
// is debt.
func (st *State) settleBucket(p *Part, n, now int64) {
	if n >= p.N {
		st.Used = min(addSat(st.Used, mulCap(n-p.N, st.Scale)), maxUsed)
		return
	}
	st.Lead, st.LeadEnd = 0, 0 // it may have belonged to what is given back
	undrained := max(0, mulCap(p.N, st.Scale)-st.drained(max(0, max(now, st.Ahead)-p.Ref)))
	st.Used = max(0, st.Used-min(mulCap(p.N-n, st.Scale), undrained))
}

// spared returns how many of the parts that come free at instant at may be given back: not those
// that drain before the latest instant for which others were granted units ahead, because those
// others would then find less.
func (st *State) spared(parts, at int64) int64 {
	if st.Ahead <= at {
		return parts
	}
	return max(0, parts-st.drained(st.Ahead-at))
}

// drained returns the most, in 1/Scale units and rounded up, that can have drained in dt µs at the
// highest rate since the oldest open take.
func (st *State) drained(dt int64) int64 {
	perUS := st.Window / st.Scale
	if st.Peak <= st.Rate {
		return mulSat(dt, st.Rate/perUS)
	}
	return mulDivUp(dt, st.Peak, perUS)
}

// settleCalendar corrects the windows in which the units were counted, unless they are over.
func (st *State) settleCalendar(p *Part, d int64) {
	switch {
	case p.Ref == st.End:
		st.Used = max(0, min(st.Used+d, maxUsed))
		if p.Both {
			st.Next = max(0, min(st.Next+d, maxUsed))
		}
	case p.Both && st.At <= p.Ref && p.Ref < st.End: // the window that was ahead is now open
		st.Used = max(0, min(st.Used+d, maxUsed))
	case p.Ref == st.After && st.Next > 0: // booked in the window that is ahead
		st.Next = max(0, min(st.Next+d, maxUsed))
	}
}

// Renew sets the end of a reservation's hold to now + hold, but never earlier than it was, in every
// bucket that knows it. It reports whether the grant was open anywhere, and the end that its holder
// is told: see blurOf. See [KeptLease] for leases that are not renewed.
func Renew(asks []Ask, id string, grant uint64, hold, now int64) (renewed bool, end, at int64) {
	now = latest(asks, now)
	advance(asks, now)
	blur := blurOf(asks)
	for i := range asks {
		r := asks[i].Rec
		o := r.Open[id]
		if o == nil || o.Grant != grant {
			continue
		}
		renewed = true
		until := max(o.End, now+hold+blur)
		asks[i].renewPassed(o, until, now)
		r.unorder(o)
		o.End = until
		r.enorder(o)
		r.touch(id)
		end = max(end, o.End-blur)
	}
	return renewed, end, now
}

// KeptLease reports whether a grant is a lease with a paused bucket, which is then renewed in none
// of its buckets, and when it ends.
func KeptLease(asks []Ask, id string, grant uint64, now int64) (end int64, kept bool) {
	advance(asks, latest(asks, now))
	for i := range asks {
		r := asks[i].Rec
		o := r.Open[id]
		if o == nil || o.Grant != grant {
			continue
		}
		kept = kept || o.Lease && r.Pause != nil
		if promised := o.End - blurOf(asks); end == 0 || promised < end {
			end = promised
		}
	}
	return end, kept
}

// PauseUntil makes the buckets refuse every take until an instant, or longer if they are already
// paused for longer. It returns when the last of these pauses ends, and whether all buckets are
// paused for longer. An instant in the past changes nothing.
func PauseUntil(asks []Ask, until int64, reason string, now int64) (end int64, kept bool) {
	now = latest(asks, now)
	advance(asks, now)
	kept = true
	for i := range asks {
		r := asks[i].Rec
		if until > max(now, r.pausedUntil()) {
			r.Pause = &Pause{Until: until, Reason: reason}
		}
		end, kept = max(end, r.pausedUntil()), kept && r.pausedUntil() > max(now, until)
	}
	return end, kept
}

// Unpause ends the pauses that end at until. It returns when the last of the pauses that are left
// ends; 0 if none is.
func Unpause(asks []Ask, until, now int64) (end int64) {
	advance(asks, latest(asks, now))
	for i := range asks {
		r := asks[i].Rec
		if r.pausedUntil() == until {
			r.Pause = nil
		}
		end = max(end, r.pausedUntil())
	}
	return end
}

// Charge counts asks[i].N units that were used at instant at, whatever the limits say: calendar
// limits in the window of that instant if it is still open, the others now. Concurrency limits are
// left alone.
func Charge(asks []Ask, at, now int64) int64 {
	now = latest(asks, now)
	advance(asks, now)
	for i := range asks {
		r := asks[i].Rec
		for j := range asks[i].Specs {
			s, n := &asks[i].Specs[j], asks[i].N[j] //nolint:gosec // there are as many amounts as specs
			if n <= 0 || s.Kind == Concurrency {
				continue
			}
			st := r.ensure(asks[i].Specs, j, now) //nolint:gosec // as above
			if s.Kind == Calendar {
				st.enter(s, min(at, now), 0, n)
			} else {
				st.enter(s, now, 0, n)
			}
		}
	}
	return now
}
