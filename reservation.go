package drawgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/drawgate/drawgate/internal/ending"
	"github.com/drawgate/drawgate/internal/sleep"
	"github.com/drawgate/drawgate/store"
)

// clockRate is by how much a process's clock may run wrong, in parts per million: a holder's
// deadline ends before the store's by that.
const clockRate = 1000

// Reservation is an allowed take that is held until it is settled or cancelled, or its hold ends
// (then it counts as used). It is safe for concurrent use. The first Settle or Cancel that reaches
// the store counts; every later one is ErrGone.
type Reservation struct {
	Decision Decision // as it was granted
	l        *Limiter
	take     *take

	mu   sync.Mutex
	end  time.Time // guarded by mu: when the holder must have stopped
	over bool      // guarded by mu: a settlement or cancellation was answered
}

// reservation makes one of a take that was allowed and is held.
func (l *Limiter) reservation(t *take, d Decision) *Reservation {
	for i := range t.Buckets {
		t.Buckets[i].N = d.Granted(i) // what is used beyond that is excess
	}
	return &Reservation{Decision: d, l: l, take: t, end: d.deadline()}
}

// deadline returns until when a holder may rely on a hold. The store's time began to run no earlier
// than the question was sent.
func (d *Decision) deadline() time.Time {
	return d.more.sent.Add(holderLife(d.holdEnd().Sub(d.At())))
}

// holderLife is how long a holder may rely on a hold of d, given that clocks differ in rate.
func holderLife(d time.Duration) time.Duration { return d - d/(1_000_000/clockRate) }

// Resume returns a reservation that was made elsewhere (by another process, or before a restart),
// to settle, cancel or renew it: its ID and Grant, the buckets of its take with the costs that were
// granted; end is its Deadline. If that is past, Settle charges what exceeds these costs unless the
// reservation is open, even if settled elsewhere. Its Decision is empty.
func (l *Limiter) Resume(id string, grant Grant, end time.Time, buckets ...Ask) (*Reservation, error) {
	if id == "" || len(id) > maxID {
		return nil, fmt.Errorf("%w: the id must have 1 to %d bytes", ErrInvalid, maxID)
	}
	if grant == 0 {
		return nil, fmt.Errorf("%w: the grant is missing: Resume needs the id and the grant of the reservation",
			ErrInvalid)
	}
	t, err := l.take(&Request{Buckets: buckets, Hold: Hold{For: MinHold, ID: id, Grant: grant}})
	if err != nil {
		return nil, err
	}
	return &Reservation{l: l, take: t, end: end}, nil
}

// ID returns the reservation's id.
func (r *Reservation) ID() string { return r.take.ID }

// Grant returns the number of the take that made the reservation: with the id it is what
// [Limiter.Resume] needs.
func (r *Reservation) Grant() Grant { return r.take.Grant }

// Deadline returns when the holder must have settled, renewed or stopped. It lies a little before
// the end that the store knows.
func (r *Reservation) Deadline() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end
}

// Settle ends the reservation with what was really used. Units that are not named stay as
// estimated. More than the estimate is allowed, and becomes debt. With ErrUnknownUnit or ErrInvalid
// it is still open.
//
// It is carried out even if ctx was cancelled or its deadline has passed: you can pass the context
// of the work. Only a deadline in the future limits it, and not to less than a second.
//
// It returns ErrGone if the reservation is no longer open: nothing is credited then, and if its
// hold has ended, what was used beyond the estimate is charged. A lost answer makes it be sent
// again, which is safe; if the store stays away, the error is a *[StoreError] and the hold ends, as
// used.
func (r *Reservation) Settle(ctx context.Context, used ...Cost) error {
	ctx, stop := ending.Context(ctx)
	defer stop()
	s, err := r.settlement(store.OpSettle, used)
	if err != nil {
		return err
	}
	late, err := r.finish(ctx, s)
	if !late {
		return err
	}
	if err := r.chargeExcess(ctx, s); err != nil {
		return err
	}
	return ErrGone
}

// Cancel ends the reservation and gives everything back that has not expired. As for
// [Reservation.Settle], ctx may have ended. After Settle it does nothing but return ErrGone, so
// that it can be deferred.
func (r *Reservation) Cancel(ctx context.Context) error {
	ctx, stop := ending.Context(ctx)
	defer stop()
	s, err := r.settlement(store.OpCancel, nil)
	if err != nil {
		return err
	}
	_, err = r.finish(ctx, s)
	return err
}

// finish carries out a settlement or cancellation, the first that is answered. late says that it
// came to nothing because the hold had ended; whether it had, nobody knows if an answer was lost
// before the end and the next one came after it: then too.
func (r *Reservation) finish(ctx context.Context, s *store.Settlement) (late bool, err error) {
	r.mu.Lock()
	over := r.over
	r.mu.Unlock()
	if over {
		return false, ErrGone
	}
	out, again, err := r.send(ctx, s)
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	over, r.over = r.over, true
	switch {
	case !out.Gone:
		return false, nil
	case over:
		return false, ErrGone
	case !time.Now().Before(r.end):
		return true, ErrGone
	case again: // an earlier attempt arrived: nothing else ends a reservation before its time
		return false, nil
	}
	return false, ErrGone
}

// Renew moves the end of the hold to now plus hold, but never to an earlier instant than before. On
// ErrGone the caller must stop: the units, or the slot, may belong to another caller. A lease is
// not renewed while one of its buckets is paused: ErrPaused.
func (r *Reservation) Renew(ctx context.Context, hold time.Duration) error {
	if hold < MinHold || hold > MaxHold {
		return errHold(hold)
	}
	s, err := r.settlement(store.OpRenew, nil)
	if err != nil {
		return err
	}
	s.Hold = hold
	sent := time.Now()
	out, _, err := r.send(ctx, s)
	if err != nil {
		return err
	}
	switch {
	case out.Gone:
		return ErrGone
	case out.Kept:
		return ErrPaused
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if end := sent.Add(holderLife(hold)); end.After(r.end) {
		r.end = end
	}
	return nil
}

// settlement makes the store's form. A unit must be known to one of the buckets.
func (r *Reservation) settlement(op store.Op, used []Cost) (*store.Settlement, error) {
	s := &store.Settlement{
		Op: op, ID: r.take.ID, Grant: r.take.Grant,
		Buckets: make([]store.BucketCost, len(r.take.Buckets)),
	}
	copy(s.Buckets, r.take.Buckets)
	known := make([]bool, len(used))
	for i := range s.Buckets {
		plan := r.take.plans[i]
		mine := make([]Cost, 0, len(used))
		for k, c := range used {
			if _, err := plan.actual(used[k : k+1]); errors.Is(err, ErrUnknownUnit) {
				continue
			} else if err != nil {
				return nil, err
			}
			known[k] = true
			mine = append(mine, c)
		}
		s.Buckets[i].N, _ = plan.actual(mine)
	}
	for k, ok := range known {
		if !ok {
			return nil, fmt.Errorf("%w: none of the reservation's policies counts %q", ErrUnknownUnit,
				cmp.Or(used[k].Unit, UnitRequests))
		}
	}
	return s, nil
}

// send sends a settlement until it is answered: the id makes repeating safe. again says that the
// first answer was lost.
func (r *Reservation) send(ctx context.Context, s *store.Settlement) (out store.Outcome, again bool, err error) {
	for i := range maxAttempts {
		again = i > 0
		out, err = r.l.settleWithin(ctx, s, r.step(i))
		if err == nil {
			if s.Op != store.OpRenew {
				for k := range s.Buckets {
					r.l.queue.wake(s.Buckets[k].Key)
				}
			}
			return out, again, nil
		}
		if !errors.Is(err, ErrStoreUnavailable) || i == maxAttempts-1 || !sleep.For(ctx, retryPause(i)) {
			break
		}
	}
	return out, again, err
}

// step returns how long attempt i may take: half of what is left of the hold, if that is less than
// others have. If its answer is lost, the next one comes before the end, after which nobody knows
// whether what was used beyond the estimate has been charged.
func (r *Reservation) step(i int) time.Duration {
	left := time.Until(r.Deadline())
	if left <= 0 || i == maxAttempts-1 {
		return r.l.step
	}
	return min(r.l.step, max(stepTimeout, left/2))
}

// chargeExcess charges what a holder whose hold had ended used beyond what it was granted. It is
// sent once, because a charge has no id: a lost answer leaves it charged. It is sent whatever has
// become of ctx: the units are used.
func (r *Reservation) chargeExcess(ctx context.Context, s *store.Settlement) error {
	c := &store.Settlement{Op: store.OpCharge, Buckets: make([]store.BucketCost, len(s.Buckets)), At: r.Deadline()}
	copy(c.Buckets, s.Buckets)
	more := false
	for i := range c.Buckets {
		for j := range r.take.plans[i].specs {
			n := max(0, s.Buckets[i].N[j]-r.take.Buckets[i].N[j])
			c.Buckets[i].N[j] = n
			more = more || n > 0
		}
	}
	if !more {
		return nil
	}
	_, err := r.l.settle(context.WithoutCancel(ctx), c)
	return err
}
