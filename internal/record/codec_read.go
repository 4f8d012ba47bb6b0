package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// decoder reads the parts of a record. After the first error it yields zeros.
type decoder struct {
	b       []byte
	version byte
	err     error
}

// newDecoder checks version and checksum.
func newDecoder(b []byte) (*decoder, error) {
	if len(b) > 0 && (b[0] < 1 || b[0] > codecVersion) {
		return nil, fmt.Errorf("%w %d, known is %d", ErrVersion, b[0], codecVersion)
	}
	n := len(b) - 4
	if n < 1 {
		return nil, fmt.Errorf("%w: %d bytes", ErrDamaged, len(b))
	}
	if crc32.Checksum(b[:n], castagnoli) != binary.LittleEndian.Uint32(b[n:]) {
		return nil, fmt.Errorf("%w: wrong checksum", ErrDamaged)
	}
	return &decoder{b: b[1:n], version: b[0]}, nil
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrDamaged, what)
	}
	d.b = nil
}

func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail("bytes are left over")
	}
	return d.err
}

func (d *decoder) next(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.fail("cut off")
		return nil
	}
	p := d.b[:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) byte() byte {
	if p := d.next(1); len(p) == 1 {
		return p[0]
	}
	return 0
}

func (d *decoder) id() uint64 {
	if p := d.next(8); len(p) == 8 {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

func (d *decoder) uint(most uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > most {
		d.fail("number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// int reads a number in [least, most].
func (d *decoder) int(least, most int64) int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 || v < least || v > most {
		d.fail("number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) units() int64 { return d.int(0, maxUsed) }
func (d *decoder) time() int64  { return d.int(0, maxTime) }
func (d *decoder) delta() int64 { return d.int(-maxTime, maxTime) }

// near reads an instant that was written relative to another one.
func (d *decoder) near(base, sign int64) int64 {
	t := base + sign*d.delta()
	if t < -maxTime || t > maxTime { // a window may have started before 1970, by a clock that was not set
		d.fail("instant")
		return 0
	}
	return t
}

// count reads the number of items that follow, of at least size bytes each.
func (d *decoder) count(size int) int {
	return int(d.uint(uint64(len(d.b) / size)))
}

// The fewest bytes of one limit, entry, reservation and part.
const (
	minState = 11
	minEntry = 3
	minOpen  = 12 // of format 1
	minPart  = 11
)

func (d *decoder) state(st *State, last int64, f Form) {
	st.ID, st.Kind = d.id(), Kind(d.byte())
	st.Window = d.time()
	st.Used = d.units()
	switch st.Kind {
	case Bucket:
		st.At = d.near(last, -1)
		st.Rate, st.Peak, st.Scale = d.units(), d.units(), d.units()
		if d.version > 1 {
			if ahead := d.time(); ahead > 0 {
				st.Ahead = min(last+ahead, maxTime)
			}
		}
		if st.Scale < 1 || st.Window%st.Scale != 0 || st.Window == 0 || st.Rate == 0 ||
			st.Rate%(st.Window/st.Scale) != 0 {
			d.fail("rate")
		}
	case Calendar:
		st.At = d.near(last, -1)
		st.End = d.near(st.At, 1)
		st.Next, st.After = d.units(), d.time()
		st.Late = d.late()
		if st.End < st.At {
			d.fail("window")
		}
	case Rolling:
		if st.Window == 0 {
			d.fail("window")
		}
		st.Late = d.late()
		if f == Whole {
			d.entries(st, last)
		}
	case Concurrency:
	default:
		d.fail("kind of limit")
	}
}

// late reads a field that format 1 did not have.
func (d *decoder) late() int64 {
	if d.version < 2 {
		return 0
	}
	return d.time()
}

func (d *decoder) entries(st *State, last int64) {
	before := last
	for range d.count(minEntry) {
		var e Entry
		e.First = d.near(before, 1)
		e.Last = d.near(e.First, 1)
		e.N = d.units()
		before = e.First
		if d.err != nil {
			return
		}
		st.Entries.Push(e)
	}
}

func (d *decoder) reservations(r *Record) {
	n := d.count(minOpen)
	r.partial = &partial{missing: n}
	for range n {
		id := string(d.next(int(d.uint(uint64(len(d.b))))))
		o := d.open()
		if d.err != nil {
			return
		}
		if r.Open == nil {
			r.Open = make(map[string]*Open)
		}
		r.Open[id] = o
	}
}

func (d *decoder) open() *Open {
	o := &Open{}
	if d.version > 1 {
		o.Grant, o.Fingerprint = d.id(), d.id()
		o.At, o.Margin, o.End = d.time(), d.time(), d.time()
	} else {
		o.Fingerprint, o.End = d.id(), d.time()
	}
	switch d.byte() {
	case 0:
	case 1:
		o.Lease = true
	default:
		d.fail("lease")
	}
	if n := d.count(minPart); n > 0 {
		o.Parts = make([]Part, n)
	}
	for i := range o.Parts {
		p := &o.Parts[i]
		p.Limit = d.id()
		flags := d.byte()
		p.Both, p.Held, p.Passed = flags&flagBoth != 0, flags&flagHeld != 0, flags&flagPassed != 0
		p.N, p.Ref = d.units(), d.time()
	}
	return o
}

// Missing returns the number of reservations that must be added to a record in form Header.
func (r *Record) Missing() int { return r.expected() - len(r.Open) }

func (r *Record) expected() int {
	if r.partial == nil {
		return 0
	}
	return r.partial.missing
}

// Complete checks a record that was put together from its parts, and recomputes their sums. The
// parts must have at least what the header counted: a lost part is an error, so that no unit is
// forgotten.
func (r *Record) Complete() error {
	if n := r.expected(); len(r.Open) != n {
		return fmt.Errorf("%w: only %d of %d reservations were found", ErrDamaged, len(r.Open), n)
	}
	r.separate()
	for i := range r.Limits {
		if err := r.Limits[i].complete(); err != nil {
			return err
		}
	}
	for _, o := range r.Open {
		for i := range o.Parts {
			p := &o.Parts[i]
			st := r.byID(p.Limit)
			switch {
			case st == nil:
			case p.Held:
				if st.Kind != Concurrency && st.Kind != Bucket {
					st.Late = max(st.Late, p.Ref) // format 1 did not have it
				}
				st.Held = min(addSat(st.Held, p.N), maxUsed)
			default:
				st.Loose = min(addSat(st.Loose, p.N), maxUsed)
			}
		}
	}
	r.partial = nil
	r.Reorder()
	return nil
}

// complete checks the entries, and makes room for the sums over the reservations.
func (st *State) complete() error {
	st.Held, st.Loose = 0, 0
	if st.Kind != Rolling {
		return nil
	}
	sum, before := int64(0), Entry{First: -1}
	for i := range st.Entries.Len() {
		e := *st.Entries.At(i)
		if e.First <= before.First || e.First < before.Last || e.Last < e.First || e.N < 0 {
			return fmt.Errorf("%w: entries are out of order", ErrDamaged)
		}
		sum, before = min(addSat(sum, e.N), maxUsed), e
	}
	if sum < st.Used {
		return fmt.Errorf("%w: entries of %d units are missing", ErrDamaged, st.Used-sum)
	}
	st.Used = sum
	return nil
}

// additions reads the data that most records do not have.
func (d *decoder) additions(r *Record) {
	if d.version < 2 {
		return
	}
	for range d.count(2) {
		tag := d.byte()
		body := decoder{b: d.next(int(d.uint(uint64(len(d.b))))), version: d.version}
		switch {
		case d.err != nil:
			return
		case tag != tagPause:
			d.err = fmt.Errorf("%w: an addition with tag %d", ErrVersion, tag)
			return
		case r.Pause != nil:
			d.fail("pause")
			return
		}
		r.Pause = &Pause{Until: body.time(), Reason: string(body.b)}
		if body.err != nil || r.Pause.Until == 0 {
			d.fail("pause")
		}
	}
}
