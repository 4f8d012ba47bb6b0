package engine

import (
	"context"
	"time"

	"github.com/drawgate/drawgate"
)

// Settle ends the reservation with what was really used, and that of the shadows with it: see
// [drawgate.Reservation.Settle]. A unit that only shadows count is theirs alone. Without a
// reservation it does nothing.
//
// Settling the Reservation by itself is right too; the shadows then count their estimate, and hold
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

// Cancel ends the reservation and gives everything back, and that of the shadows with it: see
// [drawgate.Reservation.Cancel].
func (r *Result) Cancel(ctx context.Context) error {
	r.both(func(res *drawgate.Reservation) error { return res.Cancel(ctx) })
	if r.Reservation == nil {
		return nil
	}
	return r.Reservation.Cancel(ctx)
}

// Renew makes the hold end hold from now, and that of the shadows with it: see
// [drawgate.Reservation.Renew].
func (r *Result) Renew(ctx context.Context, hold time.Duration) error {
	r.both(func(res *drawgate.Reservation) error { return res.Renew(ctx, hold) })
	if r.Reservation == nil {
		return nil
	}
	return r.Reservation.Renew(ctx, hold)
}

// both does to the shadows' reservation what is done to the other. What goes wrong there is of no
// consequence.
func (r *Result) both(f func(*drawgate.Reservation) error) {
	if r.shadowHold != nil {
		_ = f(r.shadowHold)
	}
}

// split returns what concerns the policies that are enforced, and what concerns the shadows. What
// concerns neither is left to the former, to be refused.
func (r *Result) split(used []drawgate.Cost) (mine, theirs []drawgate.Cost) {
	for _, c := range used {
		shadow := counts(&r.shadowHold.Decision, c.Unit)
		if shadow {
			theirs = append(theirs, c)
		}
		if !shadow || r.Reservation != nil && counts(&r.Reservation.Decision, c.Unit) {
			mine = append(mine, c)
		}
	}
	return mine, theirs
}

// counts reports whether one of a decision's limits counts a unit.
func counts(d *drawgate.Decision, unit string) bool {
	for l := range d.Limits() {
		if same(l.Limit.Unit, unit) {
			return true
		}
	}
	return false
}
