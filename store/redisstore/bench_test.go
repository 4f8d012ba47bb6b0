package redisstore_test

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
)

// BenchmarkTake measures decisions, and the server's processor time for each (redis-µs/op).
func BenchmarkTake(b *testing.B) {
	bucket := compile(b, "one", drawgate.Limit{
		Name: "b", Kind: drawgate.Bucket, Amount: 1_000_000,
		Window: time.Second,
	})
	three := compile(b, "three",
		drawgate.Limit{Name: "m", Kind: drawgate.Rolling, Amount: 1_000_000_000, Window: time.Minute},
		drawgate.Limit{Name: "h", Kind: drawgate.Rolling, Amount: 1_000_000_000, Window: time.Hour},
		drawgate.Limit{Name: "d", Kind: drawgate.Calendar, Amount: 1_000_000_000, Every: drawgate.Day},
	)
	refuse := compile(b, "refuse", drawgate.Limit{Name: "b", Kind: drawgate.Bucket, Amount: 1, Window: time.Hour})
	slots := compile(b, "slots", drawgate.Limit{
		Name: "m", Kind: drawgate.Rolling, Amount: 1_000_000_000,
		Window: time.Minute,
	},
		drawgate.Limit{
			Name: "t", Unit: "output_tokens", Kind: drawgate.Rolling, Amount: 1_000_000_000,
			Window: time.Minute,
		})
	for _, c := range []struct {
		name          string
		plan          *store.Plan
		callers, keys int
		hold          bool
	}{
		{"limits=bucket/callers=1/keys=1", bucket, 1, 1, false},
		{"limits=bucket/callers=64/keys=1", bucket, 64, 1, false},
		{"limits=bucket/callers=64/keys=1e4", bucket, 64, 10_000, false},
		{"limits=bucket/callers=64/keys=1/hit=denied", refuse, 64, 1, false},
		{"limits=three/callers=1/keys=1e4", three, 1, 10_000, false},
		{"limits=three/callers=64/keys=1e4", three, 64, 10_000, false},
		{"limits=two/callers=64/keys=1e4/held", slots, 64, 10_000, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			server := redistest.Start(b)
			s := open(b, server, nil)
			if err := s.Ping(b.Context()); err != nil {
				b.Fatal(err)
			}
			var n [6]int64
			for i := range c.plan.Policy().Limits {
				n[i] = 1
			}
			for i := range c.keys {
				take(b, s, takeOf(c.plan, strconv.Itoa(i), n[:]...))
			}
			var next atomic.Int64
			start := server.CPU()
			one := func(i int64) {
				t := takeOf(c.plan, strconv.FormatInt(i*7919%int64(c.keys), 10), n[:]...)
				if !c.hold {
					take(b, s, t)
					return
				}
				t = held(t, fmt.Sprint("id", i), time.Minute)
				take(b, s, t)
				settle(b, s, store.Settlement{Op: store.OpSettle, ID: t.ID, Buckets: t.Buckets})
			}
			b.ReportAllocs()
			if c.callers == 1 {
				for b.Loop() {
					one(next.Add(1))
				}
			} else {
				b.SetParallelism(c.callers / 2)
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						one(next.Add(1))
					}
				})
			}
			b.ReportMetric(float64((server.CPU()-start).Microseconds())/float64(next.Load()), "redis-µs/op")
		})
	}
}
