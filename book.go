package drawgate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/drawgate/drawgate/internal/record"
)

// Booking is a take granted for now or later. It is safe for concurrent use.
type Booking struct {
	Decision Decision // as it was granted
	res      *Reservation
	start    time.Time
}

// Book takes units from the bucket of key for the first instant at which they fit if nothing else
// happens until then, at most maxDelay (at most MaxHold) ahead. They count from that instant on,
// for every user of the limit. The work must not start earlier; see [Booking.Delay].
//
// If the take does not fit by then the error is a *[LimitedError], and nothing is taken. What
// others hold is assumed to stay held. Units of a calendar limit are booked in its open window and
// the next one. A bucket that is paused refuses bookings, too.
func (l *Limiter) Book(ctx context.Context, key string, maxDelay time.Duration, costs ...Cost) (*Booking, error) {
	if maxDelay < 0 || maxDelay > MaxHold {
		return nil, fmt.Errorf("%w: a delay of %v is not between 0 and %v", ErrInvalid, maxDelay, MaxHold)
	}
	if l.plan.NeedsHold() {
		return nil, fmt.Errorf("%w (policy %q)", ErrNeedsReserve, l.plan.policy.Name)
	}
	t, err := l.take(&Request{Buckets: []Ask{{Key: key, Costs: costs}}, Hold: Hold{For: l.bookedFor()}})
	if err == nil {
		err = t.fits()
	}
	if err != nil {
		return nil, err
	}
	t.Ahead = maxDelay
	d, err := l.decide(ctx, t, false)
	if err == nil {
		err = d.Err()
	}
	if err != nil {
		return nil, err
	}
	answered := time.Now() // the store decided earlier, so this is late rather than early
	return &Booking{Decision: d, res: l.reservation(t, d), start: answered.Add(d.Delay())}, nil
}

// Delay returns how long to wait until the work may start; 0 once it may.
func (b *Booking) Delay() time.Duration { return max(0, time.Until(b.start)) }

// Cancel gives the units back. It returns [ErrGone] from the booked instant on: the units count as
// used then, since the work may have started.
func (b *Booking) Cancel(ctx context.Context) error {
	if b.Delay() == 0 {
		return ErrGone
	}
	return b.res.Cancel(ctx)
}

// bookedFor is how long a booking stays open from its instant on: while it may be sent again, or
// cancelled because its answer was lost, so that it does not count twice. Where units count from
// the end of the hold it is as short as can be, and in memory no answer is lost.
func (l *Limiter) bookedFor() time.Duration {
	atEnd := slices.ContainsFunc(l.plan.specs, func(s record.Spec) bool { return s.ChargeEnd })
	switch {
	case atEnd || l.local != nil:
		return MinHold
	case l.timeout == 0:
		return 2 * stepTimeout
	}
	return min(max(2*l.timeout, MinHold), MaxHold)
}
