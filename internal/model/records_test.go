package model_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/internal/localtest"
	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/store/storetest"
)

// records is the engine as a store that keeps no more than it must.
var records = storetest.Harness{
	New: func(*testing.T) store.Store {
		return model.NewRecords(func() int64 { return time.Now().UnixMicro() }, false)
	},
	Advance: obvious.Advance,
	Wrap:    synctest.Test,
	Without: map[string]string{"too many open": "it decodes all reservations at each step"},
}

// TestRecords: a store that throws away all refusals but the strange ones keeps the contract.
//
// req: D1, E10
func TestRecords(t *testing.T) {
	t.Parallel()
	storetest.Run(t, records)
}

// TestMemory compares the store in memory, by its batches and by the way of a limiter, with one
// that keeps no more than it must.
//
// req: A5, E10
func TestMemory(t *testing.T) {
	t.Parallel()
	n := needs.Rounds(20, 150, 10_000)
	open := func(t *testing.T) *memstore.Store {
		t.Helper()
		s := memstore.New(nil)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	for name, newStore := range map[string]func(t *testing.T) store.Store{
		"batches": func(t *testing.T) store.Store { return open(t) },
		"limiter": func(t *testing.T) store.Store { return limiter{open(t)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Scripts(t, storetest.Harness{New: newStore, Advance: obvious.Advance, Wrap: synctest.Test},
				records, n)
		})
	}
}

// limiter decides plain takes of one bucket in the caller's process.
type limiter struct{ *memstore.Store }

func (l limiter) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	for i := range batch {
		t := &batch[i]
		var err error
		if t.ID == "" && t.Ahead == 0 && len(t.Buckets) == 1 {
			out[i], err = localtest.Take(l, t)
		} else {
			err = l.Store.Take(ctx, batch[i:i+1], out[i:i+1])
		}
		if err != nil {
			return errors.Join(err, ctx.Err())
		}
	}
	return nil
}
