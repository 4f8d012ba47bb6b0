package drawgate_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/memstore"
)

// This function is in the README: TestREADME compares them.

func work(ctx context.Context, store drawgate.Store) error {
	lim, err := drawgate.New(store, drawgate.Policy{Name: "model", Limits: []drawgate.Limit{
		drawgate.RollingLimit("rpm", 10, time.Minute), // counts requests: each take counts as one
		drawgate.RollingLimit("tpm", 10_000, time.Minute).Of("tokens"),
	}}, nil)
	if err != nil {
		return err
	}

	// Decide now, without waiting. A refusal is an answer, not an error.
	d, err := lim.Allow(ctx, "user-17", drawgate.Tokens(3000))
	if err != nil {
		return err // no decision: the request was invalid, or the store is unavailable
	}
	if !d.Allowed {
		fmt.Println("refused, fits in", d.RetryAfter.Round(time.Second))
		return d.Err() // the refusal as an error, which names the limit
	}
	fmt.Println("allowed,", d.Remaining(), "left of the tightest limit")

	// Wait in a fair queue, until the take fits or ctx ends.
	if _, err = lim.Wait(ctx, "user-17", drawgate.Tokens(2000)); err != nil {
		return err
	}

	// If the cost is known only afterwards: hold an estimate, do the work, settle the actual cost.
	res, err := lim.Reserve(ctx, "user-17", time.Minute, drawgate.Tokens(4000))
	if err != nil {
		return err
	}
	return res.Settle(ctx, drawgate.Tokens(3120)) // even if ctx has ended by then
}

func Example() {
	store := memstore.New(nil)
	fmt.Println(work(context.Background(), store))
	fmt.Println(errors.Is(work(context.Background(), store), drawgate.ErrLimited))
	// Output:
	// allowed, 7000 left of the tightest limit
	// <nil>
	// refused, fits in 1m0s
	// true
}
