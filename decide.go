package drawgate

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/drawgate/drawgate/internal/cells"
	"github.com/drawgate/drawgate/internal/record"
)

// This file is where stores meet the arithmetic: a store that keeps records in Go loads them, calls
// one of these functions under its own lock or transaction, and writes them back. The functions are
// pure; now is in Unix microseconds.

// Decide decides one take over the records of its buckets, in the order of t.Buckets. exact says
// that a rolling limit without a precision is exact.
//
// For stores: called under the store's lock or in its transaction, which also writes the records
// back.
func Decide(t *Take, recs []*record.Record, exact bool, now int64) Decision {
	if err := t.Check(); err != nil {
		return Decision{Fail: err}
	}
	var one [1]record.Ask
	asks := one[:]
	if len(recs) > 1 {
		asks = make([]record.Ask, len(recs))
	}
	fill(asks, t.Buckets, recs, exact)
	rt := record.Take{
		ID: t.ID, Grant: uint64(t.Grant), Hold: t.Hold.Microseconds(), Ahead: t.Ahead.Microseconds(), Lease: t.Lease,
		Given: t.Given, Priority: t.Priority,
	}
	if t.ID != "" {
		rt.Fingerprint = t.Fingerprint()
		if !t.NotAfter.IsZero() {
			rt.NotAfter = t.NotAfter.UnixMicro()
		}
	}
	v := record.Decide(asks, &rt, now)
	return NewDecision(t, v, asks)
}

// Answer makes a decision of what was decided elsewhere. Of asks, Out and Got are used.
//
// For stores: for those that do not decide by [Decide], such as one that decides in a script.
func NewDecision(t *Take, v record.Verdict, asks []record.Ask) (d Decision) {
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
	if len(asks) > 1 || v.End != 0 || d.Allowed && v.Start > v.Now {
		d.more = &details{start: v.Start, end: v.End}
	}
	d.results(t.Buckets[0].Plan, &asks[0].Out)
	for i := range asks {
		if i > 0 {
			d.more.buckets = append(d.more.buckets, bucketResult{plan: t.Buckets[i].Plan, res: asks[i].Out})
		}
		if v.End != 0 {
			d.more.got = append(d.more.got, asks[i].Granted)
		}
	}
	return d
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

// TakeLocal decides a plain take of one bucket in this process, as [Limiter.Allow] does.
//
// For stores: what a limiter does with an [Opener], for tests of one.
func TakeLocal(b *cells.Buckets, plan *Plan, name string, n Amounts, priority int8) (d Decision, err error) {
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
	allowed, paused, at, after, earliest, err := b.Take(name, n, priority, d.res[:])
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
	allowed, paused, at, after, earliest, err := b.Take(name, n, priority, out[:])
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

// Carry carries out one settlement on the records of its buckets, in the order of s.Buckets.
//
// For stores: called as [Decide] is.
func Apply(s *Settlement, recs []*record.Record, exact bool, now int64) Outcome {
	asks := make([]record.Ask, len(recs))
	fill(asks, s.Buckets, recs, exact)
	switch s.Op {
	case OpSettle, OpCancel:
		settled, _ := record.Settle(asks, s.ID, uint64(s.Grant), s.Op == OpCancel, now)
		return Outcome{Gone: !settled}
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
		record.Charge(asks, s.At.UnixMicro(), now)
		return Outcome{}
	case OpRefund:
		record.Refund(asks, now)
		return Refunded(asks)
	case OpPause:
		end, _ := record.PauseUntil(asks, s.pauseEnd(now), s.Reason, now)
		return Outcome{End: time.UnixMicro(end)}
	}
	return Outcome{Err: ErrInvalid}
}

// pauseEnd returns until when an OpPause lasts, in Unix µs.
func (s *Settlement) pauseEnd(now int64) int64 {
	if s.Hold > 0 {
		return now + s.Hold.Microseconds()
	}
	return s.At.UnixMicro()
}

// Refunded makes the outcome of an OpRefund that was carried out elsewhere. Of asks, Granted is
// used: the units given back.
//
// For stores: for those that do not carry out by [Apply].
func Refunded(asks []record.Ask) (o Outcome) {
	for i := range asks {
		if asks[i].Granted == (Amounts{}) {
			continue
		}
		if o.Back == nil {
			o.Back = make([]Amounts, len(asks))
		}
		o.Back[i] = asks[i].Granted
	}
	return o
}

// Describe describes a bucket by its record.
//
// For stores: rec may be advanced to now, which is no change that has to be kept.
func Describe(b *BucketCost, rec *record.Record, priority int8, exact bool, now int64) Status {
	asks := []record.Ask{{Rec: rec, Specs: b.Plan.Specs(exact), N: b.N}}
	v := record.Peek(&asks[0], priority, now)
	t := Take{Buckets: []BucketCost{*b}, Priority: priority}
	s := Status{Decision: NewDecision(&t, v, asks), Open: len(asks[0].Rec.Open)}
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
		asks[i] = record.Ask{Rec: recs[i], Specs: buckets[i].Plan.Specs(exact), N: buckets[i].N}
	}
}

// Check reports what no store can decide: arguments out of bounds, and slots without a hold, which
// nothing would ever free. The library refuses more, and better; this is for stores that are called
// by themselves.
//
// For stores: to be asked before anything is decided elsewhere; [Decide] asks it too.
func (t *Take) Check() error {
	if n := len(t.Buckets); n == 0 || n > MaxBuckets {
		return fmt.Errorf("%w: %d buckets are not 1 to %d", ErrInvalid, n, MaxBuckets)
	}
	if t.Priority < 0 || t.Priority > MaxPriority || t.Hold < 0 {
		return fmt.Errorf("%w: priority %d, a hold of %v", ErrInvalid, t.Priority, t.Hold)
	}
	for i := range t.Buckets {
		b := &t.Buckets[i]
		if b.Plan == nil {
			return fmt.Errorf("%w: a bucket has no plan", ErrInvalid)
		}
		for j := range b.Plan.specs {
			if t.Hold == 0 && b.N[j] > 0 && b.Plan.specs[j].Kind == record.Concurrency {
				return fmt.Errorf("%w (policy %q)", ErrNeedsReserve, b.Plan.policy.Name)
			}
		}
	}
	return nil
}

// Fingerprint identifies what a take asks for: the same id with another fingerprint is another
// take.
//
// For stores: kept with an open reservation.
func (t *Take) Fingerprint() uint64 {
	buf := make([]byte, 0, 256)
	for i := range t.Buckets {
		b := &t.Buckets[i]
		for _, part := range [...]string{b.Key.Tenant, b.Key.Policy, b.Key.Name} {
			buf = binary.AppendUvarint(buf, uint64(len(part)))
			buf = append(buf, part...)
		}
		for j := range b.Plan.specs {
			buf = binary.BigEndian.AppendUint64(buf, b.Plan.specs[j].ID)
			buf = binary.AppendVarint(buf, b.N[j])
		}
	}
	buf = binary.AppendVarint(buf, t.Hold.Microseconds())
	if t.Lease {
		buf = append(buf, 1)
	}
	h := sha256.Sum256(buf)
	return binary.BigEndian.Uint64(h[:])
}
