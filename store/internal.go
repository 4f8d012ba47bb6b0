package store

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/internal/record"
)

// Internal has what package drawgate and the stores of this module need in addition, because they
// keep parts of a record separately, or decide in a script. Its methods take types that no other
// module can name.
var Internal internal

type internal struct{}

// Specs returns a plan's limits as the arithmetic needs them, in the plan's order. exact says that
// a rolling limit without a precision is exact. They must not be changed.
func (internal) Specs(p *Plan, exact bool) []record.Spec { return p.specsFor(exact) }

// ChargesAtEnd reports whether units of limit i count from their settlement on, and are held until
// then.
func (internal) ChargesAtEnd(p *Plan, i int) bool { return p.specs[i].ChargeEnd }

// Variant returns a plan of the same limits for a store whose clock may be ahead of the instant
// that it says by blur µs: units count that much longer. With atOnce the units of a take count from
// its start even if it is held, as those of a plain take do.
func (internal) Variant(p *Plan, blur int64, atOnce bool) *Plan { return p.variant(blur, atOnce) }

// Shared marks an error of one of several callers of one call: together they are one failure, of
// which counted says whether it was counted.
func (internal) Shared(e *Error, counted *atomic.Bool) *Error {
	e.counted = counted
	return e
}

// Counts reports whether an error is a failure that was not counted yet, and marks it as counted.
func (internal) Counts(e *Error) bool { return e.counted == nil || !e.counted.Swap(true) }

// Decide decides one take, which [Take.Check] finds right, over the records of its buckets, in the
// order of t.Buckets. exact says that a rolling limit without a precision is exact. now is in Unix
// microseconds.
func (internal) Decide(t *Take, recs []*record.Record, exact bool, now int64) Verdict {
	var content uint64
	if t.ID != "" {
		content = t.Fingerprint()
	}
	return decide(t, content, recs, nil, exact, 0, now)
}

// DecideInLine is Decide for a store that keeps the lines of the buckets.
func (internal) DecideInLine(t *Take, recs []*record.Record, lines []*record.Line, exact bool, now int64) Verdict {
	var content uint64
	if t.ID != "" {
		content = t.Fingerprint()
	}
	return decide(t, content, recs, lines, exact, 0, now)
}

// LimitsInOrder returns the positions of bucket and limit of each limit that a take asks for, in
// the order in which it claims units of them while it waits.
func (internal) LimitsInOrder(t *Take) [][2]int {
	asks := make([]record.Ask, len(t.Buckets))
	for i := range asks {
		b := &t.Buckets[i]
		asks[i].Specs, asks[i].N = b.Plan.specsFor(false), record.Amounts(b.N)
	}
	rank(asks, t)
	return record.LimitsInOrder(asks)
}

// DecidePart is Decide for a part of a take whose whole content has this fingerprint, and which is
// granted for no instant before from.
func (internal) DecidePart(t *Take, content uint64, recs []*record.Record, exact bool, from, now int64) Verdict {
	return decide(t, content, recs, nil, exact, from, now)
}

func decide(t *Take, content uint64, recs []*record.Record, lines []*record.Line, exact bool, from, now int64) Verdict {
	var one [1]record.Ask
	asks := one[:]
	if len(recs) > 1 {
		asks = make([]record.Ask, len(recs))
	}
	for i := range asks {
		b := &t.Buckets[i]
		asks[i] = record.Ask{Rec: recs[i], Specs: b.Plan.specsFor(exact), N: record.Amounts(b.N)}
	}
	rt := record.Take{
		ID: t.ID, Grant: uint64(t.Grant), Hold: t.Hold.Microseconds(), Ahead: t.Ahead.Microseconds(), From: from,
		Lease: t.Lease,
		Given: t.Given, Barge: t.Barge || t.Recovery != nil, Priority: t.Priority,
	}
	if lines != nil {
		for i := range asks {
			asks[i].Line = lines[i]
		}
		rt.Place = t.Ticket.place()
		rank(asks, t)
	}
	if t.ID != "" {
		rt.Fingerprint = content
		rt.NotAfter = record.Latest(t.NotAfter)
	}
	v := record.Decide(asks, &rt, now)
	return Internal.Verdict(&v, asks)
}

// Verdict makes a verdict of what was decided. Of asks, Out and Granted are used.
func (internal) Verdict(r *record.Verdict, asks []record.Ask) (v Verdict) {
	switch {
	case r.Reused:
		return Verdict{Fail: ErrIDReused, Now: r.Now}
	case r.Other:
		return Verdict{Fail: ErrIDOpen, Now: r.Now}
	case r.Late:
		return Verdict{Fail: ErrTooLate, Now: r.Now}
	case r.Full:
		return Verdict{Fail: ErrTooManyOpen, Now: r.Now}
	}
	v.Allowed, v.Replayed, v.UsageUnknown, v.Now, v.Start, v.End = r.Allowed, r.Replayed, r.Unknown, r.Now, r.Start,
		r.End
	if !v.Allowed {
		v.Reason, v.RetryAfter, v.EarliestRetry = Limited, duration(r.RetryAfter), duration(r.EarliestRetry)
		switch {
		case r.Paused:
			v.Reason, v.PausedAt = Paused, r.PausedAt
		case r.Queued:
			v.Reason = Queued
		}
		v.Arrival, v.Standing = r.Arrival, Standing(r.Standing)
	}
	if len(asks) > 1 {
		v.Rest = make([]Answer, len(asks)-1)
	}
	for i := range asks {
		ask, a := &asks[i], v.Bucket(i)
		for j, out := range ask.Out {
			a.Limits[j] = Result{Remaining: out.Remaining, RetryAfter: duration(out.RetryAfter), ResetAt: out.ResetAt}
		}
		if v.End != 0 {
			a.Granted = Amounts(ask.Granted)
		}
	}
	return v
}

// Describe describes a bucket, which [BucketCost.Check] finds right, by its record. The record may
// be advanced to now, which is no change that has to be kept, and what is over leaves its line,
// which is nil if the store keeps none.
func (internal) Describe(b *BucketCost, rec *record.Record, line *record.Line, priority int8, exact bool, now int64,
) State {
	asks := [1]record.Ask{{Rec: rec, Specs: b.Plan.specsFor(exact), N: record.Amounts(b.N), Line: line}}
	v := record.Peek(&asks[0], priority, now)
	s := State{Verdict: Internal.Verdict(&v, asks[:]), Open: len(asks[0].Rec.Open)}
	if p := asks[0].Rec.Pause; p != nil {
		s.Pause = Pause{Until: time.UnixMicro(p.Until), Reason: p.Reason}
	}
	for i := range b.Plan.specs {
		u := asks[0].Rec.Usage(&asks[0].Specs[i], priority)
		s.States = append(s.States, LimitUsage{
			Used: u.Used, Held: u.Held, Debt: u.Debt, Max: u.Max, Start: instant(u.Start), End: instant(u.End),
		})
	}
	if line != nil && len(line.Tickets) > 0 {
		s.Line = waiters(line, asks[0].Specs)
		asks[0].Line = nil
		v = record.Peek(&asks[0], priority, now)
		barging := Internal.Verdict(&v, asks[:])
		s.Barging = &barging
	}
	return s
}

// duration converts µs, saturating.
func duration(us int64) time.Duration {
	if us > math.MaxInt64/1000 {
		return math.MaxInt64
	}
	return time.Duration(us) * time.Microsecond
}

// Apply carries out one settlement, which [Settlement.Check] finds right, on the records of its
// buckets, in the order of s.Buckets.
func (internal) Apply(s *Settlement, recs []*record.Record, exact bool, now int64) Outcome {
	return Internal.ApplyInLine(s, recs, nil, exact, now)
}

// ApplyInLine is Apply by a store that keeps lines, which may change: one per bucket, nil where it
// has none.
func (internal) ApplyInLine(s *Settlement, recs []*record.Record, lines []*record.Line, exact bool, now int64) Outcome {
	asks := make([]record.Ask, len(recs))
	for i := range asks {
		b := &s.Buckets[i]
		asks[i] = record.Ask{Rec: recs[i], Specs: b.Plan.specsFor(exact), N: record.Amounts(b.N)}
		if lines != nil {
			asks[i].Line = lines[i]
		}
	}
	switch s.Op {
	case OpSettle, OpCancel:
		var out Outcome
		if s.Ended {
			if c := record.Correct(asks, s.ID, uint64(s.Grant), s.Op == OpCancel, now); c != nil {
				out = Internal.Refunded(asks)
				out.Corrected = c
			}
		}
		settled, _ := record.Settle(asks, s.ID, uint64(s.Grant), s.Op == OpCancel, now)
		out.Gone = !settled
		return out
	case OpRenew:
		if end, kept := record.KeptLease(asks, s.ID, uint64(s.Grant), now); kept {
			return Outcome{Kept: true, End: time.UnixMicro(end)}
		}
		renewed, end, _ := record.Renew(asks, s.ID, uint64(s.Grant), s.Hold.Microseconds(), now)
		if !renewed {
			return Outcome{Gone: true}
		}
		return Outcome{End: time.UnixMicro(end)}
	case OpCharge:
		if s.Once && record.TooLate(asks, Internal.SeenAt(s), now) {
			return Outcome{Err: ErrTooLate}
		}
		record.Charge(asks, s.At.UnixMicro(), now)
		return Outcome{}
	case OpRefund:
		record.Refund(asks, Internal.SeenAt(s), now)
		return Internal.Refunded(asks)
	case OpPause:
		end, kept := record.PauseUntil(asks, pauseEnd(s, now), s.Reason, now)
		return Outcome{End: instant(end), Kept: kept}
	case OpUnpause:
		end := record.Unpause(asks, s.At.UnixMicro(), now)
		return Outcome{End: instant(end), Kept: end > 0}
	}
	return Outcome{Err: ErrInvalid}
}

// SeenAt returns when somebody saw how much is used, from which an OpRefund, or an OpCharge with
// Once, follows, in Unix µs; 0 if it does not say so.
func (internal) SeenAt(s *Settlement) int64 {
	if s.At.IsZero() {
		return 0
	}
	return min(max(1, s.At.UnixMicro()), MaxInstant)
}

// Instant returns an instant in Unix µs as a time; 0 is the zero time.
func (internal) Instant(us int64) time.Time { return instant(us) }

func instant(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

// pauseEnd returns until when an OpPause lasts, in Unix µs.
func pauseEnd(s *Settlement, now int64) int64 {
	if s.Hold > 0 {
		return now + s.Hold.Microseconds()
	}
	return s.At.UnixMicro()
}

// Refunded makes the outcome of an OpRefund that was carried out. Of asks, Granted is used: the
// units given back.
func (internal) Refunded(asks []record.Ask) (o Outcome) {
	for i := range asks {
		if asks[i].Granted == (record.Amounts{}) {
			continue
		}
		if o.Back == nil {
			o.Back = make([]Amounts, len(asks))
		}
		o.Back[i] = Amounts(asks[i].Granted)
	}
	return o
}
