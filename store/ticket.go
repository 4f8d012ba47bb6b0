package store

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate/internal/record"
)

// Ticket is the place of a take that may wait in the line of all processes. A store that keeps a
// line of each bucket refuses takes that would keep those who came earlier from their units. It
// says so with the reason [Queued], and sets [Verdict.Arrival] whenever it refuses a take with a
// ticket. Stores that keep none ignore tickets: then the line is each process's own.
//
// A refused take leaves its ticket where it was refused, until it is granted or withdrawn
// ([Liner]); without either it ends after twice the wait that the refusal named, at least 200
// ms and at most 5 s. So its taker asks again in half of that.
type Ticket struct {
	// Number is that of the waiter: random, not 0, the same in each of its takes.
	Number uint64
	// Arrival is when it began to wait by the store's clock: what the first refusal said, or what
	// is known of that clock. 0: the store takes its own instant less Waited, which is late by the
	// time of the request.
	Arrival int64
	// Waited says for how long it has waited so far.
	Waited time.Duration
	// Patience says for how long it may still wait; 0: without end. A take that cannot pass in that
	// time leaves no ticket.
	Patience time.Duration
	// Next are those behind it in the line of its process, in order, [MaxNext] at most.
	Next []Next
}

// MaxNext is how many of those behind a take it may name.
const MaxNext = record.MaxNext

// Next is a waiter whose ticket a take leaves in one of its buckets, granted or not, so that nobody
// of another process passes it before it comes to the front and asks itself.
type Next struct {
	Number   uint64
	Arrival  int64
	Waited   time.Duration
	Priority int8
	At       int     // position of the bucket in the take
	N        Amounts // of that bucket
}

// place returns the ticket as the arithmetic has it.
func (t *Ticket) place() *record.Place {
	if t == nil {
		return nil
	}
	p := &record.Place{
		Number: t.Number, Arrival: t.Arrival, Waited: t.Waited.Microseconds(), Patience: t.Patience.Microseconds(),
	}
	if t.Patience > 0 {
		p.Patience = max(1, p.Patience)
	}
	for i := range t.Next {
		n := &t.Next[i]
		p.Next = append(p.Next, record.Next{
			Number: n.Number, Arrival: n.Arrival, Waited: n.Waited.Microseconds(), Priority: n.Priority, At: n.At,
			N: record.Amounts(n.N),
		})
	}
	return p
}

// waiters describes who waits in the line of a bucket with these limits.
func waiters(l *record.Line, specs []record.Spec) (all []Waiter) {
	for i := range l.Tickets {
		x := &l.Tickets[i]
		w := Waiter{Number: x.Number, Since: instant(x.Arrival), Priority: x.Priority}
		for j := range specs {
			w.N[j] = x.Claim(specs[j].ID)
		}
		all = append(all, w)
	}
	return all
}

// compareKeys orders keys as the limits of a take are ordered where their windows are of one
// length.
func compareKeys(k, o Key) int {
	return cmp.Or(strings.Compare(k.Tenant, o.Tenant), strings.Compare(k.Policy, o.Policy),
		strings.Compare(k.Name, o.Name))
}

// rank sets the ranks of a take's buckets.
func rank(asks []record.Ask, t *Take) {
	if len(asks) == 1 || t.Ticket == nil {
		return
	}
	order := make([]int, len(asks))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return compareKeys(t.Buckets[a].Key, t.Buckets[b].Key) })
	for rank, i := range order {
		asks[i].Rank = rank
	}
}

// check reports what is wrong with a ticket of a take.
func (t *Ticket) check(buckets []BucketCost) error {
	switch {
	case t == nil:
		return nil
	case t.Number == 0 || t.Arrival < 0 || t.Waited < 0 || t.Patience < 0:
		return fmt.Errorf("%w: a ticket with the number %d, of %d, that has waited %v and may wait %v", ErrInvalid, t.Number,
			t.Arrival, t.Waited, t.Patience)
	}
	if len(t.Next) > MaxNext {
		return fmt.Errorf("%w: %d waiters behind a take, more than %d", ErrInvalid, len(t.Next), MaxNext)
	}
	for i := range t.Next {
		n := &t.Next[i]
		if n.Number == 0 || n.Number == t.Number || n.Arrival < 0 || n.Waited < 0 || n.At < 0 || n.At >= len(buckets) ||
			n.Priority < 0 || n.Priority > MaxPriority {
			return fmt.Errorf("%w: a waiter behind has the number %d, and bucket %d of %d", ErrInvalid, n.Number, n.At,
				len(buckets))
		}
		if err := checkAmounts([]BucketCost{{N: n.N}}, 0); err != nil {
			return err
		}
	}
	return nil
}
