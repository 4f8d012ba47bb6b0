package store

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/drawgate/drawgate/internal/record"
)

// Bounds of what a store is asked. They keep every instant below 2^53 µs.
const (
	MaxHold    = 1_000_000_000 * time.Second         // 31 years
	MaxInstant = 9 * int64(MaxHold/time.Microsecond) // in Unix µs
	MaxID      = 1024                                // bytes
)

// Check reports what no store can decide: arguments out of bounds, a bucket that is named twice, an
// id without a hold, and slots without one, which nothing would ever free. [Decide] calls it. The
// library refuses more, and better; this is for stores that are called by themselves.
func (t *Take) Check() error {
	if t.Priority < 0 || t.Priority > MaxPriority {
		return fmt.Errorf("%w: priority %d is not 0 to %d", ErrInvalid, t.Priority, MaxPriority)
	}
	if t.Hold != 0 && t.Hold < time.Microsecond || t.Hold > MaxHold {
		return fmt.Errorf("%w: a hold of %v is not 1µs to %v", ErrInvalid, t.Hold, MaxHold)
	}
	if err := checkID(t.ID); err != nil {
		return err
	}
	if (t.ID != "") != (t.Hold > 0) {
		return fmt.Errorf("%w: a take with an id needs a hold, and a take without an id must not have one", ErrInvalid)
	}
	if err := checkBuckets(t.Buckets); err != nil {
		return err
	}
	if err := checkAmounts(t.Buckets, 0); err != nil {
		return err
	}
	if err := t.Ticket.check(t.Buckets); err != nil {
		return err
	}
	for i := range t.Buckets {
		if b := &t.Buckets[i]; t.Hold == 0 && b.Plan.NeedsHold() && asksForSlots(b) {
			return fmt.Errorf("%w (policy %q)", ErrNeedsReserve, b.Plan.Name())
		}
	}
	return nil
}

// Check is [Take.Check] for a settlement. [Apply] calls it.
func (s *Settlement) Check() error {
	switch s.Op {
	case OpSettle, OpCancel, OpRenew, OpCharge, OpRefund, OpPause,
		OpUnpause:
	default:
		return fmt.Errorf("%w: there is no operation %d", ErrInvalid, s.Op)
	}
	if err := checkID(s.ID); err != nil {
		return err
	}
	if s.Hold < 0 || s.Hold > MaxHold {
		return fmt.Errorf("%w: a hold of %v is not 0 to %v", ErrInvalid, s.Hold, MaxHold)
	}
	if (s.Op == OpPause || s.Op == OpUnpause) && (len(s.Reason) > MaxReason || s.At.After(time.UnixMicro(MaxInstant))) {
		return fmt.Errorf("%w: a pause until %v, for a reason of %d bytes", ErrInvalid, s.At, len(s.Reason))
	}
	if err := checkBuckets(s.Buckets); err != nil {
		return err
	}
	return checkAmounts(s.Buckets, KeepEstimate) // which is nothing where there is no estimate
}

// Check is [Take.Check] for a look at a bucket. [Describe] calls it.
func (b *BucketCost) Check(priority int8) error {
	if priority < 0 || priority > MaxPriority {
		return fmt.Errorf("%w: priority %d is not between 0 and %d", ErrInvalid, priority, MaxPriority)
	}
	one := [1]BucketCost{*b}
	if err := checkBuckets(one[:]); err != nil {
		return err
	}
	return checkAmounts(one[:], 0)
}

func checkID(id string) error {
	if len(id) > MaxID {
		return fmt.Errorf("%w: an id of %d bytes, more than %d", ErrInvalid, len(id), MaxID)
	}
	return nil
}

// checkAmounts reports amounts below the least that means something.
func checkAmounts(buckets []BucketCost, least int64) error {
	for i := range buckets {
		for _, n := range buckets[i].N {
			if n < least {
				return fmt.Errorf("%w: %d units", ErrInvalid, n)
			}
		}
	}
	return nil
}

// checkBuckets reports what is wrong with the buckets of a take or a settlement.
func checkBuckets(buckets []BucketCost) error {
	if n := len(buckets); n == 0 || n > MaxBuckets {
		return fmt.Errorf("%w: the call has %d buckets: give 1 to %d", ErrInvalid, n, MaxBuckets)
	}
	for i := range buckets {
		if p := buckets[i].Plan; p == nil || len(p.specs) == 0 {
			return fmt.Errorf("%w: a bucket has no plan", ErrInvalid)
		}
		for j := range i {
			if buckets[i].Key == buckets[j].Key {
				return fmt.Errorf("%w: a bucket of policy %q is named twice", ErrInvalid, buckets[i].Plan.Name())
			}
		}
	}
	return nil
}

func asksForSlots(b *BucketCost) bool {
	ss := b.Plan.specs
	for j := range ss {
		if b.N[j] > 0 && ss[j].Kind == record.Concurrency {
			return true
		}
	}
	return false
}

// Fingerprint identifies what a take asks for: the same id with another fingerprint is another
// take. It is kept with an open reservation.
func (t *Take) Fingerprint() uint64 {
	buf := make([]byte, 0, 256)
	for i := range t.Buckets {
		b := &t.Buckets[i]
		for _, part := range [...]string{b.Key.Tenant, b.Key.Policy, b.Key.Name} {
			buf = binary.AppendUvarint(buf, uint64(len(part)))
			buf = append(buf, part...)
		}
		ss := b.Plan.specs
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
