package redisstore

import (
	"context"
	"encoding/binary"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/internal/storekey"
	"github.com/drawgate/drawgate/store"
)

// The line of a bucket is a field of its hash, which script/line.lua reads and writes. Here are the
// ticket that a take brings, and the lines of an answer, which explain a refusal.

// Flags of a ticket.
const (
	flagBarge  = 1 << iota
	flagStands // the take only leaves its tickets: see spreadline.go
)

// appendTicket appends what a take says of those who wait. If life is not 0, it only leaves its
// tickets, which live for so long.
func appendTicket(buf []byte, t *store.Take, life int64) []byte {
	flags, ticket := byte(0), t.Ticket
	if t.Barge {
		flags |= flagBarge
	}
	if ticket == nil { // the number 0 is no ticket
		return append(appendNums(append(buf, make([]byte, 8)...), 0, 0, 0), flags, 0, 0)
	}
	buf = binary.BigEndian.AppendUint64(buf, ticket.Number)
	patience := ticket.Patience.Microseconds()
	if ticket.Patience > 0 {
		patience = max(1, patience)
	}
	if life > 0 {
		flags, patience = flags|flagStands, life
	}
	buf = appendNums(buf, capped(ticket.Arrival), capped(ticket.Waited.Microseconds()), capped(patience))
	order := store.Internal.LimitsInOrder(t)
	buf = append(buf, flags, byte(len(order)), byte(len(ticket.Next)))
	for _, at := range order {
		buf = append(buf, byte(at[0]+1), byte(at[1]+1))
	}
	for i := range ticket.Next {
		n := &ticket.Next[i]
		limits := len(store.Internal.Specs(t.Buckets[n.At].Plan, false))
		buf = binary.BigEndian.AppendUint64(buf, n.Number)
		buf = appendNums(buf, capped(n.Arrival), capped(n.Waited.Microseconds()))
		buf = append(buf, byte(n.Priority), byte(n.At+1), byte(limits))
		buf = appendNums(buf, n.N[:limits]...)
	}
	return buf
}

// capped returns the largest number up to n that a double holds.
func capped(n int64) int64 { return min(n, maxUsed) }

const lineFormat = 1

// readLine reads a line as the script writes it. What the script could not read it does not send.
func readLine(text string) (*record.Line, error) {
	l := &record.Line{}
	if text == "" {
		return l, nil
	}
	r := reader{buf: text}
	r.bad = r.byte() != lineFormat
	r.num() // when the last ticket ends
	for range r.byte() {
		x := record.Ticket{Number: r.id(), Arrival: r.num(), End: r.num(), Priority: int8(r.byte())}
		for range r.byte() {
			x.Claims = append(x.Claims, record.Claim{Limit: r.id(), N: r.num()})
		}
		r.bad = r.bad || x.Priority < 0 || x.Priority >= record.Priorities
		l.Tickets = append(l.Tickets, x)
	}
	for range r.byte() {
		p := record.Passed{Limit: r.id(), First: r.id(), Sum: r.num()}
		for range r.byte() {
			p.Units = append(p.Units, record.Freed{At: r.num(), N: r.num()})
		}
		l.Passed = append(l.Passed, p)
	}
	if r.bad || len(r.buf) > 0 {
		return nil, errDamaged
	}
	return l, nil
}

// readLines reads the lines of a take's buckets.
func readLines(m *rueidis.RedisMessage, buckets int) ([]*record.Line, error) {
	texts, err := m.AsStrSlice()
	if err != nil || len(texts) != buckets {
		return nil, errAnswer
	}
	lines := make([]*record.Line, buckets)
	for i, text := range texts {
		if lines[i], err = readLine(text); err != nil {
			return nil, err
		}
	}
	return lines, nil
}

// Withdraw implements [store.Liner]. The buckets of one slot are one step.
func (s *Store) Withdraw(ctx context.Context, number uint64, keys []store.Key) error {
	c, err := s.begin(ctx, "withdraw")
	if err != nil {
		return err
	}
	defer s.end()
	var reqs []*request
	of := map[uint16]*request{}
	for _, k := range keys {
		key, _ := storekey.Format(s.prefix, k)
		slot := uint16(0)
		if s.cluster {
			slot = slotOf(key)
		}
		r := of[slot]
		if r == nil {
			r = &request{op: opLeave, id: string(binary.BigEndian.AppendUint64(nil, number)), looked: withdrawn}
			of[slot], reqs = r, append(reqs, r)
		}
		r.keys = append(r.keys, key)
	}
	if len(reqs) == 0 {
		return nil
	}
	s.oneByOne(ctx, c, "withdraw", reqs, true)
	for _, r := range reqs {
		if r.err != nil {
			return r.err
		}
	}
	return nil
}

// KeepsLine implements [store.Liner].
func (s *Store) KeepsLine() bool { return true }

func withdrawn(m *rueidis.RedisMessage) error {
	if code, _, _, err := answered(m); err != nil || code != gotDone {
		return errAnswer
	}
	return nil
}
