package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/ending"
)

// Reservation is an allowed take that is held until it is settled or cancelled, or its hold ends
// (then it counts as used). It is safe for concurrent use.
type Reservation struct {
	Answer api.Answer // as it was granted

	c     *Client
	mu    sync.Mutex
	token string    // guarded by mu; "" if nothing is held because nothing counts the take
	end   time.Time // guarded by mu: it must be settled or renewed by then, on this process's clock; zero if unknown
}

// Reserve takes units and holds them for HoldMS. If the take was refused, the reservation is nil
// and the answer says why. HoldMS is required.
//
// A take without an ID gets a random one, and one without a Grant too, so that it can be sent again
// until it is answered. Every reservation should be followed by Settle or Cancel before its
// Deadline; longer work must renew it. If ctx ends before the answer arrives, what may be held is
// cancelled as described at [Client.Take].
func (c *Client) Reserve(ctx context.Context, t api.Take) (*Reservation, api.Answer, error) {
	if t.HoldMS <= 0 {
		return nil, api.Answer{},
			fmt.Errorf("client: a reservation with HoldMS %d holds nothing: set how many milliseconds it may take, or use Take", t.HoldMS)
	}
	if t.ID == "" {
		t.ID = rand.Text()
	}
	a, sent, err := c.take(ctx, t)
	if err != nil || !a.Allowed {
		return nil, a, err
	}
	hold := t.HoldMS
	if a.HoldMS > 0 { // it waited, or the hold began with an earlier take
		hold = a.HoldMS
	}
	end := endOf(sent, hold)
	if old := a.HoldMS == 0 && a.HoldEnd != nil; old && (t.WaitMS > 0 || a.Replayed && a.HoldEnd.Before(end)) {
		end = *a.HoldEnd // an older server: its clock must do
	}
	return &Reservation{Answer: a, c: c, token: a.Reservation, end: end}, a, nil
}

// endOf returns the end of a hold on this process's clock, from the time when it was requested: not
// later than on the server's clock.
func endOf(sent time.Time, holdMS int64) time.Time {
	hold := time.Duration(holdMS) * time.Millisecond
	return sent.Add(hold - hold/1000) // clocks also run at different rates
}

// Resume returns a reservation for a token from the answer to a take, in this or another process.
func (c *Client) Resume(token string) *Reservation { return &Reservation{c: c, token: token} }

// Token returns what another process needs to settle the reservation. It changes with each renewal.
func (r *Reservation) Token() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.token
}

// Deadline returns when the reservation must be settled or renewed; zero if that is unknown, after
// [Client.Resume].
func (r *Reservation) Deadline() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end
}

// Settle ends the reservation with what was really used. Missing units keep the estimate; use
// beyond the estimate becomes debt. It returns [ErrGone] if the reservation was no longer open.
//
// It works even if ctx was cancelled or its deadline has passed, so the context of the work can be
// used. Only a deadline in the future bounds it, and not to less than a second.
func (r *Reservation) Settle(ctx context.Context, used api.Costs) error {
	return r.finish(ctx, api.SettleRequest{Used: used})
}

// Cancel ends the reservation and gives everything back. As with [Reservation.Settle], ctx may have
// ended. It returns [ErrGone] if the reservation was no longer open.
func (r *Reservation) Cancel(ctx context.Context) error {
	return r.finish(ctx, api.SettleRequest{Cancel: true})
}

func (r *Reservation) finish(ctx context.Context, q api.SettleRequest) error {
	q.Reservation = r.Token()
	if q.Reservation == "" {
		return nil
	}
	ctx, stop := ending.Context(ctx)
	defer stop()
	out, unsure, err := r.settle(ctx, q)
	if err != nil {
		return err
	}
	if out.Outcome != api.OutcomeGone {
		return nil
	}
	// an earlier attempt arrived: nothing else ends a reservation early
	if end := r.Deadline(); unsure && time.Now().Before(end) {
		return nil
	}
	return ErrGone
}

// Renew moves the end of the hold to now plus hold, but never to an earlier instant than before. On
// [ErrGone] the caller must stop: the units, or the slot, may belong to another caller.
func (r *Reservation) Renew(ctx context.Context, hold time.Duration) error {
	q := api.SettleRequest{Reservation: r.Token(), RenewMS: hold.Milliseconds()}
	if q.Reservation == "" {
		return nil
	}
	sent := time.Now()
	out, _, err := r.settle(ctx, q)
	if err != nil {
		return err
	}
	if out.Outcome == api.OutcomeGone {
		return ErrGone
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.token = out.Reservation
	if end := endOf(sent, q.RenewMS); end.After(r.end) {
		r.end = end
	}
	return nil
}

func (r *Reservation) settle(ctx context.Context, q api.SettleRequest) (out api.SettleAnswer, unsure bool, err error) {
	unsure, err = r.c.do(ctx, call{method: http.MethodPost, path: "/v1/settle", body: q, again: true}, &out)
	return out, unsure, err
}
