package record

import (
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"slices"
)

// A hold that ends without a settlement counts as used, and its reservation is no longer open. But
// its holder may have been granted the same units by somebody else, who could not reach the store
// and charges them later (package guard). So a record remembers for a while where such units count:
// [Correct] gives back what was not used of them. Of a grant that is open again, because it was
// sent again after its hold, only what is open counts.
//
// Nothing else sees what is remembered: such a reservation is gone, its id is free, and it keeps no
// record alive. If it is forgotten too early, units count twice, never too little.
//
// In bytes it is one more open reservation, with an id of its own, of which nothing is held and
// which ends when it is forgotten: a program of the version before reads it as that.

const (
	// MostPast is how many ended reservations a record remembers. The one that ended first goes
	// first.
	MostPast = 64
	// PastLife is how long after its end, in µs. It is forgotten earlier if its units no longer
	// count.
	PastLife = 3_600_000_000
)

// What tells one from an open reservation: no take has these, and an older program keeps them.
const (
	pastAt     = 0
	pastMargin = 1
)

// past is what a record remembers, the oldest first.
type past struct{ list []*Open }

// pastID returns the id that an ended reservation has in bytes, by its grant and what stands for
// its own id.
func pastID(grant, hash uint64) string {
	return "past " + hex.EncodeToString(binary.BigEndian.AppendUint64(nil, grant^hash))
}

// hashID stands for the id of an ended reservation, in the place of its fingerprint.
func hashID(id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return h.Sum64()
}

// isPast reports whether an open reservation is one that has ended.
func (o *Open) isPast(id string) bool {
	return o.At == pastAt && o.Margin == pastMargin && id == pastID(o.Grant, o.Fingerprint)
}

// remember keeps a reservation whose hold is over, and whose parts were closed.
func (r *Record) remember(specs []Spec, o *Open, now int64) {
	if o.Grant == 0 || o.isPast(o.id) {
		return
	}
	p := &Open{Grant: o.Grant, Fingerprint: hashID(o.id), At: pastAt, Margin: pastMargin}
	p.id = pastID(p.Grant, p.Fingerprint)
	for _, part := range o.Parts {
		if until := r.counts(specs, &part); until > now {
			p.End, part.Passed = max(p.End, until), false
			p.Parts = append(p.Parts, part)
		}
	}
	p.End = min(p.End, o.End+PastLife)
	if p.End <= now || r.Open[p.id] != nil {
		return
	}
	r.drop(func(o *Open) bool { return o.id == p.id })
	if r.past == nil {
		r.past = &past{}
	}
	if len(r.past.list) >= MostPast {
		r.touch(r.past.list[0].id)
		r.past.list = slices.Delete(r.past.list, 0, 1)
	}
	r.past.list = append(r.past.list, p)
	r.touch(p.id)
}

// counts returns until when a part counts whose hold is over; 0 if nothing of it could be given
// back.
func (r *Record) counts(specs []Spec, p *Part) int64 {
	st := r.byID(p.Limit)
	if st == nil || p.Held || p.N == 0 {
		return 0
	}
	switch st.Kind {
	case Bucket:
		// otherwise it is not known how much has drained
		if s := specOf(specs, p.Limit); st.Peak <= st.Rate && (s == nil || s.Rate == st.Rate) {
			return st.until()
		}
	case Rolling:
		if e := st.Entries.Find(p.Ref); e != nil {
			return addSat(e.Last, st.Window)
		}
	case Calendar:
		switch {
		case st.At >= st.End: // nobody knows the window
		case p.Both:
			return max(p.Ref, st.After)
		default:
			return p.Ref
		}
	}
	return 0
}

// agePast forgets what no longer counts at now, and of a bucket limit whose rate changes also the
// rest: it would not be known how much has drained.
func (r *Record) agePast(specs []Spec, now int64) {
	r.drop(func(o *Open) bool { return o.End <= now })
	for i := range specs {
		s := &specs[i]
		if st := r.state(s, i); st != nil && st.Kind == Bucket && st.Rate != s.Rate {
			r.forgetPast(s.ID)
		}
	}
}

// forgetPast forgets what ended reservations had of a limit.
func (r *Record) forgetPast(limit uint64) {
	for _, o := range r.past.all() {
		n := len(o.Parts)
		if o.Parts = slices.DeleteFunc(o.Parts, func(p Part) bool { return p.Limit == limit }); len(o.Parts) < n {
			r.touch(o.id)
		}
	}
	r.drop(func(o *Open) bool { return len(o.Parts) == 0 })
}

// drop forgets some of what is remembered.
func (r *Record) drop(some func(o *Open) bool) {
	if r.past == nil {
		return
	}
	r.past.list = slices.DeleteFunc(r.past.list, func(o *Open) bool {
		yes := some(o)
		if yes {
			r.touch(o.id)
		}
		return yes
	})
	if len(r.past.list) == 0 {
		r.past = nil
	}
	r.settled()
}

// findPast returns the reservation of a grant that has ended and is remembered, or nil.
func (r *Record) findPast(id string, grant uint64) *Open {
	for _, o := range r.past.all() {
		if o.Grant == grant && o.Fingerprint == hashID(id) {
			return o
		}
	}
	return nil
}

// Correct gives back what was not used of a reservation whose hold has ended without a settlement,
// in every bucket that remembers it, once: asks[i].N per limit was used, as in [Settle], before
// which it has to be called. It charges nothing: of more than was granted it knows nothing. It
// returns which buckets remembered it, or nil; asks[i].Granted is what came back.
func Correct(asks []Ask, id string, grant uint64, cancel bool, now int64) (corrected []bool) {
	now = latest(asks, now)
	advance(asks, now)
	for i := range asks {
		a := &asks[i]
		a.Granted = Amounts{}
		o := a.Rec.findPast(id, grant)
		if o == nil {
			continue
		}
		if corrected == nil {
			corrected = make([]bool, len(asks))
		}
		corrected[i] = true
		again := a.Rec.Open[id]
		for k := range o.Parts {
			a.correct(&o.Parts[k], cancel || again != nil && again.Grant == grant, now)
		}
		a.Rec.drop(func(x *Open) bool { return x == o })
	}
	return corrected
}

// correct gives back what was not used of one part.
func (a *Ask) correct(p *Part, cancel bool, now int64) {
	n := min(used(a.Specs, &a.N, p, cancel), p.N)
	st := a.Rec.byID(p.Limit)
	if st == nil {
		return
	}
	was, next := st.Used, st.Next
	st.correct(p, n, now)
	back := max(was-st.Used, next-st.Next)
	if st.Kind == Bucket {
		back = CeilDiv(back, st.Scale)
	}
	for j := range a.Specs {
		if a.Specs[j].ID == p.Limit {
			a.Granted[j] = back
		}
	}
}

// Reservation returns the reservation that has this id in the record's bytes, or nil: one that is
// open, or one that has ended and is remembered.
func (r *Record) Reservation(id string) *Open {
	if o := r.Open[id]; o != nil {
		return o
	}
	for _, o := range r.past.all() {
		if o.id == id {
			return o
		}
	}
	return nil
}

// separate moves what has ended out of the open reservations that were read.
func (r *Record) separate() {
	for id, o := range r.Open {
		if !o.isPast(id) {
			continue
		}
		delete(r.Open, id)
		if r.past == nil {
			r.past = &past{}
		}
		o.id = id
		r.past.list = append(r.past.list, o)
	}
	slices.SortFunc(r.past.all(), sooner)
}

// clone returns a copy that shares nothing.
func (p *past) clone() *past {
	if p == nil {
		return nil
	}
	c := &past{list: slices.Clone(p.list)}
	for i, o := range c.list {
		oc := *o
		oc.Parts = slices.Clone(o.Parts)
		c.list[i] = &oc
	}
	return c
}

// all returns the reservations that are remembered.
func (p *past) all() []*Open {
	if p == nil {
		return nil
	}
	return p.list
}

// has reports whether something of a limit is remembered.
func (p *past) has(limit uint64) bool {
	return slices.ContainsFunc(p.all(), func(o *Open) bool {
		return slices.ContainsFunc(o.Parts, func(p Part) bool { return p.Limit == limit })
	})
}
