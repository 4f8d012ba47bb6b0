package models

import (
	"fmt"
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate/internal/record"
)

// compare compares what is the case after an event.
func (r *replay) compare(e *event) error {
	for k, b := range r.buckets {
		b.line.Expire(r.now)
		b.line = record.DecodeLine(b.line.Append(nil))
		b.rec.Advance(b.specs, r.now)
		if diff := cmp.Diff(r.wanted(e, b), r.tickets(b)); diff != "" {
			return fmt.Errorf("tickets of bucket %d (-model +code):\n%s", k, diff)
		}
		for j, limit := range b.limits {
			if used := b.rec.Usage(&b.specs[j], 0).Used; used != e.Used[limit] {
				return fmt.Errorf("%d used of limit %d", used, limit)
			}
			if err := b.comparePassed(&b.specs[j], e.Past[limit], e.First[limit], r.now); err != nil {
				return fmt.Errorf("limit %d: %w", limit, err)
			}
		}
	}
	return r.compareArrivals(e)
}

// ticket is a ticket as it is compared.
type ticket struct {
	Slot     int
	Priority int8
	Claims   map[uint64]int64
}

// wanted returns the tickets that the model has in the line of a bucket.
func (r *replay) wanted(e *event, b *bucket) (all []ticket) {
	for _, x := range e.Order {
		mask := b.claims(e.Tickets[x])
		if mask == 0 {
			continue
		}
		w := ticket{Slot: x, Priority: r.priority(x), Claims: map[uint64]int64{}}
		for j, limit := range b.limits {
			if mask&(1<<limit) != 0 {
				w.Claims[b.specs[j].ID] = r.slot(x).Need[limit]
			}
		}
		all = append(all, w)
	}
	return all
}

// tickets returns the tickets that the code has there.
func (r *replay) tickets(b *bucket) (all []ticket) {
	for i := range b.line.Tickets {
		x := &b.line.Tickets[i]
		w := ticket{Slot: slices.Index(r.numbers, x.Number), Priority: x.Priority, Claims: map[uint64]int64{}}
		for _, c := range x.Claims {
			w.Claims[c.Limit] = c.N
		}
		all = append(all, w)
	}
	return all
}

// comparePassed compares what passed tickets of a limit, and its first one. The model counts the
// latter up to the kept share: more makes no difference.
func (b *bucket) comparePassed(s *record.Spec, past, first, now int64) error {
	gotPast, gotFirst := int64(0), int64(0)
	for i := range b.line.Passed {
		p := &b.line.Passed[i]
		if p.Limit != s.ID {
			continue
		}
		for _, f := range p.Units {
			if f.At > now {
				gotPast += f.N
			}
		}
		front := slices.IndexFunc(b.line.Tickets, func(x record.Ticket) bool { return x.Claim(s.ID) > 0 })
		if front >= 0 && b.line.Tickets[front].Number == p.First {
			gotFirst = min(p.Sum, s.Effective[record.Priorities-1]-s.Effective[0])
		}
	}
	if gotPast != past || gotFirst != first {
		return fmt.Errorf("%d units passed tickets, and %d the first one", gotPast, gotFirst)
	}
	return nil
}

// compareArrivals sees to it that a waiter has one arrival, in all its tickets.
func (r *replay) compareArrivals(e *event) error {
	for x, number := range r.numbers {
		if !slices.Contains(e.Order, x) {
			r.arrivals[x] = 0
			continue
		}
		for k, b := range r.buckets {
			if t := b.ticket(number); t != nil && t.Arrival != r.arrivals[x] {
				return fmt.Errorf("slot %d arrived at %d in bucket %d, want %d", x, t.Arrival, k, r.arrivals[x])
			}
		}
	}
	return nil
}
