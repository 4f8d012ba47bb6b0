package client

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/drawgate/drawgate/api"
)

// Bounds of what is cancelled in the background.
const (
	maxGiveUps    = 128 // at once; the holds of others end by themselves
	giveUpTimeout = 10 * time.Second
)

// chooseGrant gives a take with an id a random grant, and reports whether it had none. Who chooses
// a grant may give it up.
func chooseGrant(t *api.Take) bool {
	if t.ID == "" || t.Grant != "" {
		return false
	}
	t.Grant = fmt.Sprintf("%016x", 1+rand.Uint64N(math.MaxUint64)) //nolint:gosec // it must be another one, not a secret
	return true
}

// mayHold reports whether a take that ended so may be open, though its caller does not know: its
// answer was lost, or refuses an attempt after one whose answer was lost.
func mayHold(unsure, allowed bool, err error) bool {
	switch {
	case err == nil:
		return unsure && !allowed
	case unsure || maybe(err):
		return true
	}
	return Code(err) == api.CodeClosing || Code(err) == api.CodeCancelled
}

// giveUp cancels in the background a take whose answer nobody waits for any more.
func (c *Client) giveUp(ctx context.Context, t api.Take) {
	select {
	case c.slots <- struct{}{}:
	default:
		return
	}
	ctx = context.WithoutCancel(ctx)
	c.givingUp.Go(func() {
		defer func() { <-c.slots }()
		ctx, cancel := context.WithTimeout(ctx, giveUpTimeout)
		defer cancel()
		var out api.SettleAnswer
		q := api.SettleRequest{Take: &t, Cancel: true}
		_, _ = c.do(ctx, call{method: http.MethodPost, path: "/v1/settle", body: q, again: true}, &out) // if it fails the hold ends by itself
	})
}
