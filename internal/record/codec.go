package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"slices"
)

// The binary form of a record, for stores that keep records as bytes:
//
//	format, form, Last, number of limits, the limits, number of open reservations, [reservations], number of additions, the additions, checksum
//
// An addition is a tag, a length and that many bytes, for data that most records do not have. So a
// later version can add one without changing the rest; a reader that does not know its tag must not
// guess.
//
// Numbers are varints; instants are relative to Last if they are close to it. The checksum
// (CRC-32C, 4 bytes) makes a damaged record an error, never a smaller record. The first byte is the
// version of the format; a reader that does not know it must not guess.

// codecVersion is the format that is written. Format 1, which can still be read, had no grants and
// no additions.
const codecVersion = 2

// tagPause is the addition of a pause: until when, then the reason.
const tagPause = 1

// Form says which parts of a record the bytes hold.
type Form uint8

const (
	// Whole has everything.
	Whole Form = 1
	// Header leaves out the entries of rolling limits and the open reservations: they are stored
	// elsewhere, one by one. It has the number of open reservations and the sum of the entries, so
	// that [Record.Complete] notices if one was lost.
	Header Form = 2
)

var (
	// ErrVersion means that the bytes were written by a newer version of the program.
	ErrVersion = errors.New("record: unknown format version")
	// ErrDamaged means that the bytes are not those that were written.
	ErrDamaged = errors.New("record: damaged")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maxTime bounds instants and durations, in µs, so that sums of a few of them do not overflow.
const maxTime = 1 << 60

// Append appends the bytes of a record to buf.
func Append(buf []byte, r *Record, f Form) []byte {
	start := len(buf)
	buf = append(buf, codecVersion, byte(f))
	buf = binary.AppendVarint(buf, r.Last)
	buf = binary.AppendUvarint(buf, uint64(len(r.Limits)))
	for i := range r.Limits {
		buf = appendState(buf, &r.Limits[i], r.Last, f)
	}
	ended := r.past.all()
	buf = binary.AppendUvarint(buf, uint64(len(r.Open)+len(ended)))
	if f == Whole {
		for _, id := range slices.Sorted(maps.Keys(r.Open)) {
			buf = appendNamed(buf, id, r.Open[id])
		}
		for _, o := range ended {
			buf = appendNamed(buf, o.id, o)
		}
	}
	return appendSum(appendAdditions(buf, r), start)
}

func appendNamed(buf []byte, id string, o *Open) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(id)))
	return appendOpen(append(buf, id...), o)
}

func appendAdditions(buf []byte, r *Record) []byte {
	if r.Pause == nil {
		return binary.AppendUvarint(buf, 0)
	}
	body := append(binary.AppendVarint(nil, r.Pause.Until), r.Pause.Reason...)
	buf = binary.AppendUvarint(buf, 1)
	buf = append(buf, tagPause)
	buf = binary.AppendUvarint(buf, uint64(len(body)))
	return append(buf, body...)
}

func appendSum(buf []byte, start int) []byte {
	return binary.LittleEndian.AppendUint32(buf, crc32.Checksum(buf[start:], castagnoli))
}

func appendState(buf []byte, st *State, last int64, f Form) []byte {
	buf = binary.BigEndian.AppendUint64(buf, st.ID)
	buf = append(buf, byte(st.Kind))
	buf = binary.AppendVarint(buf, st.Window)
	buf = binary.AppendVarint(buf, st.Used)
	switch st.Kind {
	case Bucket:
		for _, v := range [...]int64{last - st.At, st.Rate, st.Peak, st.Scale, max(0, st.Ahead-last)} {
			buf = binary.AppendVarint(buf, v)
		}
	case Calendar:
		for _, v := range [...]int64{last - st.At, st.End - st.At, st.Next, st.After, st.Late} {
			buf = binary.AppendVarint(buf, v)
		}
	case Rolling:
		buf = binary.AppendVarint(buf, st.Late)
		if f == Header {
			return buf
		}
		buf = binary.AppendUvarint(buf, uint64(st.Entries.Len()))
		before := last
		for i := range st.Entries.Len() {
			e := st.Entries.At(i)
			buf = binary.AppendVarint(buf, e.First-before)
			buf = binary.AppendVarint(buf, e.Last-e.First)
			buf = binary.AppendVarint(buf, e.N)
			before = e.First
		}
	}
	return buf
}

// AppendOpen appends the bytes of one open reservation, without its id, to buf.
func AppendOpen(buf []byte, o *Open) []byte {
	start := len(buf)
	return appendSum(appendOpen(append(buf, codecVersion), o), start)
}

const (
	flagBoth = 1 << iota
	flagHeld
	flagPassed // a program of the version before ignores it, and drops it when it writes the reservation
)

func appendOpen(buf []byte, o *Open) []byte {
	buf = binary.BigEndian.AppendUint64(buf, o.Grant)
	buf = binary.BigEndian.AppendUint64(buf, o.Fingerprint)
	for _, v := range [...]int64{o.At, o.Margin, o.End} {
		buf = binary.AppendVarint(buf, v)
	}
	lease := byte(0)
	if o.Lease {
		lease = 1
	}
	buf = append(buf, lease)
	buf = binary.AppendUvarint(buf, uint64(len(o.Parts)))
	for i := range o.Parts {
		p := &o.Parts[i]
		buf = binary.BigEndian.AppendUint64(buf, p.Limit)
		flags := byte(0)
		if p.Both {
			flags |= flagBoth
		}
		if p.Held {
			flags |= flagHeld
		}
		if p.Passed {
			flags |= flagPassed
		}
		buf = append(buf, flags)
		buf = binary.AppendVarint(buf, p.N)
		buf = binary.AppendVarint(buf, p.Ref)
	}
	return buf
}

// Decode reads a record. A record in form Header can only be used after its entries and
// reservations were added and [Record.Complete] was called.
//
// It never panics, allocates in proportion to len(b), and does not keep b.
func Decode(b []byte) (*Record, Form, error) {
	d, err := newDecoder(b)
	if err != nil {
		return nil, 0, err
	}
	f := Form(d.byte())
	if f != Whole && f != Header {
		d.fail("form")
	}
	r := &Record{Last: d.time()}
	if n := d.count(minState); n > 0 {
		r.Limits = make([]State, n)
	}
	for i := range r.Limits {
		d.state(&r.Limits[i], r.Last, f)
	}
	if f == Header {
		r.partial = &partial{missing: int(d.uint(math.MaxInt32))}
	} else {
		d.reservations(r)
	}
	d.additions(r)
	if err := d.end(); err != nil {
		return nil, 0, err
	}
	for i := range r.Limits {
		for j := range i {
			if r.Limits[i].ID == r.Limits[j].ID {
				return nil, 0, fmt.Errorf("%w: the same limit twice", ErrDamaged)
			}
		}
	}
	if f == Whole {
		err = r.Complete()
	}
	return r, f, err
}

// DecodeOpen reads one open reservation.
func DecodeOpen(b []byte) (*Open, error) {
	d, err := newDecoder(b)
	if err != nil {
		return nil, err
	}
	o := d.open()
	return o, d.end()
}
