package storetest

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// Bench measures plain takes of one unit: with policies of one limit and of three, on one key and
// on ten thousand, allowed and refused, by one caller and by 64. open returns an empty store, which
// b.Cleanup closes.
func Bench(b *testing.B, open func(b *testing.B) store.Store) {
	for _, limits := range []int{1, 3} {
		for _, keys := range []int{1, 10_000} {
			for _, hit := range []string{"allowed", "denied"} {
				for _, callers := range []int{1, 64} {
					b.Run(fmt.Sprintf("limits=%d/keys=%d/hit=%s/callers=%d", limits, keys, hit, callers),
						func(b *testing.B) {
							benchTake(b, open(b), limits, keys, hit == "denied", callers)
						})
				}
			}
		}
	}
}

func benchTake(b *testing.B, s store.Store, limits, keys int, denied bool, callers int) {
	b.Helper()
	amount := int64(1_000_000_000)
	if denied {
		amount = 1
	}
	all := []drawgate.Limit{
		leaky(amount, time.Hour, 0), joined(amount, time.Hour, 100),
		calendar(amount, drawgate.Month, "UTC"),
	}
	plan, err := drawgate.Policy{Name: "bench", Limits: all[:limits]}.Compile()
	if err != nil {
		b.Fatal(err)
	}
	takes := make([]store.Take, keys)
	for i := range takes {
		takes[i].Buckets = []store.BucketCost{{Key: store.Key{
			Tenant: "t", Policy: "bench",
			Name: fmt.Sprint("key-", i),
		}, Plan: plan.Plan, N: store.Amounts{1, 1, 1}}}
	}
	for first := 0; first < keys; first += 1000 { // the first take makes a bucket, and uses up a limit of one
		batch := takes[first:min(first+1000, keys)]
		if err := s.Take(b.Context(), batch, make([]store.Verdict, len(batch))); err != nil {
			b.Fatal(err)
		}
	}
	one := func(i int, out []store.Verdict) {
		if err := s.Take(b.Context(), takes[i:i+1], out); err != nil {
			b.Error(err)
		} else if out[0].Fail != nil || out[0].Allowed == denied {
			b.Errorf("allowed %v, %v", out[0].Allowed, out[0].Fail)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	if callers == 1 {
		out := make([]store.Verdict, 1)
		for i := 0; b.Loop(); i++ {
			one(i*7919%keys, out)
		}
		return
	}
	var caller atomic.Int64
	b.SetParallelism(max(1, callers/runtime.GOMAXPROCS(0)))
	b.RunParallel(func(pb *testing.PB) {
		out := make([]store.Verdict, 1)
		for i := int(caller.Add(1)) * 97; pb.Next(); i++ {
			one(i*7919%keys, out)
		}
	})
}
