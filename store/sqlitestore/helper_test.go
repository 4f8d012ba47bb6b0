package sqlitestore_test

import (
	"cmp"
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// clock is a clock that tests move.
type clock struct{ us atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.us.Store(time.Date(2026, 11, 21, 6, 30, 0, 0, time.UTC).UnixMicro())
	return c
}

func (c *clock) now() int64              { return c.us.Load() }
func (c *clock) advance(d time.Duration) { c.us.Add(d.Microseconds()) }

func dbPath(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "state.db")
}

// openAt opens a store that is closed at the end of the test.
func openAt(tb testing.TB, path string, opts *sqlitestore.Options, c *clock) *sqlitestore.Store {
	tb.Helper()
	s, err := sqlitestore.OpenAt(path, withLongTimeout(opts), c.now)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// withLongTimeout returns options with which a store waits as long as it takes while another one
// writes, unless they say otherwise: a busy disk takes seconds.
func withLongTimeout(opts *sqlitestore.Options) *sqlitestore.Options {
	var o sqlitestore.Options
	if opts != nil {
		o = *opts
	}
	o.BusyTimeout = cmp.Or(o.BusyTimeout, time.Minute)
	return &o
}

func compile(tb testing.TB, limits ...drawgate.Limit) *store.Plan {
	tb.Helper()
	p, err := drawgate.Policy{Name: "p", Limits: limits}.Compile()
	if err != nil {
		tb.Fatal(err)
	}
	return p.Plan
}

func rolling(n int64, window time.Duration) drawgate.Limit {
	return drawgate.Limit{Name: "roll", Kind: drawgate.Rolling, Window: window, Amount: n}
}

func bucketLimit(n int64, window time.Duration) drawgate.Limit {
	return drawgate.Limit{Name: "rate", Kind: drawgate.Bucket, Window: window, Amount: n}
}

func buckets(plan *store.Plan, name string, n ...int64) []store.BucketCost {
	b := store.BucketCost{Key: store.Key{Tenant: "t", Policy: plan.Name(), Name: name}, Plan: plan}
	copy(b.N[:], n)
	return []store.BucketCost{b}
}

// take takes n units per limit, and returns the decision or the error.
func take(ctx context.Context, s store.Store, plan *store.Plan, name string, n ...int64) (store.Verdict, error) {
	out := make([]store.Verdict, 1)
	if err := s.Take(ctx, []store.Take{{Buckets: buckets(plan, name, n...)}}, out); err != nil {
		return store.Verdict{}, err
	}
	return out[0], out[0].Fail
}

// takes takes units one by one until refused, and returns how many were granted.
func takes(tb testing.TB, s store.Store, plan *store.Plan, name string) (n int64) {
	tb.Helper()
	for {
		d, err := take(tb.Context(), s, plan, name, 1)
		if err != nil {
			tb.Fatal(err)
		}
		if !d.Allowed {
			return n
		}
		n++
	}
}

func used(tb testing.TB, s store.Store, plan *store.Plan, name string) int64 {
	tb.Helper()
	out := make([]store.State, 1)
	if err := s.Peek(tb.Context(), buckets(plan, name, 1), 0, out); err != nil {
		tb.Fatal(err)
	}
	if out[0].Fail != nil {
		tb.Fatal(out[0].Fail)
	}
	return out[0].States[0].Used
}

func history(tb testing.TB, s *sqlitestore.Store, from, to time.Time) (events []store.Event) {
	tb.Helper()
	err := s.Read(tb.Context(), store.EventQuery{From: from, To: to}, func(e store.Event) bool {
		events = append(events, e)
		return true
	})
	if err != nil {
		tb.Fatal(err)
	}
	return events
}
