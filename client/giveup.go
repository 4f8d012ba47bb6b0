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

// Bounds on cancellations in the background.
const (
	maxGiveUps    = 128 // at once; further holds end by themselves
	giveUpTimeout = 10 * time.Second
)

// chooseGrant gives a take with an ID a random grant, and reports whether it had none. The caller
// that chose a grant may give it up.
func chooseGrant(t *api.Take) bool {
	if t.ID == "" || t.Grant != "" {
		return false
	}
	t.Grant = fmt.Sprintf("%016x", 1+rand.Uint64N(math.MaxUint64)) //nolint:gosec // it must be unique, not secret
	return true
}

// mayHold reports whether a take that ended this way may be open without its caller knowing: its
// answer was lost, or the answer is a refusal after an attempt whose answer was lost.
func mayHold(unsure, allowed bool, err error) bool {
	switch {
	case err == nil:
		return unsure && !allowed
	case unsure || maybe(err):
		return true
	}
	return Code(err) == api.CodeClosing || Code(err) == api.CodeCancelled
}

// giveUp cancels in the background a take whose caller has given up.
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
		// if it fails, the hold ends by itself
		_, _ = c.do(ctx, call{method: http.MethodPost, path: "/v1/settle", body: q, again: true}, &out)
	})
}
