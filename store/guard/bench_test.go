package guard_test

import (
	"context"
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

// historian is a store in memory that answers as one that keeps histories, and has lost nothing.
type historian struct {
	*memstore.Store
	keeps bool
	last  atomic.Int64
}

func (k *historian) KeepsHistory() bool { return k.keeps }

func (k *historian) PeekKnown(ctx context.Context, b []store.BucketCost, priority int8, _ []store.Known,
	out []store.State,
) error {
	return k.Peek(ctx, b, priority, out)
}

func (k *historian) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	err := k.Store.Take(ctx, batch, out)
	for i := range out {
		out[i].Histories = k.histories(batch[i].Known)
	}
	return err
}

func (k *historian) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	err := k.Store.Settle(ctx, batch, out)
	for i := range out {
		out[i].Histories = k.histories(batch[i].Known)
	}
	return err
}

func (k *historian) histories(known []store.Known) []store.History {
	if known == nil {
		return nil
	}
	as := make([]store.History, len(known))
	for i := range as {
		m := store.Mark{Generation: 1, Clock: 1}
		as[i] = store.History{Known: store.Known{Mark: m, Generation: 1}, Wrote: true, Last: k.instant()}
		if known[i] != as[i].Known {
			as[i].Listed, as[i].Epochs = true, []store.Epoch{{Mark: m}}
		}
	}
	return as
}

// instant returns the instant of a write.
func (k *historian) instant() int64 {
	for {
		was := k.last.Load()
		if at := max(time.Now().UnixMicro(), was+1); k.last.CompareAndSwap(was, at) {
			return at
		}
	}
}

// BenchmarkHistorian is a plain take, and a reservation with its settlement, of a store that keeps
// histories, with recovery and without.
func BenchmarkHistorian(b *testing.B) {
	for _, keys := range []int{1, 10_000} {
		for _, off := range []bool{true, false} {
			name := strconv.Itoa(keys) + "keys/" + map[bool]string{true: "off", false: "on"}[off]
			b.Run("take/"+name, func(b *testing.B) { benchHistorian(b, keys, off, false) })
			b.Run("reserve/"+name, func(b *testing.B) { benchHistorian(b, keys, off, true) })
		}
	}
}

func benchHistorian(b *testing.B, keys int, off, held bool) {
	b.Helper()
	g := guard.New(&historian{Store: memstore.New(nil), keeps: true},
		&guard.Options{Instances: 3, Timeout: time.Minute, NoRecovery: off})
	b.Cleanup(func() { _ = g.Close() })
	names := benchNames(keys)
	plan := policy(b, drawgate.FallbackShare, rolling(1e9, time.Minute), rolling(1e9, time.Hour))
	b.ReportAllocs()
	var out [1]store.Verdict
	var ends [1]store.Outcome
	batch, sts := make([]store.Take, 1), make([]store.Settlement, 1)
	i := 0
	for b.Loop() {
		i++
		buckets := []store.BucketCost{cost(plan, names[i%keys], 1, 1)}
		batch[0] = store.Take{Buckets: buckets}
		if held {
			batch[0].ID, batch[0].Grant, batch[0].Hold = strconv.Itoa(i), store.Grant(i), time.Minute
		}
		if err := g.Take(b.Context(), batch, out[:]); err != nil || !out[0].Allowed {
			b.Fatal(err, out[0].Allowed)
		}
		if held {
			sts[0] = store.Settlement{Op: store.OpSettle, ID: batch[0].ID, Grant: batch[0].Grant, Buckets: buckets}
			if err := g.Settle(b.Context(), sts, ends[:]); err != nil || ends[0].Gone {
				b.Fatal(err, ends[0])
			}
		}
	}
}
