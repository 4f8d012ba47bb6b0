package telemetry_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/telemetry"
)

// decisions returns what an observer is told of an allowed and of a refused take of that many
// buckets.
func decisions(tb testing.TB, buckets int) (yes, no *drawgate.Taken) {
	tb.Helper()
	watch := &drawgate.Observer{Taken: func(e *drawgate.Taken) {
		d := *e.Decision
		event := &drawgate.Taken{Take: e.Take, Decision: &d, Took: e.Took}
		if d.Allowed {
			yes = event
		} else {
			no = event
		}
	}}
	l, err := drawgate.New(memstore.New(nil), tiers("p0", 1), &drawgate.Options{Observer: watch})
	if err != nil {
		tb.Fatal(err)
	}
	asks := []drawgate.Ask{l.Ask("203.0.113.9")}
	for i := 1; i < buckets; i++ {
		o, err := l.With(tiers("p"+string(rune('0'+i)), 1))
		if err != nil {
			tb.Fatal(err)
		}
		asks = append(asks, o.Ask("203.0.113.9"))
	}
	for range 2 {
		if _, _, err := l.Take(tb.Context(), drawgate.Request{Buckets: asks}); err != nil {
			tb.Fatal(err)
		}
	}
	return yes, no
}

// tiers is a policy of a minute and a day.
func tiers(name string, perMinute int64) drawgate.Policy {
	return drawgate.Policy{Name: name, Limits: []drawgate.Limit{
		{Name: "rpm", Kind: drawgate.Rolling, Window: time.Minute, Amount: perMinute},
		{Name: "rpd", Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 100 * perMinute},
	}}
}

// BenchmarkObserver is what a decision costs with all metrics on, and with warnings as well. It
// must not allocate.
func BenchmarkObserver(b *testing.B) {
	for _, c := range []struct {
		name    string
		buckets int
		refused bool
		warn    bool
	}{
		{"buckets=1/allowed/metrics", 1, false, false},
		{"buckets=1/allowed/all", 1, false, true},
		{"buckets=1/refused/metrics", 1, true, false},
		{"buckets=1/refused/all", 1, true, true},
		{"buckets=3/allowed/metrics", 3, false, false},
		{"buckets=3/allowed/all", 3, false, true},
		{"buckets=3/refused/metrics", 3, true, false},
		{"buckets=3/refused/all", 3, true, true},
	} {
		yes, no := decisions(b, c.buckets)
		e := yes
		if c.refused {
			e = no
		}
		b.Run(c.name, func(b *testing.B) {
			m, err := telemetry.NewMetrics(prometheus.NewRegistry(), nil)
			if err != nil {
				b.Fatal(err)
			}
			o := m.Observer()
			if c.warn {
				w := telemetry.NewWarner(&telemetry.WarnerOptions{Metrics: m})
				defer w.Close()
				o = telemetry.Join(o, w.Observer(), telemetry.NewRefusals().Observer())
			}
			call := &drawgate.StoreCall{Op: "take", Took: 50 * time.Microsecond}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					o.Taken(e)
					o.Called(call)
				}
			})
		})
	}
}
