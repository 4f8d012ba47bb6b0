package engine

import (
	"context"
	"time"

	"github.com/drawgate/drawgate"
)

// Held reports whether something is held, be it by shadows alone: then it has to be settled.
func (r *Result) Held() bool { return r.Reservation != nil || r.shadowHold != nil }

// Settle ends the reservation, and that of the shadows, with what was really used: see
// [drawgate.Reservation.Settle]. A unit that only shadows count only goes to them. Without a
// reservation it does nothing.
//
// Settling only the Reservation is also allowed; the shadows then count their estimate, and hold
// their slots, until the hold ends.
func (r *Result) Settle(ctx context.Context, used ...drawgate.Cost) error {
	mine, theirs := used, used
	if r.shadowHold != nil {
		mine, theirs = r.split(used)
	}
	r.both(func(res *drawgate.Reservation) error { return res.Settle(ctx, theirs...) })
	if r.Reservation == nil {
		return nil
	}
	return r.Reservation.Settle(ctx, mine...)
}

// Cancel ends the reservation, and that of the shadows, and gives everything back: see
// [drawgate.Reservation.Cancel].
func (r *Result) Cancel(ctx context.Context) error {
	r.both(func(res *drawgate.Reservation) error { return res.Cancel(ctx) })
	if r.Reservation == nil {
		return nil
	}
	return r.Reservation.Cancel(ctx)
}

// Renew extends the hold, and that of the shadows, to end hold from now: see
// [drawgate.Reservation.Renew].
func (r *Result) Renew(ctx context.Context, hold time.Duration) error {
	r.both(func(res *drawgate.Reservation) error { return res.Renew(ctx, hold) })
	if r.Reservation == nil {
		return nil
	}
	return r.Reservation.Renew(ctx, hold)
}

// both does the same to the shadows' reservation. Errors there have no effect.
func (r *Result) both(f func(*drawgate.Reservation) error) {
	if r.shadowHold != nil {
		_ = f(r.shadowHold)
	}
}

// split returns the costs of enforced policies, and those of shadows. Costs of neither go to the
// enforced ones, which refuse them.
func (r *Result) split(used []drawgate.Cost) (mine, theirs []drawgate.Cost) {
	for _, c := range used {
		shadow := r.shadowHold.Decision.Counts(c.Unit)
		if shadow {
			theirs = append(theirs, c)
		}
		if !shadow || r.Reservation != nil && r.Reservation.Decision.Counts(c.Unit) {
			mine = append(mine, c)
		}
	}
	return mine, theirs
}
