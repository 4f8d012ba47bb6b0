// Package answer decides takes and settlements on records: it is where stores meet the arithmetic.
//
// A store that keeps records in Go loads those of a take's buckets, calls one of these functions
// under its own lock or in its own transaction, and writes the records back. A store that decides
// elsewhere, such as in a script, makes its answers here. The functions are pure; now is in Unix
// microseconds. Package store offers the same to stores outside this module.
package answer

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/bridge"
	"github.com/drawgate/drawgate/internal/cells"
	"github.com/drawgate/drawgate/internal/record"
)

// Opener is a store that decides in the caller's process, without I/O: a [drawgate.Limiter] brings
// plain takes of one bucket to its buckets directly.
type Opener interface {
	Open(tenant string, plan *drawgate.Plan) *cells.Buckets
}

var (
	limitSpec   = bridge.LimitSpec.(func(drawgate.Limit) (record.Spec, error))
	specs       = bridge.Specs.(func(*drawgate.Plan, bool) []record.Spec)
	variant     = bridge.Variant.(func(*drawgate.Plan, int64, bool) *drawgate.Plan)
	decide      = bridge.Decide.(func(*drawgate.Take, uint64, []*record.Record, bool, int64, int64) drawgate.Decision)
	newDecision = bridge.NewDecision.(func(*drawgate.Take, record.Verdict, []record.Ask) drawgate.Decision)
	newPlain    = bridge.NewPlain.(func(*drawgate.Take, record.Verdict, [record.MaxLimits]record.Result) drawgate.Decision)
	describe    = bridge.Describe.(func(*drawgate.BucketCost, *record.Record, int8, bool, int64) drawgate.Status)
	takeLocal   = bridge.TakeLocal.(func(*cells.Buckets, *drawgate.Plan, string, drawgate.Amounts, int8) (drawgate.Decision, error))
)

// LimitSpec checks a limit and makes it ready for the arithmetic.
func LimitSpec(l drawgate.Limit) (record.Spec, error) { return limitSpec(l) }

// Specs returns a plan's limits as the arithmetic needs them, in the policy's order. exact says
// that a rolling limit without a precision is exact. They must not be changed.
func Specs(p *drawgate.Plan, exact bool) []record.Spec { return specs(p, exact) }

// Variant returns a plan of the same limits for a store whose clock may be ahead of the instant
// that it says by blur µs: units count that much longer. With atOnce the units of a take count from
// its start even if it is held, as those of a plain take do.
func Variant(p *drawgate.Plan, blur int64, atOnce bool) *drawgate.Plan {
	return variant(p, blur, atOnce)
}

// DecidePart is Decide for a part of a take whose whole content has this fingerprint, and which is
// granted for no instant before from.
func DecidePart(t *drawgate.Take, content uint64, recs []*record.Record, exact bool, from, now int64) drawgate.Decision {
	return decide(t, content, recs, exact, from, now)
}

// Decide decides one take, which [Check] finds right, over the records of its buckets, in the order
// of t.Buckets.
func Decide(t *drawgate.Take, recs []*record.Record, exact bool, now int64) drawgate.Decision {
	var content uint64
	if t.ID != "" {
		content = Fingerprint(t)
	}
	return decide(t, content, recs, exact, 0, now)
}

// New makes a decision of what was decided elsewhere. Of asks, Out and Granted are used.
func New(t *drawgate.Take, v record.Verdict, asks []record.Ask) drawgate.Decision {
	return newDecision(t, v, asks)
}

// Plain is New for a plain take of one bucket. It does not allocate.
func Plain(t *drawgate.Take, v record.Verdict, out [record.MaxLimits]record.Result) drawgate.Decision {
	return newPlain(t, v, out)
}

// TakeLocal decides a plain take of one bucket in this process, as [drawgate.Limiter.Allow] does
// with an [Opener].
func TakeLocal(b *cells.Buckets, p *drawgate.Plan, name string, n drawgate.Amounts, priority int8) (drawgate.Decision, error) {
	return takeLocal(b, p, name, n, priority)
}

// Describe describes a bucket, which [CheckPeek] finds right, by its record. The record may be
// advanced to now, which is no change that has to be kept.
func Describe(b *drawgate.BucketCost, rec *record.Record, priority int8, exact bool, now int64) drawgate.Status {
	return describe(b, rec, priority, exact, now)
}

// Apply carries out one settlement, which [CheckSettlement] finds right, on the records of its
// buckets, in the order of s.Buckets.
func Apply(s *drawgate.Settlement, recs []*record.Record, exact bool, now int64) drawgate.Outcome {
	asks := make([]record.Ask, len(recs))
	for i := range asks {
		b := &s.Buckets[i]
		asks[i] = record.Ask{Rec: recs[i], Specs: specs(b.Plan, exact), N: record.Amounts(b.N)}
	}
	switch s.Op {
	case drawgate.OpSettle, drawgate.OpCancel:
		settled, _ := record.Settle(asks, s.ID, uint64(s.Grant), s.Op == drawgate.OpCancel, now)
		return drawgate.Outcome{Gone: !settled}
	case drawgate.OpRenew:
		if end, kept := record.KeptLease(asks, s.ID, uint64(s.Grant), now); kept {
			return drawgate.Outcome{Kept: true, End: time.UnixMicro(end)}
		}
		renewed, end, _ := record.Renew(asks, s.ID, uint64(s.Grant), s.Hold.Microseconds(), now)
		if !renewed {
			return drawgate.Outcome{Gone: true}
		}
		return drawgate.Outcome{End: time.UnixMicro(end)}
	case drawgate.OpCharge:
		if s.Once && record.TooLate(asks, SeenAt(s), now) {
			return drawgate.Outcome{Err: drawgate.ErrTooLate}
		}
		record.Charge(asks, s.At.UnixMicro(), now)
		return drawgate.Outcome{}
	case drawgate.OpRefund:
		record.Refund(asks, SeenAt(s), now)
		return Refunded(asks)
	case drawgate.OpPause:
		end, kept := record.PauseUntil(asks, pauseEnd(s, now), s.Reason, now)
		return drawgate.Outcome{End: Instant(end), Kept: kept}
	case drawgate.OpUnpause:
		end := record.Unpause(asks, s.At.UnixMicro(), now)
		return drawgate.Outcome{End: Instant(end), Kept: end > 0}
	}
	return drawgate.Outcome{Err: drawgate.ErrInvalid}
}

// SeenAt returns when somebody saw how much is used, from which an OpRefund, or an OpCharge with
// Once, follows, in Unix µs; 0 if it does not say so.
func SeenAt(s *drawgate.Settlement) int64 {
	if s.At.IsZero() {
		return 0
	}
	return min(max(1, s.At.UnixMicro()), MaxInstant)
}

// Instant returns an instant in Unix µs as a time; 0 is the zero time.
func Instant(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

// pauseEnd returns until when an OpPause lasts, in Unix µs.
func pauseEnd(s *drawgate.Settlement, now int64) int64 {
	if s.Hold > 0 {
		return now + s.Hold.Microseconds()
	}
	return s.At.UnixMicro()
}

// Refunded makes the outcome of an OpRefund that was carried out elsewhere. Of asks, Granted is
// used: the units given back.
func Refunded(asks []record.Ask) (o drawgate.Outcome) {
	for i := range asks {
		if asks[i].Granted == (record.Amounts{}) {
			continue
		}
		if o.Back == nil {
			o.Back = make([]drawgate.Amounts, len(asks))
		}
		o.Back[i] = drawgate.Amounts(asks[i].Granted)
	}
	return o
}

// Bounds of what a store is asked. They keep every instant below 2^53 µs.
const (
	MaxHold    = 1_000_000_000 * time.Second // 31 years
	MaxInstant = 9 * int64(MaxHold/time.Microsecond)
	MaxID      = 1024 // bytes
)

// Check reports what no store can decide: arguments out of bounds, a bucket that is named twice, an
// id without a hold, and slots without one, which nothing would ever free. The library refuses
// more, and better; this is for stores that are called by themselves.
func Check(t *drawgate.Take) error {
	if t.Priority < 0 || t.Priority > drawgate.MaxPriority {
		return fmt.Errorf("%w: priority %d is not 0 to %d", drawgate.ErrInvalid, t.Priority, drawgate.MaxPriority)
	}
	if t.Hold != 0 && t.Hold < time.Microsecond || t.Hold > MaxHold {
		return fmt.Errorf("%w: a hold of %v is not 1µs to %v", drawgate.ErrInvalid, t.Hold, MaxHold)
	}
	if err := checkID(t.ID); err != nil {
		return err
	}
	if (t.ID != "") != (t.Hold > 0) {
		return fmt.Errorf("%w: a take with an id needs a hold, and a take without an id must not have one", drawgate.ErrInvalid)
	}
	if err := checkBuckets(t.Buckets); err != nil {
		return err
	}
	if err := checkAmounts(t.Buckets, 0); err != nil {
		return err
	}
	for i := range t.Buckets {
		if b := &t.Buckets[i]; t.Hold == 0 && b.Plan.NeedsHold() && asksForSlots(b) {
			return fmt.Errorf("%w (policy %q)", drawgate.ErrNeedsReserve, b.Plan.Name())
		}
	}
	return nil
}

// CheckSettlement is Check for a settlement.
func CheckSettlement(s *drawgate.Settlement) error {
	switch s.Op {
	case drawgate.OpSettle, drawgate.OpCancel, drawgate.OpRenew, drawgate.OpCharge, drawgate.OpRefund, drawgate.OpPause,
		drawgate.OpUnpause:
	default:
		return fmt.Errorf("%w: there is no operation %d", drawgate.ErrInvalid, s.Op)
	}
	if err := checkID(s.ID); err != nil {
		return err
	}
	if s.Hold < 0 || s.Hold > MaxHold {
		return fmt.Errorf("%w: a hold of %v is not 0 to %v", drawgate.ErrInvalid, s.Hold, MaxHold)
	}
	if (s.Op == drawgate.OpPause || s.Op == drawgate.OpUnpause) && (len(s.Reason) > drawgate.MaxReason || s.At.After(time.UnixMicro(MaxInstant))) {
		return fmt.Errorf("%w: a pause until %v, for a reason of %d bytes", drawgate.ErrInvalid, s.At, len(s.Reason))
	}
	if err := checkBuckets(s.Buckets); err != nil {
		return err
	}
	return checkAmounts(s.Buckets, drawgate.KeepEstimate) // which is nothing where there is no estimate
}

// CheckPeek is Check for a look at a bucket.
func CheckPeek(b *drawgate.BucketCost, priority int8) error {
	if priority < 0 || priority > drawgate.MaxPriority {
		return fmt.Errorf("%w: priority %d is not between 0 and %d", drawgate.ErrInvalid, priority, drawgate.MaxPriority)
	}
	one := [1]drawgate.BucketCost{*b}
	if err := checkBuckets(one[:]); err != nil {
		return err
	}
	return checkAmounts(one[:], 0)
}

func checkID(id string) error {
	if len(id) > MaxID {
		return fmt.Errorf("%w: an id of %d bytes, more than %d", drawgate.ErrInvalid, len(id), MaxID)
	}
	return nil
}

// checkAmounts reports amounts below the least that means something.
func checkAmounts(buckets []drawgate.BucketCost, least int64) error {
	for i := range buckets {
		for _, n := range buckets[i].N {
			if n < least {
				return fmt.Errorf("%w: %d units", drawgate.ErrInvalid, n)
			}
		}
	}
	return nil
}

// checkBuckets reports what is wrong with the buckets of a take or a settlement.
func checkBuckets(buckets []drawgate.BucketCost) error {
	if n := len(buckets); n == 0 || n > drawgate.MaxBuckets {
		return fmt.Errorf("%w: the call has %d buckets: give 1 to %d", drawgate.ErrInvalid, n, drawgate.MaxBuckets)
	}
	for i := range buckets {
		if p := buckets[i].Plan; p == nil || len(specs(p, false)) == 0 {
			return fmt.Errorf("%w: a bucket has no plan", drawgate.ErrInvalid)
		}
		for j := range i {
			if buckets[i].Key == buckets[j].Key {
				return fmt.Errorf("%w: a bucket of policy %q is named twice", drawgate.ErrInvalid, buckets[i].Plan.Name())
			}
		}
	}
	return nil
}

func asksForSlots(b *drawgate.BucketCost) bool {
	ss := specs(b.Plan, false)
	for j := range ss {
		if b.N[j] > 0 && ss[j].Kind == record.Concurrency {
			return true
		}
	}
	return false
}

// Fingerprint identifies what a take asks for: the same id with another fingerprint is another
// take. It is kept with an open reservation.
func Fingerprint(t *drawgate.Take) uint64 {
	buf := make([]byte, 0, 256)
	for i := range t.Buckets {
		b := &t.Buckets[i]
		for _, part := range [...]string{b.Key.Tenant, b.Key.Policy, b.Key.Name} {
			buf = binary.AppendUvarint(buf, uint64(len(part)))
			buf = append(buf, part...)
		}
		ss := specs(b.Plan, false)
		for j := range ss {
			buf = binary.BigEndian.AppendUint64(buf, ss[j].ID)
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
