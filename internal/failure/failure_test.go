package failure_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/failure"
)

func TestEachErrorHasOneKind(t *testing.T) {
	t.Parallel()
	store := &drawgate.StoreError{Store: "redis", Op: "take", Err: errors.New("connection refused")}
	for _, c := range []struct {
		name      string
		err       error
		kind      failure.Kind
		mistake   bool
		undecided bool
		spend     bool
	}{
		{"none", nil, failure.None, false, false, false},
		{"never fits", &drawgate.NeverFitsError{N: 2, Max: 1}, failure.NeverFits, true, false, false},
		{"unknown unit", drawgate.ErrUnknownUnit, failure.UnknownUnit, true, false, false},
		{"needs a hold", drawgate.ErrNeedsReserve, failure.NeedsReserve, true, false, false},
		{"id reused", drawgate.ErrIDReused, failure.IDReused, true, false, false},
		{"id open", drawgate.ErrIDOpen, failure.IDOpen, true, false, false},
		{"too many open", drawgate.ErrTooManyOpen, failure.TooManyOpen, true, false, false},
		{"invalid", fmt.Errorf("%w: priority 10", drawgate.ErrInvalid), failure.Invalid, true, false, false},
		{"closed", drawgate.ErrClosed, failure.Closed, false, true, false},
		{"cancelled", context.Canceled, failure.Cancelled, false, true, false},
		{"store", store, failure.Unavailable, false, true, false},
		{"deadline of the context", context.DeadlineExceeded, failure.TimedOut, false, true, false},
		{"deadline of the wait", drawgate.ErrDeadline, failure.TimedOut, false, true, false},
		{"queue full", drawgate.ErrQueueFull, failure.QueueFull, false, false, false},
		{"limited", &drawgate.LimitedError{}, failure.Limited, false, false, false},
		{"other", errors.New("boom"), failure.Other, false, false, false},

		{
			"the store says that the request is wrong", &drawgate.StoreError{Err: drawgate.ErrInvalid}, failure.Invalid,
			true, false, false,
		},
		{"the store was closed", &drawgate.StoreError{Err: drawgate.ErrClosed}, failure.Closed, false, true, false},
		{
			"the call ended with its caller", &drawgate.StoreError{Err: context.Canceled}, failure.Cancelled, false,
			true,
			false,
		},
		{
			"the call ended with the store's time limit", &drawgate.StoreError{Err: context.DeadlineExceeded},
			failure.Unavailable, false, true, false,
		},
		{
			"a wait ended after a refusal", errors.Join(drawgate.ErrDeadline, &drawgate.LimitedError{}),
			failure.TimedOut,
			false, true, false,
		},
		{
			"given up, cancelled in the background", &drawgate.GaveUpError{Err: context.Canceled}, failure.Cancelled,
			false, true, false,
		},
		{
			"given up, may be spent", &drawgate.GaveUpError{MaySpend: true, Err: context.Canceled}, failure.Cancelled,
			false, true, true,
		},
		{
			"given up at the deadline", &drawgate.GaveUpError{MaySpend: true, Err: drawgate.ErrDeadline},
			failure.TimedOut,
			false, true, true,
		},
		{
			"given up, and the store failed", &drawgate.GaveUpError{Err: drawgate.ErrDeadline, Store: store},
			failure.Unavailable, false, true, false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := c.err
			if err != nil {
				err = fmt.Errorf("wrapped: %w", err)
			}
			for _, err := range []error{c.err, err} {
				k := failure.Of(err)
				if k != c.kind || k.Mistake() != c.mistake || k.Undecided() != c.undecided ||
					failure.MaySpend(err) != c.spend {
					t.Errorf("%v: got kind %d, mistake %v, undecided %v, may spend %v; want %d, %v, %v, %v", err,
						k, k.Mistake(), k.Undecided(), failure.MaySpend(err), c.kind, c.mistake, c.undecided, c.spend)
				}
			}
		})
	}
}
