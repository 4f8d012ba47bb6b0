package drawgate

import (
	"errors"
	"time"

	"github.com/drawgate/drawgate/internal/bridge"
	"github.com/drawgate/drawgate/internal/cells"
	"github.com/drawgate/drawgate/internal/record"
)

// This file is where decisions are made. Stores reach its functions through package answer.
var _ = func() struct{} {
	bridge.LimitSpec, bridge.Specs, bridge.Variant = Limit.spec, (*Plan).specsFor, (*Plan).variant
	bridge.Decide, bridge.NewDecision, bridge.NewPlain = decide, newDecision, newPlain
	bridge.Describe, bridge.TakeLocal = describe, takeLocal
	return struct{}{}
}()

// decide decides a checked take over the records of its buckets, in the order of t.Buckets. exact
// says that a rolling limit without a precision is exact. It is granted for no instant before from.
// Both are in Unix microseconds.
func decide(t *Take, fingerprint uint64, recs []*record.Record, exact bool, from, now int64) Decision {
	var one [1]record.Ask
	asks := one[:]
	if len(recs) > 1 {
		asks = make([]record.Ask, len(recs))
	}
	fill(asks, t.Buckets, recs, exact)
	rt := record.Take{
		ID: t.ID, Grant: uint64(t.Grant), Hold: t.Hold.Microseconds(), Ahead: t.Ahead.Microseconds(), From: from, Lease: t.Lease,
		Given: t.Given, Priority: t.Priority,
	}
	if t.ID != "" {
		rt.Fingerprint = fingerprint
		rt.NotAfter = record.Latest(t.NotAfter)
	}
	v := record.Decide(asks, &rt, now)
	return newDecision(t, v, asks)
}

// newDecision makes a decision of what was decided. Of asks, Out and Granted are used.
func newDecision(t *Take, v record.Verdict, asks []record.Ask) (d Decision) {
	switch {
	case v.Reused:
		return Decision{Fail: ErrIDReused, at: v.Now}
	case v.Other:
		return Decision{Fail: ErrIDOpen, at: v.Now}
	case v.Late:
		return Decision{Fail: ErrTooLate, at: v.Now}
	case v.Full:
		return Decision{Fail: ErrTooManyOpen, at: v.Now}
	}
	d.head(&v)
	d.priority = uint8(t.Priority)
	if len(asks) > 1 || v.End != 0 || d.Allowed && v.Start > v.Now || v.Unknown {
		d.more = &details{start: v.Start, end: v.End, unknown: v.Unknown}
	}
	d.results(t.Buckets[0].Plan, &asks[0].Out)
	for i := range asks {
		if i > 0 {
			d.more.buckets = append(d.more.buckets, bucketResult{plan: t.Buckets[i].Plan, res: asks[i].Out})
		}
		if v.End != 0 {
			d.more.got = append(d.more.got, Amounts(asks[i].Granted))
		}
	}
	return d
}

// newPlain is newDecision for a plain take of one bucket.
func newPlain(t *Take, v record.Verdict, out [MaxLimits]record.Result) Decision {
	return newDecision(t, v, []record.Ask{{Out: out}})
}

func (d *Decision) head(v *record.Verdict) {
	d.Allowed, d.Replayed, d.at = v.Allowed, v.Replayed, v.Now
	if !v.Allowed {
		d.Reason, d.RetryAfter, d.EarliestRetry = Limited, duration(v.RetryAfter), duration(v.EarliestRetry)
		if v.Paused {
			d.Reason, d.pausedAt = Paused, uint8(v.PausedAt)
		}
	}
}

// takeLocal decides a plain take of one bucket in this process, as [Limiter.Allow] does.
func takeLocal(b *cells.Buckets, plan *Plan, name string, n Amounts, priority int8) (d Decision, err error) {
	if len(plan.specs) != 1 || !d.lean(b, plan, name, n[0], priority) {
		err = d.local(b, plan, name, &n, priority)
	}
	if err == nil {
		d.priority = uint8(priority)
	}
	return d, err
}

// local decides a plain take of one bucket in this process. d must be zero. It does not allocate
// for up to three limits.
func (d *Decision) local(b *cells.Buckets, plan *Plan, name string, n *Amounts, priority int8) error {
	if len(plan.specs) > inline {
		return d.localMany(b, plan, name, n, priority)
	}
	allowed, paused, at, after, earliest, err := b.Take(name, (*record.Amounts)(n), priority, d.res[:])
	if err != nil {
		return localError(err)
	}
	d.plan, d.at, d.Allowed = plan, at, allowed
	if !allowed {
		d.Reason, d.RetryAfter, d.EarliestRetry = Limited, duration(after), duration(earliest)
		if paused {
			d.Reason = Paused
		}
	}
	return nil
}

// localMany is local for more limits than a decision holds by itself.
func (d *Decision) localMany(b *cells.Buckets, plan *Plan, name string, n *Amounts, priority int8) error {
	var out [MaxLimits]record.Result
	allowed, paused, at, after, earliest, err := b.Take(name, (*record.Amounts)(n), priority, out[:])
	if err != nil {
		return localError(err)
	}
	d.head(&record.Verdict{Allowed: allowed, Paused: paused, Now: at, RetryAfter: after, EarliestRetry: earliest})
	d.results(plan, &out)
	return nil
}

func localError(err error) error {
	if errors.Is(err, cells.ErrClosed) {
		return ErrClosed
	}
	return &StoreError{Store: "memory", Op: "take", Err: err}
}

// lean decides a plain take of one bucket of a policy that is a single bucket limit; false if that
// needs [Decision.local].
func (d *Decision) lean(b *cells.Buckets, plan *Plan, name string, n int64, priority int8) bool {
	left, used, over, at, ok := b.TakeGCRA(name, n, priority)
	if !ok {
		return false
	}
	d.raw, d.at, d.plan = true, at, plan
	d.res[0].Remaining, d.res[0].ResetAt = left, used
	if over == 0 {
		d.Allowed = true
		return true
	}
	d.Reason = Limited
	d.res[0].RetryAfter = record.Never
	if over > 0 {
		d.res[0].RetryAfter = record.CeilDiv(over, plan.specs[0].Drain)
	}
	d.RetryAfter = duration(d.res[0].RetryAfter)
	d.EarliestRetry = d.RetryAfter // nothing is held that could come back
	return true
}

// describe describes a bucket by its record, which may be advanced to now.
func describe(b *BucketCost, rec *record.Record, priority int8, exact bool, now int64) Status {
	asks := []record.Ask{{Rec: rec, Specs: b.Plan.specsFor(exact), N: record.Amounts(b.N)}}
	v := record.Peek(&asks[0], priority, now)
	t := Take{Buckets: []BucketCost{*b}, Priority: priority}
	s := Status{Decision: newDecision(&t, v, asks), Open: len(asks[0].Rec.Open)}
	if p := asks[0].Rec.Pause; p != nil {
		s.Pause = Pause{Until: time.UnixMicro(p.Until), Reason: p.Reason}
	}
	for i := range b.Plan.specs {
		u := asks[0].Rec.Usage(&asks[0].Specs[i], priority)
		s.States = append(s.States, LimitUsage{
			Used: u.Used, Held: u.Held, Debt: u.Debt, Max: u.Max, Start: micros(u.Start), End: micros(u.End),
		})
	}
	return s
}

func micros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

func fill(asks []record.Ask, buckets []BucketCost, recs []*record.Record, exact bool) {
	for i := range asks {
		asks[i] = record.Ask{Rec: recs[i], Specs: buckets[i].Plan.specsFor(exact), N: record.Amounts(buckets[i].N)}
	}
}
