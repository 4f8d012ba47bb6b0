package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// long is set to run the long forms of the tests that have one.
var long = needs.Long()

var prefixes atomic.Int64

// prefix returns a key prefix that no other test has.
func prefix() string { return fmt.Sprintf("t%d", prefixes.Add(1)) }

// client returns a client of a server.
func client(tb testing.TB, s *redistest.Server) rueidis.Client {
	tb.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Addr}, ForceSingleClient: true, DisableRetry: true, DisableCache: true,
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// servers are a kind of servers that a store may be on.
type servers struct {
	name  string
	start func(tb testing.TB) string // returns their URL
}

// topologies are all kinds of servers.
var topologies = []servers{
	{"standalone", func(tb testing.TB) string { tb.Helper(); return redistest.Start(tb).URL() }},
	{"sentinel", func(tb testing.TB) string { tb.Helper(); return redistest.StartSentinels(tb, false).URL() }},
	{"cluster", func(tb testing.TB) string { tb.Helper(); return redistest.StartCluster(tb, false).URL() }},
}

// clientOf returns a client of servers.
func clientOf(tb testing.TB, url string) rueidis.Client {
	tb.Helper()
	c, err := redisstore.NewClient(url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// open returns a store on a server.
func open(tb testing.TB, s *redistest.Server, opts *redisstore.Options) *redisstore.Store {
	tb.Helper()
	st, err := redisstore.Open(s.URL(), opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = st.Close() })
	return st
}

// fakeClock is a clock that stands still until it is set.
type fakeClock struct{ us atomic.Int64 }

func newClock() *fakeClock {
	c := &fakeClock{}
	c.us.Store(time.Date(2026, 3, 28, 22, 58, 3, 141592000, time.UTC).UnixMicro())
	return c
}

func (c *fakeClock) now() int64              { return c.us.Load() }
func (c *fakeClock) advance(d time.Duration) { c.us.Add(d.Microseconds()) }

func compile(tb testing.TB, name string, limits ...drawgate.Limit) *store.Plan {
	tb.Helper()
	p, err := drawgate.Policy{Name: name, Limits: limits}.Compile()
	if err != nil {
		tb.Fatal(err)
	}
	return p.Plan
}

// takeOf returns a plain take of n units per limit from one bucket.
func takeOf(plan *store.Plan, name string, n ...int64) store.Take {
	b := store.BucketCost{Key: store.Key{Policy: plan.Name(), Name: name}, Plan: plan}
	copy(b.N[:], n)
	return store.Take{Buckets: []store.BucketCost{b}}
}

// held makes a take one that is held.
func held(t store.Take, id string, hold time.Duration) store.Take {
	t.ID, t.Hold = id, hold
	return t
}

func take(tb testing.TB, s store.Store, t store.Take) store.Verdict {
	tb.Helper()
	d, err := decide(tb.Context(), s, t)
	if err != nil && !errors.Is(d.Fail, store.ErrIDReused) {
		tb.Fatal(err)
	}
	return d
}

// decide takes, again if the take arrived too late, as it may on a slow machine. The error is also
// that which kept the take from being decided.
func decide(ctx context.Context, s store.Store, t store.Take) (store.Verdict, error) {
	for {
		var d [1]store.Verdict
		if err := s.Take(ctx, []store.Take{t}, d[:]); err != nil {
			return store.Verdict{}, err
		}
		if !errors.Is(d[0].Fail, store.ErrTooLate) {
			return d[0], d[0].Fail
		}
	}
}

func settle(tb testing.TB, s store.Store, st store.Settlement) store.Outcome {
	tb.Helper()
	var o [1]store.Outcome
	if err := s.Settle(tb.Context(), []store.Settlement{st}, o[:]); err != nil {
		tb.Fatal(err)
	}
	if o[0].Err != nil {
		tb.Fatal(o[0].Err)
	}
	return o[0]
}

func peek(tb testing.TB, s store.Store, b store.BucketCost) store.State {
	tb.Helper()
	var st [1]store.State
	if err := s.Peek(tb.Context(), []store.BucketCost{b}, 0, st[:]); err != nil {
		tb.Fatal(err)
	}
	if st[0].Fail != nil {
		tb.Fatal(st[0].Fail)
	}
	return st[0]
}
