package record

import (
	"math"
	"slices"
)

// Record is the state of one bucket. The zero value is an unused bucket.
//
// It may hold limits that a caller's policy does not have, because another version of the program
// uses them; they are left unchanged.
type Record struct {
	Last   int64 // the latest instant that was seen; time never runs back before it
	run    run   // see DecidePlain
	Limits []State
	Open   map[string]*Open // reservations that are neither settled nor over, by ID; the only memory for idempotence
	Pause  *Pause           // nil if the bucket is not paused; the value it points to is never changed
	order  []*Open          // the same reservations in the order of their ends: see order.go

	past    *past    // reservations whose hold has ended: see past.go; nil: none
	partial *partial // nil except in a record that is put together from its parts
	Changes *Changes // recorded unless nil, as is State.Log: for stores that keep entries and reservations one by one
}

// partial is what is known of a record that did not get all its parts.
type partial struct {
	missing int                // reservations that Complete expects
	freed   map[uint64][]Freed // by State.ID: see SetHeld
}

// Changes records what happened to the reservations of a record since a store cleared it.
type Changes struct {
	Touched []string // IDs of those that were opened, renewed or closed; may repeat
	Ended   []Ended  // those whose hold ended without settlement
}

// Ended is a hold that ended without settlement.
type Ended struct {
	ID string
	*Open
}

// Pause makes a bucket refuse every take until an instant, for a reason. It stops nothing else.
type Pause struct {
	Until  int64
	Reason string
}

// pausedUntil returns 0 if the bucket is not paused.
func (r *Record) pausedUntil() int64 {
	if r.Pause == nil {
		return 0
	}
	return r.Pause.Until
}

// Open is a reservation that is neither settled nor over.
type Open struct {
	Grant       uint64 // of the take: another grant of the same ID is another take
	Fingerprint uint64 // of the take's content: the same grant with different content is refused
	At          int64  // from when its units count; if they do not age while held, when it was granted
	Margin      int64  // a replay that comes later than this after At takes the units again: see replay
	End         int64  // the hold is over at End
	Lease       bool
	Parts       []Part
	id          string // set while it is in Record.order
}

// Part is what an open reservation holds of one limit.
type Part struct {
	Limit uint64 // State.ID
	N     int64
	// where the units were counted: bucket: instant; rolling: Entry.First; calendar: end of the
	// window. Held: their margin, see State.Late
	Ref    int64
	Both   bool // calendar: also counted in the following window
	Held   bool // not counted yet: the units do not age while the reservation is open
	Passed bool // they passed a ticket: see Line.knows
}

// state returns the state of s, which is usually at position i, or nil if nothing is stored.
func (r *Record) state(s *Spec, i int) *State {
	if i < len(r.Limits) && r.Limits[i].ID == s.ID {
		return &r.Limits[i]
	}
	for j := range r.Limits {
		if r.Limits[j].ID == s.ID {
			return &r.Limits[j]
		}
	}
	return nil
}

func (r *Record) byID(id uint64) *State {
	for j := range r.Limits {
		if r.Limits[j].ID == id {
			return &r.Limits[j]
		}
	}
	return nil
}

// ensure returns the state of specs[i].
func (r *Record) ensure(specs []Spec, i int, now int64) *State {
	s := &specs[i]
	if st := r.state(s, i); st != nil {
		return st
	}
	if r.Limits == nil {
		r.Limits = make([]State, 0, len(specs))
	}
	r.Limits = append(r.Limits, newState(s, now))
	st := &r.Limits[len(r.Limits)-1]
	if r.Changes != nil && s.Kind == Rolling {
		st.Log = &Log{}
	}
	st.advance(s, now)
	return st
}

// Advance brings the record to now: holds that are over count as used from their end, and windows
// and entries that are over are dropped. A now before [Record.Last] counts as Last.
func (r *Record) Advance(specs []Spec, now int64) {
	now = max(now, r.Last)
	r.Last = now
	if r.Pause != nil && now >= r.Pause.Until {
		r.Pause = nil
	}
	if r.past != nil {
		r.agePast(specs, now)
	}
	if len(r.order) > 0 && now >= r.order[0].End {
		r.endHolds(specs, now)
	}
	for i := range specs {
		if st := r.state(&specs[i], i); st != nil {
			st.advance(&specs[i], now)
		}
	}
}

// endHolds closes the reservations whose hold is over, in the order of their ends.
func (r *Record) endHolds(specs []Spec, now int64) {
	n := 0
	for n < len(r.order) && r.order[n].End <= now {
		n++
	}
	for k, o := range r.order[:n] {
		for i := range o.Parts {
			p := &o.Parts[i]
			if ref, both := r.closePart(specs, p, p.N, o.End); ref != 0 {
				p.Ref, p.Both, p.Held = ref, both, false
			}
		}
		delete(r.Open, o.id)
		r.touch(o.id)
		if r.Changes != nil {
			r.Changes.Ended = append(r.Changes.Ended, Ended{o.id, o})
		}
		if n-k <= MostPast {
			r.remember(specs, o, now)
		}
	}
	r.order = slices.Delete(r.order, 0, n)
	r.settled()
}

// closePart ends one part of a reservation at instant at. n units of it were used. It returns where
// they count from now on if they were held, otherwise 0.
func (r *Record) closePart(specs []Spec, p *Part, n, at int64) (ref int64, both bool) {
	st := r.byID(p.Limit)
	if st == nil {
		return 0, false
	}
	s := specOf(specs, p.Limit)
	if !p.Held {
		st.Loose -= p.N
		return 0, false
	}
	st.Held -= p.N
	if st.Kind == Concurrency {
		return 0, false
	}
	if st.Kind == Bucket && s != nil {
		st.Leak(s, at) // a higher rate may have been seen after the hold's end: see drain
	} else {
		st.advance(s, at)
	}
	return st.enter(s, at, st.lateness(s), n)
}

func specOf(specs []Spec, id uint64) *Spec {
	for i := range specs {
		if specs[i].ID == id {
			return &specs[i]
		}
	}
	return nil
}

// forget removes a reservation and the data that is only kept for open ones.
func (r *Record) forget(id string) {
	r.unorder(r.Open[id])
	delete(r.Open, id)
	r.touch(id)
	r.settled()
}

// settled drops the data that is only kept for open reservations once there are none. The highest
// rate is kept for those that have ended, too: a program that does not know of them may change it.
func (r *Record) settled() {
	if len(r.Open) > 0 {
		return
	}
	for i := range r.Limits {
		st := &r.Limits[i]
		if st.Late = 0; !r.past.has(st.ID) {
			st.Peak = 0
		}
	}
}

// add opens a reservation.
func (r *Record) add(id string, o *Open) {
	if r.Open == nil {
		r.Open = make(map[string]*Open)
	}
	r.drop(func(p *Open) bool { return p.id == id })
	r.Open[id] = o
	o.id = id
	r.enorder(o)
	r.touch(id)
	for i := range o.Parts {
		p := &o.Parts[i]
		switch st := r.byID(p.Limit); {
		case st == nil:
		case st.Kind == Bucket:
			st.Peak = max(st.Peak, st.Rate)
		case p.Held:
			st.Late = max(st.Late, p.Ref)
		}
	}
}

func (r *Record) touch(id string) {
	if r.Changes != nil {
		r.Changes.Touched = append(r.Changes.Touched, id)
	}
}

// Until returns the instant from which the record means the same as a missing one; the largest
// int64 while a hold is open.
func (r *Record) Until() int64 {
	if len(r.Open) > 0 {
		return math.MaxInt64
	}
	until := r.pausedUntil()
	for i := range r.Limits {
		until = max(until, r.Limits[i].until())
	}
	return until
}

// NextEnd returns the instant at which the next open hold ends, or 0 if none is open.
func (r *Record) NextEnd() int64 {
	if len(r.order) == 0 {
		return 0
	}
	return r.order[0].End
}

// Held reports whether the record has open reservations.
func (r *Record) Held() bool { return len(r.Open) > 0 }
