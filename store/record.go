package store

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/drawgate/drawgate/internal/record"
)

// Errors of [Decode] for bytes that it cannot read. Neither means an unused bucket: a store answers
// them with an [Error] of [FaultBucket].
var (
	ErrVersion = record.ErrVersion // written by a newer version of this module
	ErrDamaged = record.ErrDamaged // not the bytes that were written
)

// Record is the state of one bucket: what is used of each limit, and the reservations that are
// open. The zero value is an unused bucket.
//
// It is not safe for concurrent use. A store may keep records in memory instead of decoding them
// again, as long as nothing else writes the bucket; one that was used for a transaction that failed
// must be dropped.
type Record struct {
	rec     record.Record
	changed bool
}

// Decode reads what [Record.Append] wrote. No bytes at all mean an unused bucket. It does not keep
// b.
func Decode(b []byte) (*Record, error) {
	r := &Record{}
	if len(b) == 0 {
		return r, nil
	}
	rec, form, err := record.Decode(b)
	if err != nil {
		return nil, err
	}
	if form != record.Whole {
		return nil, ErrDamaged
	}
	r.rec = *rec
	return r, nil
}

// Append appends the record's bytes to b and returns the extended slice. Their first byte is the
// version of their format, and they end with a checksum. From then on the record counts as written:
// if that fails, drop it.
func (r *Record) Append(b []byte) []byte {
	r.changed = false
	return record.Append(b, &r.rec, record.Whole)
}

// Changed reports whether the record has changed since it was decoded or last appended, and must be
// written. After a refusal it usually need not be written: only time has passed for the record, and
// that is computed again.
func (r *Record) Changed() bool { return r.changed }

// Until returns the instant from which the record means the same as none, so that its bytes may be
// deleted. It is the zero time while a reservation is open: then they must stay.
func (r *Record) Until() time.Time {
	until := r.rec.Until()
	if until == math.MaxInt64 {
		return time.Time{}
	}
	return time.UnixMicro(until)
}

// Decide decides one take over the records of its buckets, in the order of t.Buckets, and changes
// them. A take that no store can decide is a Verdict with Fail: [ErrInvalid] or
// [ErrNeedsReserve].
//
// now is the store's clock, which all clients of the store should share; if it was set back, the
// latest instant that a record has seen counts.
func Decide(t *Take, recs []*Record, now time.Time) Verdict {
	if err := errors.Join(t.Check(), check(t.Buckets, recs, now)); err != nil {
		return Verdict{Fail: err}
	}
	_, rs := begin(t.Buckets, recs, now)
	var since int64 // when the units of a take that is open already were taken
	if o := rs[0].Open[t.ID]; o != nil {
		since = o.At
	}
	v := Internal.Decide(t, rs, false, now.UnixMicro())
	again := v.Replayed && rs[0].Open[t.ID].At != since
	for i, r := range recs {
		if v.Allowed && !v.Replayed && (t.Hold > 0 || t.Buckets[i].N != Amounts{}) || again {
			r.changed = true
		}
	}
	return v
}

// Apply carries out one settlement on the records of its buckets, in the order of s.Buckets. For
// now see [Decide].
func Apply(s *Settlement, recs []*Record, now time.Time) Outcome {
	if err := errors.Join(s.Check(), check(s.Buckets, recs, now)); err != nil {
		return Outcome{Err: err}
	}
	at, rs := begin(s.Buckets, recs, now)
	open, paused := make([]bool, len(recs)), make([]bool, len(recs))
	for i, r := range rs {
		o := r.Open[s.ID]
		open[i] = o != nil && o.Grant == uint64(s.Grant) && o.End > at
		paused[i] = r.Pause != nil
	}
	out := Internal.Apply(s, rs, false, at)
	for i, r := range recs {
		switch s.Op {
		case OpCharge:
			r.changed = r.changed || out.Err == nil && s.Buckets[i].N != Amounts{}
		case OpRefund:
			r.changed = r.changed || out.Back != nil && out.Back[i] != Amounts{}
		case OpPause:
			r.changed = true
		case OpUnpause:
			r.changed = r.changed || paused[i] && r.rec.Pause == nil
		default:
			r.changed = r.changed || open[i] || out.Corrected != nil && out.Corrected[i]
		}
	}
	return out
}

// Describe describes a bucket without spending anything: what a take of b.N would get at this
// priority. It changes nothing that must be written.
func Describe(b *BucketCost, r *Record, priority int8, now time.Time) State {
	if err := b.Check(priority); err != nil {
		return State{Verdict: Verdict{Fail: err}}
	}
	return Internal.Describe(b, &r.rec, nil, priority, false, now.UnixMicro())
}

func check(buckets []BucketCost, recs []*Record, now time.Time) error {
	if now.After(time.UnixMicro(MaxInstant)) {
		return fmt.Errorf("%w: the store's clock says %v", ErrInvalid, now)
	}
	if len(recs) != len(buckets) {
		return fmt.Errorf("%w: %d records for %d buckets", ErrInvalid, len(recs), len(buckets))
	}
	return nil
}

// begin returns the records as the arithmetic has them, and the instant of the step. It marks those
// that others would advance differently than this caller.
func begin(buckets []BucketCost, recs []*Record, now time.Time) (int64, []*record.Record) {
	at, rs := now.UnixMicro(), make([]*record.Record, len(recs))
	for i, r := range recs {
		rs[i], at = &r.rec, max(at, r.rec.Last)
	}
	for i, r := range recs {
		r.changed = r.changed || r.rec.MustPersist(buckets[i].Plan.specs, at)
	}
	return at, rs
}
