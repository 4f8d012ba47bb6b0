package redisstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// This file is the protocol between the store and its script, whose formats are in join.go. Numbers
// are doubles, little endian.
//
// Arguments of the script: operation, request of the first bucket, generation of the server (see
// history.go) and what is known of each bucket's history, ID, further arguments of the operation
// (extra), requests of the other buckets. A request consists of the number of limits; per limit
// its identity (8 bytes), kind, flags and numbers; of limits that keep units for some priorities,
// what each may use; and the key's parts, if the key is a digest. The script cannot compute
// calendar windows: a request has those around the server's time, and the script asks if it needs
// others. The operations opGCRA, opHot and opReset have no arguments but the first three.

// Operations of the script.
const (
	// plain take from one bucket that has one limit, of kind bucket; the script may have to take
	// the long way.
	opGCRA = "l"
	opHot  = "h" // plain take from one bucket
	opWait = "q" // the same with a ticket; extra as of opTake
	// extra: grant, fingerprint, hold (its end, if it is opened again), not after, ahead, flags;
	// then its ticket, if it has one.
	opTake    = "t"
	opSettle  = "s" // extra: grant; a byte more if it corrects holds that have ended
	opCancel  = "x" // the same
	opRenew   = "r" // extra: grant, hold
	opCharge  = "c" // extra: the instant at which the units were used
	opRecover = "v" // a charge of what was lost; extra: grant, number of parts, parts
	opPause   = "z" // extra: for how long, until when, when it was set (0: now), reason
	opUnpause = "u" // extra: when the pause to end would end, when it was ended (0: now)
	opRefund  = "b"
	opReset   = "e"
	opPeek    = "p"
	opLeave   = "w" // removes a ticket from buckets; instead of an ID, the waiter's number
	opBatch   = "m" // requests of all kinds but opPeek, opReset and opLeave: see batch.lua
)

// What the script answers: an array that starts with one of these and the instant. A plain take
// that was allowed on the short way is answered by the bucket's new header alone.
const (
	gotShort    = 0 // refused on the short way; followed by the current header
	gotAllowed  = 1 // end of the hold; followed by views, and from when the units count if that is later
	gotRefused  = 2 // as gotAllowed; with a ticket, or where others wait, followed by the buckets' lines
	gotReplayed = 3 // as gotAllowed
	gotReused   = 4
	// settled, if it corrects holds that have ended: as gotGone; renewed: end of the hold; paused,
	// unpaused: end of the pause, 0 if there is none; refunded: units given back per bucket
	gotDone    = 5
	gotGone    = 6 // 0; if it corrects holds that have ended: per bucket, whether it did, and the units that came back
	gotPeek    = 7
	gotFull    = 8 // record.MaxOpen reservations are open
	gotWindows = 9 // followed by the instants whose calendar windows the script needs; nothing was done
	gotOther   = 10
	gotLate    = 11
	gotKept    = 12 // end of the lease that was not renewed, or of the pause that was left
	gotBatch   = 14 // followed by the answers of a batch
	gotPartly  = 15 // nobody knows what of a batch was written
	// the take has to be sent again: expired entries were removed, and more of them are in the way;
	// or nothing was done about it, because a batch had too many that are not plain after all.
	gotMore  = 13
	gotTold  = 16 // followed by an answer, and what is told of the history of each bucket
	gotUnmet = 17 // a recovery that was not carried out
)

// Flags of what is asked of a limit. Above them is the take's priority.
const (
	flagChargeEnd = 1 << iota
	flagShares    // what each priority may use follows all limits
)

// Flags of a take.
const (
	flagLease = 1 << iota
	flagGiven
	flagAgain
)

func appendNum(buf []byte, v int64) []byte {
	return binary.LittleEndian.AppendUint64(buf, math.Float64bits(float64(v)))
}

func appendNums(buf []byte, vs ...int64) []byte {
	for _, v := range vs {
		buf = appendNum(buf, v)
	}
	return buf
}

// appendRequest appends one bucket's request. It has the calendar windows of the instant about now,
// the following one, and those of times.
func appendRequest(buf []byte, b *store.BucketCost, priority int8, raw string, about int64, times []int64) []byte {
	specs := store.Internal.Specs(b.Plan, false)
	buf = append(buf, byte(len(specs)))
	for i := range specs {
		s := &specs[i]
		flags := byte(priority) << 4 // at most 9
		if s.ChargeEnd {
			flags |= flagChargeEnd
		}
		if sharesOf(s) > 1 {
			flags |= flagShares
		}
		buf = append(binary.BigEndian.AppendUint64(buf, s.ID), byte(s.Kind), flags)
		buf = appendNums(buf, b.N[i], s.Effective[priority])
		switch s.Kind {
		case record.Bucket:
			buf = appendNums(buf, s.Window, s.Rate, s.Scale, s.Drain)
		case record.Rolling:
			buf = appendNums(buf, s.Window, s.Join, s.Margin)
		case record.Calendar:
			buf = appendWindows(appendNum(buf, s.Margin), s, about, times)
		}
	}
	for i := range specs {
		if sharesOf(&specs[i]) > 1 {
			buf = appendShares(buf, &specs[i])
		}
	}
	return append(buf, raw...)
}

// sharesOf returns how many different amounts the priorities may use of a limit.
func sharesOf(s *record.Spec) int {
	n := 1
	for p := range record.Priorities - 1 {
		if s.Effective[p+1] != s.Effective[p] {
			n++
		}
	}
	return n
}

// appendShares appends what each priority may use of a limit: a take has to leave to a ticket of
// another priority what that may use.
func appendShares(buf []byte, s *record.Spec) []byte {
	buf = append(buf, byte(sharesOf(s)))
	for p := range record.Priorities {
		if p == 0 || s.Effective[p] != s.Effective[p-1] {
			buf = appendNum(append(buf, byte(p)), s.Effective[p])
		}
	}
	return buf
}

// doubt is how many µs the server's clock may be behind the estimate by which windows are chosen.
const doubt = 1_000_000

// appendWindows appends the windows that the script may need: those around now, earliest first, and
// those that it asked for.
func appendWindows(buf []byte, s *record.Spec, about int64, times []int64) []byte {
	at := len(buf)
	buf = append(buf, 0, 0)
	var given [4]int64 // starts
	n := 0
	add := func(start, end int64) {
		given[n] = start
		buf = appendNums(buf, start, end)
		n++
	}
	start, end := s.Rule.Window(about)
	if about-start < doubt {
		before, _ := s.Rule.Window(start - 1)
		add(before, start)
	}
	add(start, end)
	_, next := s.Rule.Window(end)
	add(end, next)
	if s.Margin > 0 { // right after a boundary the margin may reach across another one
		_, third := s.Rule.Window(next)
		add(next, third)
	}
	count := n
	seen := map[int64]bool{}
	for _, t := range times {
		start, end := s.Rule.Window(t)
		if !slices.Contains(given[:n], start) && !seen[start] && count < math.MaxUint16 {
			seen[start] = true
			buf = appendNums(buf, start, end)
			count++
		}
	}
	binary.LittleEndian.PutUint16(buf[at:], uint16(count))
	return buf
}

// Errors for unexpected answers of the script and unexpected stored fields.
var (
	errAnswer  = errors.New("the script's answer cannot be read")
	errDamaged = errors.New("the record cannot be read")
)

// reader reads numbers from packed bytes. After the first error it only returns zeros.
type reader struct {
	buf string
	bad bool
}

func (r *reader) bytes(n int) string {
	if n < 0 || n > len(r.buf) {
		r.bad, r.buf = true, ""
		n = 0
	}
	b := r.buf[:n]
	r.buf = r.buf[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.bytes(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

// short reads 2 bytes, the lower first.
func (r *reader) short() int {
	b := r.bytes(2)
	if len(b) < 2 {
		return 0
	}
	return int(b[0]) | int(b[1])<<8
}

// word reads 8 bytes, the lowest first.
func (r *reader) word() uint64 {
	b := r.bytes(8)
	if len(b) < 8 {
		return 0
	}
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 | uint64(b[4])<<32 | uint64(b[5])<<40 |
		uint64(b[6])<<48 | uint64(b[7])<<56
}

func (r *reader) id() uint64 {
	return bits.ReverseBytes64(r.word())
}

// num reads an integer that a double holds exactly.
func (r *reader) num() int64 {
	f := math.Float64frombits(r.word())
	if f != math.Trunc(f) || math.Abs(f) > 1<<53 { // NaN is unequal to itself
		r.bad = true
		return 0
	}
	return int64(f)
}

// format is the version of the header that is written, and the only one that is read.
const format = 2

// Flags of a header. A program that does not know all of them must not guess.
const (
	flagOpen = 1 << iota // it has open reservations
	flagPaused
	knownFlags = flagOpen | flagPaused
)

// Added to a kind.
const (
	kindHolds = 16 // held units follow
	kindAhead = 32 // the latest instant to which units were granted ahead follows
)

// stored is a bucket as described by its header.
type stored struct {
	rec   record.Record
	ttl   int64    // the instant until which its TTL was set
	open  int      // reservations
	ends  int64    // none ends later
	last  []newest // of rolling limits
	older bool     // one of them has more entries

	// Storage for a bucket of one limit, to avoid allocations.
	oneState  [1]record.State
	oneNewest [1]newest
	oneRecord [1]*record.Record
}

// newest is the newest entry of limit i of a header.
type newest struct {
	i int
	e record.Entry
}

// readHeader reads a bucket's header; an empty one is that of an unused bucket. It makes room for
// so many limits.
func readHeader(b string, limits int) (*stored, error) {
	st := &stored{}
	st.rec.Limits, st.last = st.oneState[:0], st.oneNewest[:0]
	if limits > 1 {
		st.rec.Limits, st.last = make([]record.State, 0, limits), make([]newest, 0, limits)
	}
	if len(b) == 0 {
		return st, nil
	}
	if b[0] != format {
		return nil, fmt.Errorf("%w: unknown format %d", errDamaged, b[0])
	}
	r := reader{buf: b[1:]}
	flags := r.byte()
	if flags&^knownFlags != 0 {
		return nil, fmt.Errorf("%w: unknown flags %d", errDamaged, flags)
	}
	st.rec.Last, st.ttl = r.num(), r.num()
	if flags&flagOpen != 0 {
		st.open = int(r.num())
		r.num()
		st.ends = r.num()
	}
	if flags&flagPaused != 0 {
		p := &record.Pause{Until: r.num()}
		n := int(r.byte())
		p.Reason = r.bytes(n + int(r.byte())<<8)
		st.rec.Pause = p
	}
	for len(r.buf) > 0 {
		st.readState(&r)
	}
	if r.bad || st.open < 0 {
		return nil, errDamaged
	}
	return st, nil
}

func (st *stored) readState(r *reader) {
	s := record.State{ID: r.id()}
	kind := r.byte()
	s.Kind = record.Kind(kind &^ (kindHolds | kindAhead))
	switch s.Kind {
	case record.Bucket:
		s.Used, s.At, s.Rate, s.Window = r.num(), r.num(), r.num(), r.num()
		if s.Rate < 1 || s.Window < 1 {
			r.bad = true
			return
		}
		s.Scale, _ = record.BucketScale(s.Rate, s.Window)
	case record.Rolling:
		s.Window, s.Used = r.num(), r.num()
		head, tail := r.num(), r.num()
		e := record.Entry{First: r.num(), Last: r.num(), N: r.num()}
		r.num()
		st.older = st.older || head < tail
		if head <= tail {
			st.last = append(st.last, newest{len(st.rec.Limits), e})
		}
	case record.Calendar:
		s.Used, s.At, s.End, s.Next, s.After = r.num(), r.num(), r.num(), r.num(), r.num()
	case record.Concurrency:
	default:
		r.bad = true
	}
	if kind&kindHolds != 0 {
		s.Held, s.Loose = r.num(), r.num()
		if s.Kind == record.Bucket {
			s.Peak = r.num()
		} else {
			s.Late = r.num()
		}
	}
	if kind&kindAhead != 0 {
		s.Ahead = r.num()
	}
	st.rec.Limits = append(st.rec.Limits, s)
}

// complete adds the newest entries, and the given older ones, to the rolling limits.
func (st *stored) complete(older map[uint64][]record.Entry) {
	for i := range st.rec.Limits {
		l := &st.rec.Limits[i]
		for _, e := range older[l.ID] {
			l.Entries.Push(e)
		}
	}
	for _, n := range st.last {
		st.rec.Limits[n.i].Entries.Push(n.e)
	}
}

// readHeld reads what is held of a bucket's limits: the ends of all open reservations, and per
// limit its position, counted from 1, and what each reservation holds of it.
func (st *stored) readHeld(lists []string, specs []record.Spec) error {
	if len(lists) == 0 {
		return nil
	}
	ends := reader{buf: lists[0]}
	at := make([]int64, len(lists[0])/8)
	for i := range at {
		at[i] = ends.num()
	}
	for _, list := range lists[1:] {
		r := reader{buf: list}
		j := int(r.byte())
		if j < 1 || j > len(specs) || len(r.buf) != len(lists[0]) {
			return errAnswer
		}
		held := make([]record.Freed, 0, len(at))
		for i := range at {
			if n := r.num(); n > 0 {
				held = append(held, record.Freed{At: at[i], N: n})
			}
		}
		if r.bad {
			return errDamaged
		}
		st.rec.SetHeld(specs[j-1].ID, held)
	}
	if ends.bad || len(ends.buf) > 0 {
		return errDamaged
	}
	return nil
}

// readView reads the script's view of a bucket: enough of its record to answer with.
func readView(m *rueidis.RedisMessage, b *store.BucketCost) (st *stored, got store.Amounts, err error) {
	parts, err := m.ToArray()
	if err != nil || len(parts) < 4 {
		return nil, got, errAnswer
	}
	if st, err = header(&parts[0], len(store.Internal.Specs(b.Plan, false))); err != nil {
		return nil, got, err
	}
	older, err := readEntries(&parts[1], store.Internal.Specs(b.Plan, false))
	if err != nil {
		return nil, got, err
	}
	st.complete(older)
	lists, err := parts[2].AsStrSlice()
	if err != nil {
		return nil, got, errAnswer
	}
	if err := st.readHeld(lists, store.Internal.Specs(b.Plan, false)); err != nil {
		return nil, got, err
	}
	if len(parts) > 4 {
		ns, err := parts[4].AsIntSlice()
		if err != nil || len(ns) > len(got) {
			return nil, got, errAnswer
		}
		copy(got[:], ns)
	}
	return st, got, nil
}

func header(m *rueidis.RedisMessage, limits int) (*stored, error) {
	s, err := m.ToString()
	if err != nil {
		return nil, errAnswer
	}
	return readHeader(s, limits)
}

// readEntries reads the oldest entries of rolling limits: per limit a string with its position,
// counted from 1, and the entries.
func readEntries(m *rueidis.RedisMessage, specs []record.Spec) (map[uint64][]record.Entry, error) {
	strs, err := m.AsStrSlice()
	if err != nil {
		return nil, errAnswer
	}
	if len(strs) == 0 {
		return nil, nil
	}
	older := make(map[uint64][]record.Entry, len(strs))
	for _, s := range strs {
		r := reader{buf: s}
		j := int(r.byte())
		if j < 1 || j > len(specs) {
			return nil, errAnswer
		}
		es := make([]record.Entry, 0, len(r.buf)/24)
		for len(r.buf) > 0 {
			es = append(es, record.Entry{First: r.num(), Last: r.num(), N: r.num()})
		}
		if r.bad {
			return nil, errDamaged
		}
		older[specs[j-1].ID] = es
	}
	return older, nil
}
