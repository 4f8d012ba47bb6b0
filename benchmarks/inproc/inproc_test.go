// Package inproc is section A, in-process limiters, as Go benchmarks. cmd/inprocbench runs them.
package inproc

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate/benchmarks/lim"
	"github.com/drawgate/drawgate/benchmarks/peers"
)

const manyKeys = 1_000_000

// Allowed cells have limits that no run reaches; in denied ones hardly anything passes. %allowed
// shows it.
var (
	specAllow  = lim.Spec{Rate: 1_000_000_000, Period: time.Second, Burst: 1_000_000_000}
	specDeny   = lim.Spec{Rate: 1, Period: time.Second, Burst: 1}
	specMany   = lim.Spec{Rate: 1000, Period: time.Second, Burst: 1000}
	threeAllow = lim.Three{Minute: 1e12, Hour: 1e12, Day: 1e12}
	threeDeny  = lim.Three{Minute: 60, Hour: 1e12, Day: 1e12}

	hotKey = []string{"user:hot"}
	keys   = sync.OnceValue(func() []string { return lim.Keys(manyKeys) })
)

// TestEveryLimiterDecides keeps a wrong adapter from being measured.
func TestEveryLimiterDecides(t *testing.T) {
	for _, e := range peers.Inproc() {
		check := func(name string, l lim.Limiter, err error) {
			if err == nil {
				var ok bool
				if ok, err = l.Allow(t.Context(), "k", 1); !ok && err == nil {
					t.Errorf("%s, %s: the first take was refused", e.Name, name)
				}
			}
			if err != nil {
				t.Errorf("%s, %s: %v", e.Name, name, err)
			}
		}
		if e.New != nil {
			l, err := e.New(specAllow)
			check("one limit", l, err)
		}
		if e.NewThree != nil {
			l, err := e.NewThree(threeAllow)
			check("three limits", l, err)
		}
	}
}

// BenchmarkA names its cells limiter=…/case=…, for benchstat -col /limiter -row /case.
func BenchmarkA(b *testing.B) {
	for _, e := range peers.Inproc() {
		b.Run("limiter="+e.Name, func(b *testing.B) {
			if e.New != nil {
				hot(b, "case=hot-allow", func() (lim.Limiter, error) { return e.New(specAllow) })
				hot(b, "case=hot-deny", func() (lim.Limiter, error) { return e.New(specDeny) })
			}
			if e.NewThree != nil {
				hot(b, "case=three-allow", func() (lim.Limiter, error) { return e.NewThree(threeAllow) })
				hot(b, "case=three-deny", func() (lim.Limiter, error) { return e.NewThree(threeDeny) })
			}
			if e.Keyed && e.New != nil {
				many(b, "case=1Mkeys", func() (lim.Limiter, error) { return e.New(specMany) })
			}
		})
	}
}

func hot(b *testing.B, name string, build func() (lim.Limiter, error)) {
	b.Run(name, func(b *testing.B) {
		l, err := build()
		if err != nil {
			b.Skip(err)
		}
		measure(b, l, hotKey)
	})
}

// many fills the limiter once, however often the benchmark is tried with a larger b.N, and reports
// the heap per key after that. The keys themselves are the caller's and are not counted, unless the
// limiter copies them.
func many(b *testing.B, name string, build func() (lim.Limiter, error)) {
	var l lim.Limiter
	var bytesPerKey float64
	b.Run(name, func(b *testing.B) {
		if l == nil {
			var err error
			if l, bytesPerKey, err = fill(b.Context(), build); err != nil {
				b.Fatal(err)
			}
		}
		measure(b, l, keys())
		b.ReportMetric(bytesPerKey, "B/key")
	})
}

func fill(ctx context.Context, build func() (lim.Limiter, error)) (lim.Limiter, float64, error) {
	ks := keys()
	before := heap()
	l, err := build()
	if err != nil {
		return nil, 0, err
	}
	for _, k := range ks {
		if _, err := l.Allow(ctx, k, 1); err != nil {
			return nil, 0, err
		}
	}
	bytesPerKey := float64(heap()-before) / manyKeys
	runtime.KeepAlive(l)
	return l, bytesPerKey, nil
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools let go of
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

var seeds atomic.Uint64

func measure(b *testing.B, l lim.Limiter, ks []string) {
	ctx := context.Background()
	var allowed, failed atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		rnd := lim.Rand(seeds.Add(0x9E3779B97F4A7C15) | 1)
		var ok, bad int64
		k := ks[0]
		for pb.Next() {
			if len(ks) > 1 {
				k = ks[rnd.N(len(ks))]
			}
			switch yes, err := l.Allow(ctx, k, 1); {
			case err != nil:
				bad++
			case yes:
				ok++
			}
		}
		allowed.Add(ok)
		failed.Add(bad)
	})
	b.ReportMetric(100*float64(allowed.Load())/float64(b.N), "%allowed")
	if n := failed.Load(); n > 0 {
		b.ReportMetric(100*float64(n)/float64(b.N), "%errors")
	}
}
