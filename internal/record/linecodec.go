package record

import (
	"encoding/binary"
	"errors"
)

// The binary form of a line: format, number of tickets, the tickets, number of limits with units
// that passed, these. Numbers are varints, waiters and limits 8 bytes. Bytes that cannot be read
// are no line at all: then the order of those who wait is lost, and nothing else.

const lineVersion = 1

// Append appends the bytes of a line to buf: none if it is empty.
func (l *Line) Append(buf []byte) []byte {
	if len(l.Tickets) == 0 {
		return buf
	}
	buf = append(buf, lineVersion)
	buf = binary.AppendUvarint(buf, uint64(len(l.Tickets)))
	for i := range l.Tickets {
		x := &l.Tickets[i]
		buf = binary.BigEndian.AppendUint64(buf, x.Number)
		buf = binary.AppendVarint(binary.AppendVarint(buf, x.Arrival), x.End-x.Arrival)
		buf = append(buf, byte(x.Priority), byte(len(x.Claims)))
		for _, c := range x.Claims {
			buf = binary.AppendVarint(binary.BigEndian.AppendUint64(buf, c.Limit), c.N)
		}
	}
	buf = binary.AppendUvarint(buf, uint64(len(l.Passed)))
	for i := range l.Passed {
		p := &l.Passed[i]
		buf = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(buf, p.Limit), p.First)
		buf = append(binary.AppendVarint(buf, p.Sum), byte(len(p.Units)))
		for _, f := range p.Units {
			buf = binary.AppendVarint(binary.AppendVarint(buf, f.At), f.N)
		}
	}
	return buf
}

var errLine = errors.New("record: not a line")

// DecodeLine reads what [Line.Append] wrote. It is an empty line if the bytes are something else.
func DecodeLine(b []byte) *Line {
	l := &Line{}
	if len(b) == 0 || b[0] != lineVersion || l.read(b[1:]) != nil {
		return &Line{}
	}
	return l
}

func (l *Line) read(b []byte) error {
	r := lineReader{b: b}
	n := r.count(MaxTickets)
	for range n {
		x := Ticket{Number: r.id(), Arrival: r.number()}
		x.End = x.Arrival + r.signed() // it is before the arrival if the clock was set back since
		r.bad = r.bad || x.End < 0
		x.Priority = int8(r.count(Priorities - 1))
		for range r.count(MaxLimits) {
			x.Claims = append(x.Claims, Claim{r.id(), r.number()})
		}
		l.Tickets = append(l.Tickets, x)
	}
	for range r.count(MaxLimits * MaxTickets) {
		p := Passed{Limit: r.id(), First: r.id(), Sum: r.number()}
		for range r.count(maxPassed) {
			p.Units = append(p.Units, Freed{r.number(), r.number()})
		}
		l.Passed = append(l.Passed, p)
	}
	if r.bad || len(r.b) > 0 {
		return errLine
	}
	return nil
}

type lineReader struct {
	b   []byte
	bad bool
}

// number reads a number that is not negative.
func (r *lineReader) number() int64 {
	v := r.signed()
	if v < 0 {
		r.b, r.bad = nil, true
		return 0
	}
	return v
}

func (r *lineReader) signed() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 || v < -maxTime || v > maxTime {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads a number of things, of which there are at most so many.
func (r *lineReader) count(most int) int {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > uint64(most) {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[n:]
	return int(v)
}

func (r *lineReader) id() uint64 {
	if len(r.b) < 8 {
		r.b, r.bad = nil, true
		return 0
	}
	v := binary.BigEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}
