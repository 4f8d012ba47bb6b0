package memstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/internal/localtest"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/store/storetest"
)

// inBubble runs every case in a bubble of its own, whose clock moves when everybody sleeps.
var inBubble = storetest.Harness{
	New: func(t *testing.T) store.Store {
		s := memstore.New(nil)
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
		return s
	},
	Advance: func(_ store.Store, d time.Duration) { time.Sleep(d) },
	Wrap:    synctest.Test,
}

func TestStore(t *testing.T) { storetest.Run(t, inBubble) }

// TestRealTime runs the cases that need no other clock on the real one.
func TestRealTime(t *testing.T) { storetest.Run(t, storetest.Harness{New: inBubble.New}) }

// TestLocal runs the cases with the takes that a limiter decides without a batch. There a bucket
// with a single limit may be one word.
func TestLocal(t *testing.T) { storetest.Run(t, localInBubble) }

// TestScripts compares the two ways.
func TestScripts(t *testing.T) {
	needs.NoRace(t) // one caller
	storetest.Scripts(t, steady(localInBubble), steady(inBubble), 300)
}

// localInBubble decides plain takes of one bucket as a limiter does.
var localInBubble = storetest.Harness{
	New:     func(t *testing.T) store.Store { return &local{inBubble.New(t).(*memstore.Store)} },
	Advance: inBubble.Advance,
	Wrap:    inBubble.Wrap,
}

type local struct{ *memstore.Store }

func (l *local) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	for i := range batch {
		t := &batch[i]
		if t.ID != "" || t.Ahead != 0 || len(t.Buckets) > 1 || t.Check() != nil {
			if err := l.Store.Take(ctx, batch[i:i+1], out[i:i+1]); err != nil {
				return err
			}
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		d, err := localtest.Take(l, t)
		if errors.Is(err, store.ErrClosed) {
			return err
		}
		if out[i] = d; err != nil {
			out[i] = store.Verdict{Fail: err}
		}
	}
	return nil
}

// steady makes the store see a bucket by the old version of its policy before the new one is used.
// When the rate of a bucket changes, nobody knows since when: a record lets the lower rate drain
// since it was last seen, a word, which does not know when that was, drains at its own.
func steady(h storetest.Harness) storetest.Harness {
	open := h.New
	h.New = func(t *testing.T) store.Store {
		s := open(t)
		return &steadyStore{Store: s, Resetter: s.(store.Resetter), seen: map[store.Key]store.BucketCost{}}
	}
	return h
}

type steadyStore struct {
	store.Store
	store.Resetter
	seen map[store.Key]store.BucketCost
}

func (s *steadyStore) see(ctx context.Context, buckets []store.BucketCost) {
	for i := range buckets {
		b := &buckets[i]
		if old, ok := s.seen[b.Key]; ok && old.Plan != b.Plan {
			_ = s.Store.Peek(ctx, []store.BucketCost{old}, 0, make([]store.State, 1))
		}
		s.seen[b.Key] = *b
	}
}

func (s *steadyStore) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	for i := range batch {
		s.see(ctx, batch[i].Buckets)
		if err := s.Store.Take(ctx, batch[i:i+1], out[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (s *steadyStore) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	for i := range batch {
		s.see(ctx, batch[i].Buckets)
		if err := s.Store.Settle(ctx, batch[i:i+1], out[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (s *steadyStore) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	for i := range buckets {
		s.see(ctx, buckets[i:i+1])
		if err := s.Store.Peek(ctx, buckets[i:i+1], priority, out[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}
