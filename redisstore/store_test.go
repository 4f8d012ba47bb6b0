package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/redisstore"
	"github.com/drawgate/drawgate/storetest"
)

// clocked is a store whose clock a test moves.
type clocked struct {
	*redisstore.Store
	clock  *fakeClock
	prefix string
}

// harness returns stores on a server of the test's own.
func harness(t *testing.T) storetest.Harness {
	t.Helper()
	server := redistest.Start(t)
	conn := client(t, server)
	on := func(t *testing.T, clock *fakeClock, prefix string) drawgate.Store {
		t.Helper()
		s := redisstore.NewWithClock(conn, &redisstore.Options{Prefix: prefix}, clock.now)
		if err := s.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Learn()
		t.Cleanup(func() { _ = s.Close() })
		return &clocked{s, clock, prefix}
	}
	return storetest.Harness{
		New: func(t *testing.T) drawgate.Store { return on(t, newClock(), prefix()) },
		Advance: func(s drawgate.Store, d time.Duration) {
			c := s.(*clocked)
			c.clock.advance(d)
			c.Learn() // a batch of which one take needs other calendar windows is not carried out in order
		},
		Second: func(t *testing.T, s drawgate.Store) drawgate.Store {
			c := s.(*clocked)
			return on(t, c.clock, c.prefix)
		},
	}
}

// req: B1, C3, E5, E10
func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness(t))
}

// modelStore is the model as a store.
type modelStore struct {
	*model
	clock *fakeClock
}

func (s modelStore) Take(_ context.Context, batch []drawgate.Take, out []drawgate.Decision) error {
	s.now = s.clock.now()
	for i := range batch {
		out[i] = s.take(&batch[i])
	}
	return nil
}

func (s modelStore) Settle(_ context.Context, batch []drawgate.Settlement, out []drawgate.Outcome) error {
	s.now = s.clock.now()
	for i := range batch {
		out[i] = s.settle(&batch[i])
	}
	return nil
}

func (s modelStore) Peek(_ context.Context, buckets []drawgate.BucketCost, priority int8, out []drawgate.Status) error {
	s.now = s.clock.now()
	for i := range buckets {
		out[i] = s.peek(&buckets[i], priority)
	}
	return nil
}

func (s modelStore) Reset(_ context.Context, keys []drawgate.Key) error {
	for _, k := range keys {
		delete(s.recs, k)
	}
	return nil
}

func (s modelStore) Close() error { return nil }

// TestScripts plays the scripts of the suite. The reference is not the store in memory, which remembers of a refused take by which version of
// the policy it was asked: here a refusal writes nothing.
//
// req: E5, E10
func TestScripts(t *testing.T) {
	t.Parallel()
	n := 100
	if long {
		n = 3000
	}
	storetest.Scripts(t, harness(t), storetest.Harness{
		New: func(*testing.T) drawgate.Store {
			return modelStore{&model{recs: map[drawgate.Key]*record.Record{}}, newClock()}
		},
		Advance: func(s drawgate.Store, d time.Duration) { s.(modelStore).clock.advance(d) },
	}, n)
}

// TestServerClock runs the cases that need no other clock by the server's own.
//
// req: E5
func TestServerClock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	storetest.Run(t, storetest.Harness{
		New: func(t *testing.T) drawgate.Store { return open(t, server, &redisstore.Options{Prefix: prefix()}) },
	})
}
