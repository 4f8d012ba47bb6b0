package models

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/drawgate/drawgate/internal/calendar"
	"github.com/drawgate/drawgate/internal/record"
)

const (
	second = int64(1_000_000)
	year   = 365 * 24 * 3600 * second
)

// replay repeats a history with package record.
type replay struct {
	h        *history
	r        *rand.Rand
	seen     counts
	now      int64
	buckets  []*bucket
	numbers  []uint64 // per slot, of its waiter
	reported []bool   // per slot: the code knows its number
	arrivals []int64  // per slot; 0: not known
	order    []int    // slots in line, after the event before
	ghost    int      // the slot that the ghost was
}

type bucket struct {
	rec    record.Record
	line   *record.Line
	specs  []record.Spec
	limits []int // of the history
}

func newReplay(h *history, seen counts) *replay {
	r := &replay{
		h: h, seen: seen, r: rand.New(rand.NewPCG(h.Seed, 1)), now: h.At * second,
		numbers: make([]uint64, len(h.Slots)+1), reported: make([]bool, len(h.Slots)+1),
		arrivals: make([]int64, len(h.Slots)+1),
	}
	for i := range h.Limits {
		if i == 0 || !h.One {
			r.buckets = append(r.buckets, &bucket{line: &record.Line{}})
		}
		b := r.buckets[len(r.buckets)-1]
		b.specs, b.limits = append(b.specs, h.spec(i)), append(b.limits, i)
	}
	for i := range r.numbers {
		r.numbers[i] = r.number()
	}
	for i := range h.Limits {
		if l := &h.Limits[i]; l.Held > 0 {
			need := make([]int64, len(h.Limits))
			need[i] = l.Held
			asks, _ := r.asks(need)
			record.Enter(&asks[0], &record.Take{ID: fmt.Sprint("held ", i), Hold: year}, r.now)
		}
	}
	for _, x := range h.Start {
		r.begin(x)
	}
	return r
}

// number returns one of a new waiter.
func (r *replay) number() uint64 { return r.r.Uint64() | 1 }

// spec returns limit i. Of limits with windows of the same length the second one comes first: in
// one bucket by its ID, otherwise by the rank of its bucket.
func (h *history) spec(i int) record.Spec {
	l := &h.Limits[i]
	s := record.Spec{ID: uint64(1 + i), Window: l.Window * second, ChargeEnd: l.End}
	if h.One {
		s.ID = uint64(2 - i)
	}
	for p := range s.Effective {
		if s.Effective[p] = l.Low; int8(p) >= h.High {
			s.Effective[p] = l.High
		}
	}
	switch l.Kind {
	case "slots":
		s.Kind = record.Concurrency
	case "rolling":
		s.Kind = record.Rolling
	case "bucket":
		s.Kind, s.Rate = record.Bucket, 1
		s.Scale, s.Drain = record.BucketScale(1, s.Window)
	case "calendar":
		s.Kind, s.Window, s.Rule = record.Calendar, 0, calendar.Rule{Unit: calendar.Hour}
	}
	return s
}

// begin leaves the ticket of a slot that stands in line from the beginning.
func (r *replay) begin(x int) {
	r.arrivals[x] = r.now - second*int64(100-len(r.order))
	r.order = append(r.order, x)
	asks, at := r.asks(r.h.Slots[x].Need)
	for i := range asks {
		t := record.Ticket{Number: r.numbers[x], Arrival: r.arrivals[x], End: r.now + year}
		for j := range at[i].specs {
			if asks[i].N[j] > 0 {
				t.Claims = append(t.Claims, record.Claim{Limit: at[i].specs[j].ID, N: asks[i].N[j]})
			}
		}
		at[i].line.Tickets = append(at[i].line.Tickets, t)
	}
}

// asks returns the questions for these units, in any order, and their buckets.
func (r *replay) asks(need []int64) (asks []record.Ask, at []*bucket) {
	for k, b := range r.buckets {
		a := record.Ask{Rec: &b.rec, Specs: b.specs, Line: b.line, Rank: -k}
		for j, limit := range b.limits {
			a.N[j] = need[limit]
		}
		if a.N != (record.Amounts{}) {
			asks, at = append(asks, a), append(at, b)
		}
	}
	if r.r.IntN(2) == 0 {
		slices.Reverse(asks)
		slices.Reverse(at)
	}
	return asks, at
}

func (r *replay) run() error {
	for i := range r.h.Events {
		e := &r.h.Events[i]
		r.now = e.At * second
		r.prolong()
		err := r.event(e)
		if err == nil {
			err = r.compare(e)
		}
		if errors.Is(err, errNoTime) {
			r.seen["cut short"]++
			return nil
		}
		if err != nil {
			return fmt.Errorf("history %d, event %d, %+v: %w", r.h.Seed, i, *e, err)
		}
		r.order = e.Order
	}
	return nil
}

// prolong keeps tickets from ending by themselves, as if their waiters had asked again and again.
func (r *replay) prolong() {
	for _, b := range r.buckets {
		for i := range b.line.Tickets {
			b.line.Tickets[i].End = r.now + year
		}
	}
}

func (r *replay) event(e *event) error {
	r.seen[e.Do]++
	for i := range e.Past {
		r.seen["passed"] += int(e.Past[i])
		r.seen["passed the first"] += int(e.First[i])
	}
	switch e.Do {
	case "ask":
		return r.ask(e)
	case "comes":
		r.numbers[e.Slot], r.reported[e.Slot], r.arrivals[e.Slot] = r.number(), false, 0
	case "dies":
		gone := len(r.h.Slots)
		r.numbers[gone], r.arrivals[gone] = r.numbers[e.Slot], r.arrivals[e.Slot]
		r.numbers[e.Slot], r.ghost = r.number(), e.Slot
	case "withdraw":
		for _, b := range r.buckets {
			b.line.Remove(r.numbers[e.Slot])
		}
	case "expire":
		r.expire(e)
	case "settle", "cancel":
		return r.settle(e)
	case "lease", "return", "renew":
		return r.lease(e)
	case "pause":
		until := r.now + year
		if e.Until > 0 {
			until = e.Until * second
		}
		record.PauseUntil(r.paused(), until, "", r.now)
	case "unpause":
		if end := record.Unpause(r.paused(), r.buckets[0].rec.Pause.Until, r.now); end != 0 {
			return fmt.Errorf("paused until %d", end)
		}
	case "over": // by itself
	default:
		return errors.New("unknown event")
	}
	return nil
}

func (r *replay) paused() []record.Ask {
	return []record.Ask{{Rec: &r.buckets[0].rec, Specs: r.buckets[0].specs}}
}

// expire lets the tickets of a slot end that the model has no more.
func (r *replay) expire(e *event) {
	for _, b := range r.buckets {
		for i := range b.line.Tickets {
			if x := &b.line.Tickets[i]; x.Number == r.numbers[e.Slot] && b.claims(e.Tickets[e.Slot]) == 0 {
				x.End = r.now
			}
		}
	}
}

// claims returns those limits of a mask that are of bucket b.
func (b *bucket) claims(mask int64) (mine int64) {
	for _, limit := range b.limits {
		mine |= mask & (1 << limit)
	}
	return mine
}

func (r *replay) settle(e *event) error {
	need := make([]int64, len(r.h.Limits))
	for i := range need {
		need[i] = 1
	}
	asks, at := r.asks(need)
	for i, b := range at {
		for j, limit := range b.limits {
			asks[i].N[j] = e.Actual[limit]
		}
	}
	r.seen["settled in part"] += len(slices.DeleteFunc(slices.Clone(e.Actual), func(n int64) bool { return n < 0 }))
	if ok, _ := record.Settle(asks, takeID(e.Take), uint64(e.Take)+1, e.Do == "cancel", r.now); !ok {
		return errors.New("the take is not open")
	}
	return nil
}

// slot returns a slot, or what the ghost was.
func (r *replay) slot(x int) *slot {
	if x == len(r.h.Slots) {
		x = r.ghost
	}
	return &r.h.Slots[x]
}

func takeID(k int) string { return fmt.Sprint("take ", k) }

// priority is that of takes which the model has as low or high.
func (r *replay) priority(x int) int8 {
	if r.slot(x).Priority == 1 {
		return r.h.High
	}
	return 0
}

func (r *replay) ask(e *event) error {
	s := &r.h.Slots[e.Slot]
	r.seen[s.Kind]++
	r.seen[e.Out]++
	t := &record.Take{Priority: r.priority(e.Slot)}
	asks, at := r.asks(s.Need)
	if r.needsSlots(s.Need) {
		t.ID, t.Grant, t.Hold = takeID(e.Take), uint64(e.Take)+1, year
		if e.Until > 0 {
			t.Hold = e.Until*second - r.now
		}
	}
	switch {
	case s.Kind == "waits":
		if err := r.place(e, t, at); err != nil {
			return err
		}
	case s.Kind == "ignores" && r.r.IntN(2) == 0:
		t.Barge = true
	case s.Kind == "ignores": // an older version knows no line
		for i := range asks {
			asks[i].Line = nil
		}
	}
	v := record.Decide(asks, t, r.now)
	if want := r.arrivals[e.Slot]; !v.Allowed && s.Kind == "waits" && v.Arrival != want {
		return fmt.Errorf("it arrived at %d, want %d", v.Arrival, want)
	}
	return r.answer(e, asks, at, &v)
}

// needsSlots reports whether units of slots are among these.
func (r *replay) needsSlots(need []int64) bool {
	for i, n := range need {
		if n > 0 && r.h.Limits[i].Kind == "slots" {
			return true
		}
	}
	return false
}

// answer compares the answer to a question with that of the model. The model has one reason per
// limit: what a paused bucket says of its limits is not compared.
func (r *replay) answer(e *event, asks []record.Ask, at []*bucket, v *record.Verdict) error {
	out := "granted"
	switch {
	case v.Allowed:
	case v.Paused:
		out = "paused"
	case v.Queued:
		out = "queued"
	default:
		out = "full"
	}
	if out != e.Out {
		return fmt.Errorf("%s: %+v", out, *v)
	}
	if e.Do != "ask" {
		return nil
	}
	for i, b := range at {
		for j, limit := range b.limits {
			refused := asks[i].Out[j].RetryAfter > 0
			if refused != slices.Contains(e.Refused, limit) && (!v.Paused || b != r.buckets[0]) {
				return fmt.Errorf("limit %d refuses: %v", limit, refused)
			}
		}
		if v.Allowed && asks[i].Granted != asks[i].N {
			return fmt.Errorf("granted %v", asks[i].Granted)
		}
	}
	return nil
}

// lease is what a process does that spends units of limit 0 by itself.
func (r *replay) lease(e *event) error {
	b := r.buckets[0]
	asks := []record.Ask{{Rec: &b.rec, Specs: b.specs, Line: b.line, N: record.Amounts{e.Want}}}
	switch e.Do {
	case "renew":
		if ok, _, _ := record.Renew(asks, "lease", 1, year, r.now); !ok {
			return errors.New("the lease is not open")
		}
		return nil
	case "return":
		asks[0].N[0] = e.Spent
		if ok, _ := record.Settle(asks, "lease", 1, false, r.now); !ok {
			return errors.New("the lease is not open")
		}
		return nil
	}
	v := record.Decide(asks, &record.Take{ID: "lease", Grant: 1, Hold: year, Lease: true}, r.now)
	if v.Allowed && asks[0].Granted[0] != e.Granted {
		return fmt.Errorf("granted %d", asks[0].Granted[0])
	}
	if v.Allowed && e.Granted < e.Want {
		r.seen["part of a lease"]++
	}
	return r.answer(e, asks, []*bucket{b}, &v)
}

// errNoTime says that there is no microsecond between two in line, where the model has somebody.
var errNoTime = errors.New("no time between two in line")

// place says where the waiter of a question stands, and who is behind it. The model has its place
// among others: here it has waited for a time that leads to that place.
func (r *replay) place(e *event, t *record.Take, at []*bucket) error {
	p := &record.Place{Number: r.numbers[e.Slot]}
	t.Place = p
	line := slices.Clone(r.order)
	if e.Place < 0 {
		// A waiter that was only named so far does not know its arrival: the store does.
		if !r.hasTicket(e.Slot, at) || r.r.IntN(2) == 0 {
			p.Arrival = r.arrivals[e.Slot]
		} else {
			p.Waited = r.r.Int64N(1000 * second)
		}
	} else {
		arrival, ok := r.between(line, e.Place, e.Slot)
		if !ok {
			return errNoTime
		}
		p.Waited, r.arrivals[e.Slot] = r.now-arrival, arrival
		p.Number, r.reported[e.Slot] = r.numbers[e.Slot], true
		line = slices.Insert(line, e.Place, e.Slot)
	}
	last := e.Slot
	for _, x := range e.Next {
		n := &record.Next{Number: r.numbers[x[0]], Priority: r.priority(x[0])}
		n.At = slices.IndexFunc(at, func(b *bucket) bool { return slices.Contains(b.limits, e.Line) })
		for j, limit := range at[n.At].limits {
			n.N[j] = r.h.Slots[x[0]].Need[limit]
		}
		var err error
		if line, err = r.name(n, line, x[0], x[1], last); err != nil {
			return err
		}
		p.Next = append(p.Next, *n)
		last = x[0]
	}
	return nil
}

// hasTicket reports whether a waiter has a ticket in one of these buckets.
func (r *replay) hasTicket(x int, at []*bucket) bool {
	return slices.ContainsFunc(at, func(b *bucket) bool { return b.ticket(r.numbers[x]) != nil })
}

func (b *bucket) ticket(number uint64) *record.Ticket {
	for i := range b.line.Tickets {
		if b.line.Tickets[i].Number == number {
			return &b.line.Tickets[i]
		}
	}
	return nil
}

// name finds out what to say of a waiter behind a take, for it to stand at this place of the line.
// If that is directly behind the one named before, it may also have waited for longer than that
// one: the code puts it behind.
func (r *replay) name(n *record.Next, line []int, x, place, last int) ([]int, error) {
	r.seen["named"]++
	if place < 0 {
		n.Arrival = r.arrivals[x]
		return line, nil
	}
	arrival, ok := r.between(line, place, x)
	behind := slices.Index(line, last)+1 == place &&
		(place == len(line) || r.rank(line[place]) > r.rank(last)+1) // a microsecond is left for it
	switch {
	case behind && (!ok || r.r.IntN(2) == 0):
		r.seen["named too early"]++
		ahead := int64(n.Priority) * record.Age
		n.Waited = max(0, r.now-(r.rank(last)+ahead-r.r.Int64N(1000*second)))
		r.arrivals[x] = r.rank(last) + 1 + ahead
	case ok:
		n.Waited, r.arrivals[x] = r.now-arrival, arrival
	default:
		return nil, errNoTime
	}
	n.Number, r.reported[x] = r.numbers[x], true
	return slices.Insert(line, place, x), nil
}

// rank says who comes first: the smaller one.
func (r *replay) rank(x int) int64 {
	return r.arrivals[x] - int64(r.priority(x))*record.Age
}

// between returns an arrival with which x stands at this place of a line, if there is one.
func (r *replay) between(line []int, place, x int) (arrival int64, ok bool) {
	ahead := int64(r.priority(x)) * record.Age
	most := r.now - ahead
	if place < len(line) {
		most = min(most, r.rank(line[place])-1)
	}
	least := most - 1000*second
	if place > 0 {
		least = max(least, r.rank(line[place-1])+1)
	}
	if least > most {
		return r.extra(line, place, x)
	}
	return least + r.r.Int64N(most-least+1) + ahead, true
}

// beside is between where there is no microsecond left: then x begins in the same one as who is
// next, and its number decides. That is still free to choose if the code was never told it.
func (r *replay) extra(line []int, place, x int) (arrival int64, ok bool) {
	if place == len(line) || r.reported[x] {
		return 0, false
	}
	least, most := uint64(1), r.numbers[line[place]]
	if place > 0 && r.rank(line[place-1]) == r.rank(line[place]) {
		least = r.numbers[line[place-1]] + 1
	}
	if arrival = r.rank(line[place]) + int64(r.priority(x))*record.Age; arrival > r.now || least >= most {
		return 0, false
	}
	r.seen["beside"]++
	r.numbers[x] = least + r.r.Uint64N(most-least)
	return arrival, true
}
