package lease_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

// BenchmarkHot decides takes of one bucket that is asked for all the time, over a store that takes
// 0.3 ms each way: allowed and refused, by one caller and by 64, of the store itself and of a
// limiter. It reports the store's calls for 100 decisions, and the 99th percentile in ns.
func BenchmarkHot(b *testing.B) {
	for _, by := range []string{"store", "limiter"} {
		for _, hit := range []string{"allowed", "refused"} {
			for _, callers := range []int{1, 64} {
				b.Run(fmt.Sprintf("by=%s/hit=%s/callers=%d", by, hit, callers), func(b *testing.B) {
					benchHot(b, by == "limiter", hit == "refused", callers)
				})
			}
		}
	}
}

func benchHot(b *testing.B, limiter, refused bool, callers int) {
	b.Helper()
	p := drawgate.PerMinute("hot", drawgate.MaxAmount)
	p.Leased = true
	if refused {
		p.Limits[0].Amount = 6000
	}
	way := over(memstore.New(nil), 300*time.Microsecond)
	l := leasing(b, way)
	lim, err := drawgate.New(l, p, &drawgate.Options{StoreTimeout: -1}) // the machine may be busy
	if err != nil {
		b.Fatal(err)
	}
	bucket := of(lim.Plan().Plan, "key")
	one := func(batch []store.Take, out []store.Verdict) error {
		if limiter {
			_, err := lim.Allow(b.Context(), "key")
			return err
		}
		return l.Take(b.Context(), batch, out)
	}
	batch, out := []store.Take{{Buckets: []store.BucketCost{bucket}}}, make([]store.Verdict, 1)
	for start := time.Now(); time.Since(start) < 700*time.Millisecond; {
		if err := one(batch, out); err != nil {
			b.Fatal(err)
		}
	}
	calls := way.takes.Load() + way.rest.Load()
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for c := range callers {
		wg.Go(func() {
			batch, out := slices.Clone(batch), make([]store.Verdict, 1)
			mine := make([]time.Duration, 0, b.N/callers/64+2)
			for i := c; i < b.N; i += callers {
				sampled := i/callers%64 == 0
				var start time.Time
				if sampled {
					start = time.Now()
				}
				if err := one(batch, out); err != nil {
					b.Error(err)
					return
				}
				if sampled {
					mine = append(mine, time.Since(start))
				}
			}
			mu.Lock()
			took = append(took, mine...)
			mu.Unlock()
		})
	}
	wg.Wait()
	b.StopTimer()
	slices.Sort(took)
	if len(took) > 0 {
		b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
	}
	b.ReportMetric(100*float64(way.takes.Load()+way.rest.Load()-calls)/float64(b.N), "calls/100")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}
