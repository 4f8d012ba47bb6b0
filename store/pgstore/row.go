package pgstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// row is a bucket within a transaction.
type row struct {
	keyed
	there  bool   // the row is there, and locked
	place  string // of the version that is locked
	err    error
	rec    *record.Record
	line   *record.Line // nil: nobody waits, as far as is needed
	stored bool         // the row has a line
	notes  map[string]note
	marks  marks
	dirty  bool
	taken  bool // a take was granted: the record has grown
	freed  bool // units came free early, or a ticket has gone
}

// note is what the history will say of an open reservation when it ends.
type note struct {
	units  string
	labels []store.Label
}

// MostRecord is how many bytes the record of a bucket may have after a take, and so many again what
// the history will say of its reservations: each take reads and writes all of it. What is not a
// take is always written, because it may give units back.
const MostRecord = 1 << 20

var errTooLarge = fmt.Errorf("the bucket has more than %d bytes: a limit that is exact, or many open reservations, "+
	"need less, or another store", MostRecord)

// fill reads the columns of a row.
func (r *row) fill(rec, line, notes, marks []byte) {
	r.there, r.marks, r.stored = true, parseMarks(marks), len(line) > 0
	if r.rec, r.err = decodeRecord(rec); r.err != nil {
		return
	}
	r.rec.Changes = &record.Changes{}
	if r.stored {
		r.line = record.DecodeLine(line)
	}
	r.notes, r.err = parseNotes(notes)
}

func decodeRecord(b []byte) (*record.Record, error) {
	if len(b) == 0 {
		return &record.Record{}, nil
	}
	rec, form, err := record.Decode(b)
	if err == nil && form != record.Whole {
		err = record.ErrDamaged
	}
	return rec, err
}

// until returns until when a record matters, and whether reservations are open, after whose end it
// has to be looked at again.
func until(rec *record.Record) (at int64, held bool) {
	if at = rec.Until(); at < math.MaxInt64 {
		return at, false
	}
	at = 0
	for _, o := range rec.Open {
		at = max(at, o.End)
	}
	return at, true
}

// A mark says that a transaction of a store wrote the row: its number is the store's newest. It is
// how a transaction is found whose answer was lost.
type mark struct {
	process, number uint64
	at              int64 // µs
}

// marks are those of the processes that have written a row in the last minute.
type marks []mark

const (
	markSize  = 24
	markLife  = 60_000_000 // µs
	mostMarks = 256
)

func parseMarks(b []byte) (all marks) {
	for ; len(b) >= markSize; b = b[markSize:] {
		all = append(all, mark{
			binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]),
			int64(binary.BigEndian.Uint64(b[16:])),
		})
	}
	return all
}

// set notes a transaction, and forgets what is older than [markLife].
func (m marks) set(process, number uint64, now int64) marks {
	m = slices.DeleteFunc(m, func(x mark) bool { return x.process == process || x.at < now-markLife })
	if len(m) >= mostMarks { // the one that was written first is looked up least
		m = slices.Delete(m, 0, len(m)-mostMarks+1)
	}
	return append(m, mark{process, number, now})
}

func (m marks) bytes() []byte {
	b := make([]byte, 0, markSize*len(m))
	for _, x := range m {
		b = binary.BigEndian.AppendUint64(b, x.process)
		b = binary.BigEndian.AppendUint64(b, x.number)
		b = binary.BigEndian.AppendUint64(b, uint64(x.at))
	}
	return b
}

// has reports whether a transaction has written the row. It is not known if the row has no room for
// more marks.
func (m marks) has(process, number uint64) (has, known bool) {
	for _, x := range m {
		if x.process == process {
			return x.number == number, true
		}
	}
	return false, len(m) < mostMarks
}

var errNotes = errors.New("the notes of a bucket's reservations are damaged")

// noteBytes returns the notes of the reservations that are open.
func (r *row) noteBytes() (b []byte) {
	text := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	for id, n := range r.notes {
		text(id)
		text(n.units)
		b = binary.AppendUvarint(b, uint64(len(n.labels)))
		for _, l := range n.labels {
			text(l.Name)
			text(l.Value)
		}
	}
	return b
}

func parseNotes(b []byte) (notes map[string]note, err error) {
	number := func() (n uint64) {
		n, k := binary.Uvarint(b)
		if k <= 0 {
			err, b = errNotes, nil
			return 0
		}
		b = b[k:]
		return n
	}
	text := func() string {
		n := number()
		if n > uint64(len(b)) {
			err, b = errNotes, nil
			return ""
		}
		s := string(b[:n])
		b = b[n:]
		return s
	}
	for len(b) > 0 {
		if notes == nil {
			notes = map[string]note{}
		}
		id, n := text(), note{units: text()}
		for range number() {
			if err != nil {
				break
			}
			n.labels = append(n.labels, store.Label{Name: text(), Value: text()})
		}
		notes[id] = n
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", record.ErrDamaged, err)
	}
	return notes, nil
}

// known remembers which rows there are, so that only takes of new ones insert first.
type known struct {
	mu   sync.Mutex
	rows map[string]struct{} // guarded by mu
}

const mostKnown = 100_000

func (k *known) has(row string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.rows[row]
	return ok
}

func (k *known) add(rows []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rows == nil || len(k.rows)+len(rows) > mostKnown {
		k.rows = map[string]struct{}{}
	}
	for _, r := range rows {
		k.rows[r] = struct{}{}
	}
}

func (k *known) remove(row string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.rows, row)
}
