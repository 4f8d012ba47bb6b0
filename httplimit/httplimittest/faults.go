package httplimittest

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// faulty is a store that can fail, and that can decide like a fallback.
type faulty struct {
	drawgate.Store
	down   atomic.Bool
	marked bool
}

var errDown = &drawgate.StoreError{Store: "faulty", Op: "take", Err: errors.New("a test: the store is unavailable")}

func (f *faulty) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if f.down.Load() {
		return errDown
	}
	err := f.Store.Take(ctx, batch, out)
	for i := range out {
		out[i].Fallback = f.marked
	}
	return err
}

func (f *faulty) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	if f.down.Load() {
		return errDown
	}
	return f.Store.Settle(ctx, batch, out)
}
