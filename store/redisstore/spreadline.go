package redisstore

import (
	"context"
	"math"
	"slices"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// Tickets of takes over several slots of a cluster.
//
// Such a take has tickets as one has in one slot: it claims units in the first limit that refuses
// it, the longest window first, and in those before. So its tickets may be in several slots. Where
// it stands is the same in all of them: by the clock of that which met it first.
//
// Each part that it reserves knows its place. Once a part is granted its ticket there is gone; if a
// later slot refuses, the ticket is put back before the part is cancelled. See models/line.py, "two
// servers": without that a take of both may wait for ever beside takes of one.

// ticket returns what a take says of those who wait, for the buckets of the group.
func (g *group) ticket(t *store.Ticket) *store.Ticket {
	if t == nil {
		return nil
	}
	mine := *t
	mine.Next = nil
	for _, n := range t.Next {
		if k := slices.Index(g.at, n.At); k >= 0 {
			n.At = k
			mine.Next = append(mine.Next, n)
		}
	}
	return &mine
}

// stand leaves the tickets of a take that was refused, and removes those that it has elsewhere.
// What it does not reach ends by itself. It reports whether the slot that refused has what is asked
// of it by now: what came free before the ticket was there was announced to others.
func (st *spreadTake) stand(ctx context.Context, d *store.Verdict) (free bool) {
	t := st.t.Ticket
	if t == nil {
		return false
	}
	claims, last := st.claims(d)
	st.s.reached("stand", last)
	life := min(max(2*d.RetryAfter.Microseconds(), record.LeastLife), record.MostLife)
	known := *t
	if known.Arrival == 0 { // the slot that refuses it says when it came
		first := make([]request, 1)
		st.standing(&first[0], last, &known, claims, life)
		if err := st.s.carryOut(ctx, "take", first); err != nil || first[0].err != nil {
			return false
		}
		free = first[0].free
		known.Arrival = first[0].arrived
		mine := *st.t
		mine.Ticket = &known // the next try may have to remove what this one leaves
		st.t = &mine
	}
	d.Arrival = known.Arrival
	var gs []int // where it has tickets, or may have
	for g := range st.groups {
		claimed := slices.ContainsFunc(st.groups[g].at, func(i int) bool { return claims[i] != store.Amounts{} })
		if t.Arrival != 0 || claimed && g != last {
			gs = append(gs, g)
		}
	}
	reqs := make([]request, len(gs))
	for k, g := range gs {
		st.standing(&reqs[k], g, &known, claims, life)
	}
	if len(reqs) > 0 {
		_ = st.s.carryOut(ctx, "take", reqs) // see above
	}
	for k, g := range gs {
		free = free || g == last && reqs[k].free
	}
	return free
}

// claims returns the units that a refused take claims per bucket, and the group that refuses it. A
// take that cannot pass in time claims none, and nor does one of a paused bucket.
func (st *spreadTake) claims(d *store.Verdict) (claims []store.Amounts, last int) {
	t := st.t
	claims = make([]store.Amounts, len(t.Buckets))
	if p := t.Ticket.Patience; d.Reason == store.Paused || d.EarliestRetry == math.MaxInt64 ||
		p > 0 && d.EarliestRetry > p {
		return claims, 0
	}
	for _, at := range store.Internal.LimitsInOrder(t) {
		i, j := at[0], at[1]
		claims[i][j] = t.Buckets[i].N[j]
		if d.Bucket(i).Limits[j].RetryAfter > 0 {
			return claims, st.groupOf(i)
		}
	}
	return claims, 0
}

// groupOf returns the position of the group of a bucket.
func (st *spreadTake) groupOf(bucket int) int {
	return slices.IndexFunc(st.groups, func(g group) bool { return slices.Contains(g.at, bucket) })
}

// standing makes the request that leaves a take's tickets in the slot of a group.
func (st *spreadTake) standing(r *request, g int, t *store.Ticket, claims []store.Amounts, life int64) {
	buckets := st.groups[g].buckets(st.t.Buckets)
	for k, i := range st.groups[g].at {
		buckets[k].N = claims[i]
	}
	one := store.Take{Buckets: buckets, Priority: st.t.Priority, Ticket: st.groups[g].ticket(t)}
	r.life, r.looked = life, r.stands
	r.ofTake(&one)
}

// stands reads the answer to a request that leaves tickets.
func (r *request) stands(m *rueidis.RedisMessage) error {
	code, _, rest, err := answered(m)
	if err != nil || code != gotDone {
		return errAnswer
	}
	if len(rest) < 2 {
		return errAnswer
	}
	if r.arrived, err = rest[0].AsInt64(); err != nil {
		return err
	}
	free, err := rest[1].AsInt64()
	r.free = free == 1
	return err
}
