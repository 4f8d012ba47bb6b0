package record

import (
	"cmp"
	"slices"
)

// The line of a bucket is who waits for its units, in all processes: of each process only those in
// front of its own lines. It is kept beside the record. A ticket holds no units: it keeps others
// from taking what it waits for before it.
//
// models/line.py enumerates what is decided here, and shows that each rule is needed. The test
// models.TestHistories compares both.

// Bounds of a line.
const (
	MaxTickets = 128 // in a bucket
	MaxNext    = 127 // of those behind a take in its process
	maxPassed  = 16  // per limit, how many instants are told apart at which what passed ceases to count
)

// Ages and lives, in µs.
const (
	// Age is how long a ticket must have waited to come before a newcomer whose priority is higher
	// by one.
	Age       = 10_000_000
	LeastLife = 200_000 // of a ticket
	MostLife  = 5_000_000
	// whenOthersPass is when to ask again where units are free, but others are to take them: nobody
	// knows when these will.
	whenOthersPass = LeastLife / 2
	nextLife       = 1_000_000 // at least, of those behind: their process names them again in half of that
)

// Line has the tickets of a bucket in their order. The zero value is an empty line.
type Line struct {
	Tickets []Ticket
	Passed  []Passed
	Changed bool // since it was read
}

// Ticket is a place in the line of a bucket.
type Ticket struct {
	Number   uint64 // of the waiter
	Arrival  int64  // when it began to wait, by the store's clock
	End      int64  // it is over at End
	Priority int8
	Claims   []Claim
}

// Claim says for how many units of a limit a ticket waits.
type Claim struct {
	Limit uint64 // State.ID
	N     int64
}

// Passed is what takes that may use more of a limit were granted past tickets that may use less.
//
// The one of limit 0, which no limit is called, says in Sum when the first of all these grants was
// made: what passed before, while others stood in line, is forgotten. See [Line.knows].
type Passed struct {
	Limit uint64
	First uint64  // number of the limit's first ticket when
	Sum   int64   // so many units were granted past it
	Units []Freed // until when they count, at the latest; in this order
}

// Place is what a take that may wait says of its place in the line.
type Place struct {
	Number   uint64 // of the waiter, the same in each of its takes; not 0
	Arrival  int64  // as a store answered; 0: none has refused it yet
	Waited   int64  // µs that it has waited
	Patience int64  // µs that it may still wait; 0: without end
	Next     []Next // who stands behind it in the line of its process, in order
}

// Next is a waiter behind a take in the line of its process.
type Next struct {
	Number          uint64
	Arrival, Waited int64
	Priority        int8
	At              int     // position of the bucket in whose line it waits
	N               Amounts // of that bucket
}

// Standing says where a take that waits stands in the line of the bucket that refuses it longest.
type Standing struct {
	Tickets int      // in the line, with its own; 0: there is none
	Before  []uint64 // the numbers of those before its own
	Oldest  int64    // when the one who has waited longest began to
}

// order is a place among tickets: the smaller one comes first.
type order struct {
	rank   int64
	number uint64
}

func orderOf(arrival int64, priority int8, number uint64) order {
	return order{arrival - int64(priority)*Age, number}
}

func (x *Ticket) order() order { return orderOf(x.Arrival, x.Priority, x.Number) }

func (o order) compare(p order) int {
	return cmp.Or(cmp.Compare(o.rank, p.rank), cmp.Compare(o.number, p.number))
}

// Claim returns for how many units of a limit a ticket waits.
func (x *Ticket) Claim(limit uint64) int64 {
	for _, c := range x.Claims {
		if c.Limit == limit {
			return c.N
		}
	}
	return 0
}

// Expire drops the tickets that are over, and what no longer counts of what passed them.
func (l *Line) Expire(now int64) {
	n := len(l.Tickets)
	l.Tickets = slices.DeleteFunc(l.Tickets, func(x Ticket) bool { return x.End <= now })
	if len(l.Tickets) != n {
		l.Changed = true
	}
	if len(l.Tickets) == 0 && len(l.Passed) > 0 {
		l.Passed, l.Changed = nil, true
	}
	for i := range l.Passed {
		u := &l.Passed[i].Units
		*u = slices.DeleteFunc(*u, func(f Freed) bool { return f.At <= now }) // without them it means the same
	}
}

// Until returns the instant from which the line is empty.
func (l *Line) Until() (until int64) {
	for i := range l.Tickets {
		until = max(until, l.Tickets[i].End)
	}
	return until
}

// Remove removes the ticket of a waiter, and reports whether there was one.
func (l *Line) Remove(number uint64) bool {
	i := l.find(number)
	if i < 0 {
		return false
	}
	l.Tickets, l.Changed = slices.Delete(l.Tickets, i, i+1), true
	return true
}

// put adds a ticket, or replaces that of the same waiter. If there are too many, the last one goes.
// A ticket that says the same is not written anew before half its life is over.
func (l *Line) put(x Ticket, now int64) {
	for i := range l.Tickets {
		o := &l.Tickets[i]
		if o.Number == x.Number && o.Arrival == x.Arrival && o.Priority == x.Priority &&
			slices.Equal(o.Claims, x.Claims) && 2*(o.End-now) >= x.End-now {
			return
		}
	}
	l.Remove(x.Number)
	at, _ := slices.BinarySearchFunc(l.Tickets, x.order(), func(o Ticket, p order) int { return o.order().compare(p) })
	if at == MaxTickets {
		return
	}
	l.Tickets, l.Changed = slices.Insert(l.Tickets, at, x), true
	if len(l.Tickets) > MaxTickets {
		l.Tickets = slices.Delete(l.Tickets, MaxTickets, len(l.Tickets))
	}
}

// first returns the number of the first ticket that waits for a limit; 0: there is none.
func (l *Line) first(limit uint64) uint64 {
	for i := range l.Tickets {
		if l.Tickets[i].Claim(limit) > 0 {
			return l.Tickets[i].Number
		}
	}
	return 0
}

// passed returns what was granted past tickets of a limit and still counts, and what was granted
// past its first one.
func (l *Line) passed(limit uint64) (counts, first int64) {
	for i := range l.Passed {
		p := &l.Passed[i]
		if p.Limit != limit {
			continue
		}
		for _, f := range p.Units {
			counts = addSat(counts, f.N)
		}
		if p.First == l.first(limit) {
			first = p.Sum
		}
	}
	return counts, first
}

// of returns what passed tickets of a limit, or nil.
func (l *Line) of(limit uint64) *Passed {
	if i := slices.IndexFunc(l.Passed, func(p Passed) bool { return p.Limit == limit }); i >= 0 {
		return &l.Passed[i]
	}
	return nil
}

// ensure returns what passed tickets of a limit, which is noted from now on.
func (l *Line) ensure(limit uint64) *Passed {
	if l.of(limit) == nil {
		l.Passed = append(l.Passed, Passed{Limit: limit})
	}
	return l.of(limit)
}

// pass notes n units of a limit that are granted now past a ticket and count until until.
func (l *Line) pass(limit uint64, n, until, now int64) {
	l.Changed = true
	if since := l.ensure(0); since.Sum == 0 {
		since.Sum = now
	}
	p := l.ensure(limit)
	if first := l.first(limit); p.First != first {
		p.First, p.Sum = first, 0
	}
	p.Sum = min(addSat(p.Sum, n), maxUsed)
	p.add(n, until)
}

// knows reports whether what was granted past a ticket at an instant is still noted: it is
// forgotten when nobody stands in line any more.
func (l *Line) knows(at int64) bool {
	if l == nil {
		return false
	}
	since := l.of(0)
	return since != nil && since.Sum > 0 && since.Sum <= at
}

// add adds n units that count until until. If there are too many instants, two neighbors become the
// later one: those for which what was joined spans the shortest time. (If these were the two that
// are nearest to each other, the newest one would be joined with the next one again and again.)
func (p *Passed) add(n, until int64) {
	if n <= 0 {
		return
	}
	p.Units = append(p.Units, Freed{min(until, maxUsed), min(n, maxUsed)})
	slices.SortFunc(p.Units, func(x, y Freed) int { return cmp.Compare(x.At, y.At) })
	for k := len(p.Units) - 1; k > 0; k-- {
		if p.Units[k-1].At == p.Units[k].At {
			p.join(k)
		}
	}
	if len(p.Units) <= maxPassed {
		return
	}
	span := func(k int) int64 { return p.Units[k].At - p.Units[k-2].At } // of what is joined
	least := 2
	for k := 3; k < len(p.Units); k++ {
		if span(k) < span(least) {
			least = k
		}
	}
	p.join(least)
}

// join joins units with those before them.
func (p *Passed) join(k int) {
	p.Units[k].N = min(addSat(p.Units[k].N, p.Units[k-1].N), maxUsed)
	p.Units = slices.Delete(p.Units, k-1, k)
}

// remove removes n units that were added to count until until. They are among those that count for
// so long, or longer, if they were joined with others: it removes the first ones of these. So at no
// instant fewer count than do without them.
func (p *Passed) remove(n, until int64) {
	slices.SortFunc(p.Units, func(x, y Freed) int { return cmp.Compare(x.At, y.At) })
	for k := range p.Units {
		if u := &p.Units[k]; u.At >= min(until, maxUsed) {
			back := min(u.N, n)
			u.N, n = u.N-back, n-back
		}
	}
	p.Units = slices.DeleteFunc(p.Units, func(f Freed) bool { return f.N == 0 })
}

// place returns the order of a take among tickets.
func (t *Take) place(now int64) order {
	if t.Place == nil { // it does not wait: it stands behind all who do
		return orderOf(now, t.Priority, 1<<64-1)
	}
	return orderOf(t.Place.Arrival, t.Priority, t.Place.Number)
}

// arrive finds out when a waiter began to wait, by the clock of the store that meets it first: it
// has said so, or its ticket does, or it is now.
func arrive(asks []Ask, number uint64, arrival, waited, now int64) int64 {
	for i := 0; arrival == 0 && i < len(asks); i++ {
		if l := asks[i].Line; l != nil {
			if k := l.find(number); k >= 0 {
				arrival = l.Tickets[k].Arrival
			}
		}
	}
	if arrival > 0 {
		return arrival
	}
	return max(1, now-waited)
}

// find returns where the ticket of a waiter is, or -1.
func (l *Line) find(number uint64) int {
	return slices.IndexFunc(l.Tickets, func(x Ticket) bool { return x.Number == number })
}

// barges reports whether a take pays no heed to who waits.
func (t *Take) barges() bool { return t.Barge || t.Given }

// earlier calls f for each ticket before a take that waits for limit j, with the units that it
// waits for and the most that its priority may use; for those that may have them by now, in their
// order, until f returns false.
func (a *Ask) earlier(j int, t *Take, now int64, f func(x *Ticket, n, most int64) bool) {
	if a.Line == nil || len(a.Line.Tickets) == 0 || t.barges() {
		return
	}
	s, me := &a.Specs[j], t.place(now)
	for i := range a.Line.Tickets {
		x := &a.Line.Tickets[i]
		if x.order().compare(me) >= 0 {
			return
		}
		n := x.Claim(s.ID)
		if n == 0 || t.Place != nil && x.Number == t.Place.Number {
			continue
		}
		// What can never fit claims nothing, nor what does not fit into the window any more.
		most := s.Effective[x.Priority]
		if n > most || s.Kind == Calendar && a.over(j, now, n, x.Priority) {
			continue
		}
		if !f(x, n, most) {
			return
		}
	}
}

// over reports whether n more units of limit j are more than a take of this priority may use.
func (a *Ask) over(j int, now, n int64, priority int8) bool {
	s := &a.Specs[j]
	if st := a.Rec.state(s, j); st != nil {
		return st.excess(s, now, n, priority) > 0
	}
	return n > s.Effective[priority]
}

// yields reports whether a take of m units of limit j, which fit, has to leave them to others who
// wait, or else whether it passes one of these.
//
// It has to fit together with each earlier ticket and those before it, in that ticket's terms. It
// may pass one that may use less and does not fit now, as far as units are kept for it: what passed
// before and still counts is part of that. Beside a ticket that needs more than it leaves, what
// passed does not come free again while that is the first one: otherwise those who pass could take
// turns, and the limit would never be empty enough.
func (a *Ask) yields(j int, m int64, t *Take, now int64) (yes, passes bool) {
	s, claims := &a.Specs[j], int64(0)
	a.earlier(j, t, now, func(x *Ticket, n, most int64) bool {
		if !a.over(j, now, addSat(addSat(m, claims), n), x.Priority) {
			claims = addSat(claims, n)
			return true
		}
		kept := s.Effective[t.Priority] - most
		if kept > 0 && a.over(j, now, addSat(claims, n), x.Priority) {
			counts, first := a.Line.passed(s.ID)
			if n > most-kept {
				counts = first
			}
			if addSat(counts, m) <= kept {
				passes = true
				return true
			}
		}
		yes = true
		return false
	})
	return yes, passes
}

// spare returns how many of n units of limit j a lease may have: those for which nobody waits.
func (a *Ask) spare(j int, n int64, t *Take, now int64) int64 {
	if a.Line == nil {
		return n
	}
	lo, hi := int64(0), n // so many are certain, and more than that are not
	for lo < hi {
		mid := lo + (hi-lo+1)/2
		if yes, passes := a.yields(j, mid, t, now); yes || passes {
			hi = mid - 1
		} else {
			lo = mid
		}
	}
	return lo
}

// leads reports whether nobody waits for limit j before a take. Only then is it granted ahead: room
// that comes free in a moment is for those in front.
func (a *Ask) leads(j int, t *Take, now int64) bool {
	leads := true
	a.earlier(j, t, now, func(*Ticket, int64, int64) bool { leads = false; return false })
	return leads
}

// behind returns after how many µs a take would fit into limit j if each ticket before it were
// granted as soon as it fits.
func (a *Ask) behind(j int, t *Take, now int64) int64 {
	s, all := &a.Specs[j], a.N[j]
	a.earlier(j, t, now, func(_ *Ticket, n, _ int64) bool { all = addSat(all, n); return true })
	st, most := a.Rec.state(s, j), s.Effective[t.Priority]
	if st == nil || most < 1 {
		return whenOthersPass
	}
	if s.Kind == Bucket {
		need := addSat(st.Used, mulSat(addSat(st.Held, all), s.Scale)) - most*s.Scale
		if need <= 0 {
			return whenOthersPass
		}
		return CeilDiv(need, s.Drain)
	}
	rounds := (all - 1) / most
	wait, n := int64(whenOthersPass), all-rounds*most
	if a.over(j, now, n, t.Priority) {
		wait = a.Rec.wait(s, st, now, n, t.Priority)
	}
	return addSat(wait, mulSat(rounds, s.length()))
}

// length returns the length of a limit's window in µs: 0 for slots.
func (s *Spec) length() int64 {
	if s.Kind != Calendar {
		return s.Window
	}
	return s.Rule.Unit.Length()
}

// inLine reports whether one of the buckets keeps a line.
func inLine(asks []Ask) bool {
	for i := range asks {
		if asks[i].Line != nil {
			return true
		}
	}
	return false
}

// openLines brings the lines to now, and finds out where the take and those behind it stand.
func openLines(asks []Ask, t *Take, now int64) {
	for i := range asks {
		if asks[i].Line != nil {
			asks[i].Line.Expire(now)
		}
	}
	p := t.Place
	if p == nil {
		return
	}
	p.Arrival = arrive(asks, p.Number, p.Arrival, p.Waited, now)
	last := orderOf(p.Arrival, t.Priority, p.Number)
	for i := range p.Next {
		n := &p.Next[i]
		n.Arrival = arrive(asks, n.Number, n.Arrival, n.Waited, now)
		// Requests take their time, so arrivals may contradict the order in the process: then each
		// of two would wait for the other.
		if orderOf(n.Arrival, n.Priority, n.Number).compare(last) <= 0 {
			n.Arrival = last.rank + 1 + int64(n.Priority)*Age
		}
		last = orderOf(n.Arrival, n.Priority, n.Number)
	}
}

// queued completes the answer to a take that was refused: where others wait in front, it has to
// wait for them, too.
func queued(asks []Ask, t *Take, v *Verdict) {
	limited, queued := v.RetryAfter > 0, false
	for i := range asks {
		a := &asks[i]
		for j := range a.Specs {
			n := a.N[j]
			if t.Lease {
				n = min(n, 1)
			}
			if n == 0 || a.Line == nil {
				continue
			}
			if yes, _ := a.yields(j, n, t, v.Now); yes {
				queued = true
				a.Out[j].RetryAfter = max(a.Out[j].RetryAfter, a.behind(j, t, v.Now))
				v.RetryAfter = max(v.RetryAfter, a.Out[j].RetryAfter)
			}
		}
	}
	v.Queued = queued && !limited
}

// passing notes what a granted take passes, before its units are counted.
func passing(asks []Ask, t *Take, v *Verdict) {
	for i := range asks {
		a := &asks[i]
		a.passes = [MaxLimits]bool{}
		if a.Line == nil || len(a.Line.Tickets) == 0 || v.Start > v.Now {
			continue
		}
		for j := range a.Specs {
			if a.Granted[j] == 0 {
				continue
			}
			if _, a.passes[j] = a.yields(j, a.Granted[j], t, v.Now); a.passes[j] {
				s, n := &a.Specs[j], a.Granted[j]
				until := s.countsUntil(n, a.used(s), v.Start, v.End, s.holds(t, v.End))
				a.Line.pass(s.ID, n, until, v.Now)
			}
		}
	}
}

// holds reports whether units of a take whose hold ends at end are held: they do not count before
// it is over.
func (s *Spec) holds(t *Take, end int64) bool {
	return s.Kind == Concurrency || end != 0 && (t.Lease || s.ChargeEnd)
}

// countsUntil returns until when n units count that are granted from at on and, if they are held,
// are held until end. Of a bucket limit so much is used before, in 1/Scale units.
func (s *Spec) countsUntil(n, used, at, end int64, held bool) int64 {
	if held {
		at = max(at, end)
	}
	switch s.Kind {
	case Concurrency:
		return at
	case Bucket:
		return addSat(at, CeilDiv(addSat(used, mulCap(n, s.Scale)), s.Drain))
	}
	return s.LastsUntil(at + s.lateness())
}

// passedAt returns the limit of a part of a reservation that passed a ticket, what passed its
// tickets, and until when these units were to count, at the least: nil if this is not noted any
// more, or they do not count any more.
func (a *Ask) passedAt(o *Open, p *Part, now int64) (s *Spec, passed *Passed, until int64) {
	if !p.Passed || !a.Line.knows(o.At) {
		return nil, nil, 0
	}
	s, passed = specOf(a.Specs, p.Limit), a.Line.of(p.Limit)
	if s == nil || passed == nil {
		return nil, nil, 0
	}
	if until = s.countsUntil(p.N, 0, o.At, o.End, p.Held); until <= now {
		return nil, nil, 0
	}
	return s, passed, until
}

// settledPassed notes that of a part of a reservation n units were used, and it ends now: what
// passed a ticket counts until these cease to count, and what was given back may pass again; but
// beside a ticket for which what passed does not come free, it does not. The units were settled.
func (a *Ask) settledPassed(o *Open, p *Part, n, now int64) {
	s, passed, until := a.passedAt(o, p, now)
	if s == nil {
		return
	}
	a.Line.Changed = true
	switch {
	case s.Kind == Concurrency:
		passed.remove(p.N, until)
	case p.Held:
		passed.remove(p.N, until)
		passed.add(n, s.countsUntil(0, a.used(s), now, 0, false))
	case n < p.N:
		passed.remove(p.N-n, until)
	case s.Kind == Bucket:
		passed.add(n-p.N, s.countsUntil(0, a.used(s), now, 0, false))
	default:
		passed.add(n-p.N, until)
	}
}

// used returns what is used of a limit, without what is held; of a bucket in 1/Scale units.
func (a *Ask) used(s *Spec) int64 {
	if st := a.Rec.byID(s.ID); st != nil {
		return st.Used
	}
	return 0
}

// renewPassed notes until when what passed a ticket counts if a hold now gets another end.
func (a *Ask) renewPassed(o *Open, end, now int64) {
	for k := range o.Parts {
		p := &o.Parts[k]
		if s, passed, until := a.passedAt(o, p, now); s != nil && p.Held && end > o.End {
			passed.remove(p.N, until)
			passed.add(p.N, s.countsUntil(p.N, a.used(s), o.At, end, true))
			a.Line.Changed = true
		}
	}
}

// againPassed notes until when a part of a reservation counts that passed a ticket, and was counted
// again from now on. was is the reservation as it was before.
func (a *Ask) againPassed(was *Open, p *Part, now int64) {
	if a.Line == nil {
		return
	}
	if p.Passed = p.Passed && a.Line.knows(was.At); !p.Passed || p.Held {
		return
	}
	s, passed := specOf(a.Specs, p.Limit), a.Line.of(p.Limit)
	if s == nil || passed == nil {
		return
	}
	if _, _, until := a.passedAt(was, p, now); until > 0 {
		passed.remove(p.N, until)
	}
	passed.add(p.N, s.countsUntil(0, a.used(s), now, 0, false))
	a.Line.Changed = true
}

// leaveLine removes the ticket of a take that was granted, and leaves those of who comes next in
// the line of its process: otherwise others pass them until they ask.
func leaveLine(asks []Ask, t *Take, now int64) {
	p := t.Place
	if p == nil {
		return
	}
	for i := range asks {
		if asks[i].Line != nil {
			asks[i].Line.Remove(p.Number)
		}
	}
	all := func(int, int) bool { return true }
	leaveNext(asks, t, now, nextLife, all)
}

// leaveNext leaves the tickets of those behind a take, for the limits of which claims is true.
func leaveNext(asks []Ask, t *Take, now, life int64, claims func(ask, limit int) bool) {
	for i := range t.Place.Next {
		n := &t.Place.Next[i]
		a := &asks[n.At]
		if a.Line == nil {
			continue
		}
		x := Ticket{Number: n.Number, Arrival: n.Arrival, End: now + life, Priority: n.Priority}
		for j := range a.Specs {
			if n.N[j] > 0 && claims(n.At, j) {
				x.Claims = append(x.Claims, Claim{a.Specs[j].ID, n.N[j]})
			}
		}
		if len(x.Claims) > 0 {
			a.Line.put(x, now)
		} else {
			a.Line.Remove(x.Number)
		}
	}
}

// standInLine leaves the ticket of a take that was refused. It claims units in the first limit that
// refuses it and in those before, in the order of limits, and none in those after, which others may
// use meanwhile. A pause comes before all limits.
func standInLine(asks []Ask, t *Take, v *Verdict) {
	p := t.Place
	if p == nil {
		return
	}
	v.Arrival = p.Arrival
	stands := !v.Paused && v.EarliestRetry < Never && (p.Patience == 0 || v.EarliestRetry <= p.Patience)
	claims := make([][]Claim, len(asks))
	var claimed []limitAt
	if stands {
		for _, at := range limitsInOrder(asks) {
			a := &asks[at.ask]
			s := &a.Specs[at.limit]
			claims[at.ask] = append(claims[at.ask], Claim{s.ID, a.N[at.limit]})
			claimed = append(claimed, at)
			if a.Out[at.limit].RetryAfter > 0 {
				break
			}
		}
	}
	life := min(max(mulSat(2, v.RetryAfter), LeastLife), MostLife)
	for i := range asks {
		switch l := asks[i].Line; {
		case l == nil:
		case claims[i] == nil:
			l.Remove(p.Number)
		default:
			l.put(Ticket{p.Number, v.Arrival, v.Now + life, t.Priority, claims[i]}, v.Now)
		}
	}
	leaveNext(asks, t, v.Now, max(life, nextLife), func(ask, limit int) bool {
		return slices.Contains(claimed, limitAt{ask, limit})
	})
	v.Standing = standing(asks, t, v.Now)
}

// standing finds out where a refused take stands.
func standing(asks []Ask, t *Take, now int64) (s Standing) {
	longest := int64(0)
	var l *Line
	for i := range asks {
		for j := range asks[i].Specs {
			if wait := asks[i].Out[j].RetryAfter; wait > longest {
				longest, l = wait, asks[i].Line
			}
		}
	}
	if l == nil || len(l.Tickets) == 0 {
		return s
	}
	me := t.place(now)
	s = Standing{Tickets: len(l.Tickets), Oldest: l.Tickets[0].Arrival}
	for i := range l.Tickets {
		x := &l.Tickets[i]
		s.Oldest = min(s.Oldest, x.Arrival)
		if x.order().compare(me) < 0 {
			s.Before = append(s.Before, x.Number)
		}
	}
	return s
}

// limitAt is a limit of a take.
type limitAt struct{ ask, limit int }

// limitsInOrder returns the limits that a take asks for, in the order that all takes agree on: the
// longest window first, then by bucket.
func limitsInOrder(asks []Ask) (all []limitAt) {
	for i := range asks {
		for j := range asks[i].Specs {
			if asks[i].N[j] > 0 {
				all = append(all, limitAt{i, j})
			}
		}
	}
	slices.SortFunc(all, func(x, y limitAt) int {
		a, b := &asks[x.ask], &asks[y.ask]
		s, o := &a.Specs[x.limit], &b.Specs[y.limit]
		return cmp.Or(cmp.Compare(o.length(), s.length()), cmp.Compare(a.Rank, b.Rank), cmp.Compare(s.ID, o.ID))
	})
	return all
}

// LimitsInOrder returns the positions of bucket and limit of each limit that a take asks for, in
// the order in which it claims units of them, for stores that decide in a script.
func LimitsInOrder(asks []Ask) (all [][2]int) {
	for _, at := range limitsInOrder(asks) {
		all = append(all, [2]int{at.ask, at.limit})
	}
	return all
}
