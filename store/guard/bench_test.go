package guard_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

// benchGuard returns a guard over a store in memory, whose answers cost almost nothing: what is
// measured is the guard.
func benchGuard(b *testing.B) *guard.Store {
	b.Helper()
	g := guard.New(memstore.New(nil), &guard.Options{Instances: 3, Timeout: time.Minute})
	b.Cleanup(func() { _ = g.Close() })
	return g
}

// benchNames returns the names of so many buckets.
func benchNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	return names
}

// BenchmarkTake is a plain take that the store answers.
func BenchmarkTake(b *testing.B) {
	for _, keys := range []int{1, 10_000} {
		b.Run(strconv.Itoa(keys)+"keys", func(b *testing.B) {
			g, names := benchGuard(b), benchNames(keys)
			plan := policy(b, drawgate.FallbackShare, rolling(1e9, time.Minute), rolling(1e9, time.Hour))
			b.ReportAllocs()
			var next atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				var out [1]store.Verdict
				batch := make([]store.Take, 1)
				for pb.Next() {
					batch[0] = store.Take{Buckets: []store.BucketCost{cost(plan, names[int(next.Add(1))%keys], 1, 1)}}
					if err := g.Take(b.Context(), batch, out[:]); err != nil || !out[0].Allowed || out[0].Fallback {
						b.Error(err, out[0].Allowed, out[0].Fallback)
						return
					}
				}
			})
		})
	}
}

// BenchmarkReserve is a take with an id and its settlement.
func BenchmarkReserve(b *testing.B) {
	g, names := benchGuard(b), benchNames(1000)
	plan := policy(b, drawgate.FallbackShare, rolling(1e9, time.Minute), slots(1e6))
	b.ReportAllocs()
	var next atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		var out [1]store.Verdict
		var ends [1]store.Outcome
		for pb.Next() {
			i := next.Add(1)
			buckets := []store.BucketCost{cost(plan, names[i%1000], 1, 1)}
			id := strconv.FormatInt(i, 10)
			tk := store.Take{ID: id, Grant: store.Grant(i), Hold: time.Minute, Buckets: buckets}
			if err := g.Take(b.Context(), []store.Take{tk}, out[:]); err != nil || !out[0].Allowed {
				b.Error(err, out[0].Allowed)
				return
			}
			st := store.Settlement{Op: store.OpSettle, ID: id, Grant: tk.Grant, Buckets: buckets}
			if err := g.Settle(b.Context(), []store.Settlement{st}, ends[:]); err != nil || ends[0].Gone {
				b.Error(err, ends[0])
				return
			}
		}
	})
}

// BenchmarkFallback is a plain take during an outage.
func BenchmarkFallback(b *testing.B) {
	inner := &faulty{Store: memstore.New(nil), mood: refuses}
	g := guard.New(inner, &guard.Options{Instances: 1, Start: drawgate.StartFull})
	b.Cleanup(func() { _ = g.Close() })
	plan := policy(b, drawgate.FallbackShare, rolling(1e9, time.Minute), rolling(1e9, time.Hour))
	b.ReportAllocs()
	for b.Loop() {
		if d := take(b, g, plan, "k", 1, 1); !d.Allowed || !d.Fallback {
			b.Fatal(d.Allowed, d.Fallback)
		}
	}
}
