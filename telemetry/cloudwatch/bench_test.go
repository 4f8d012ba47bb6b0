package cloudwatch_test

import (
	"io"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/telemetry/cloudwatch"
)

// events returns what an observer is told of an allowed and of a refused take of a policy with two
// limits.
func events(tb testing.TB) (yes, no *drawgate.Taken) {
	tb.Helper()
	watch := &drawgate.Observer{Taken: func(e *drawgate.Taken) {
		d := *e.Decision
		event := &drawgate.Taken{Take: e.Take, Decision: &d, Took: 3 * time.Millisecond}
		if d.Allowed {
			yes = event
		} else {
			no = event
		}
	}}
	l, err := drawgate.New(memstore.New(nil), drawgate.Policy{Name: "flash", Limits: []drawgate.Limit{
		drawgate.RollingLimit("rpm", 1, time.Minute), drawgate.CalendarLimit("rpd", 100, drawgate.Day, ""),
	}}, &drawgate.Options{Observer: watch})
	if err != nil {
		tb.Fatal(err)
	}
	for range 2 {
		if _, _, err := l.Take(tb.Context(),
			drawgate.Request{Buckets: []drawgate.Ask{l.Ask("203.0.113.9")}}); err != nil {
			tb.Fatal(err)
		}
	}
	return yes, no
}

// BenchmarkObserver is what a decision costs: at most 300 ns, and no allocation.
func BenchmarkObserver(b *testing.B) {
	yes, no := events(b)
	for _, c := range []struct {
		name string
		e    *drawgate.Taken
	}{{"allowed", yes}, {"refused", no}} {
		b.Run(c.name, func(b *testing.B) {
			m, err := cloudwatch.New(&cloudwatch.Options{EMF: io.Discard})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = m.Close(b.Context()) }()
			o := m.Observer()
			call := &drawgate.StoreCall{Op: "take", Took: 2 * time.Millisecond}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					o.Taken(c.e)
					o.Called(call)
				}
			})
		})
	}
}

// A decision that is observed allocates nothing.
func TestObserverDoesNotAllocate(t *testing.T) { //nolint:paralleltest // AllocsPerRun
	yes, no := events(t)
	m, err := cloudwatch.New(&cloudwatch.Options{EMF: io.Discard, Interval: -1})
	if err != nil {
		t.Fatal(err)
	}
	o := m.Observer()
	call := &drawgate.StoreCall{Op: "take", Took: 2 * time.Millisecond}
	for range 100 { // so that each shard knows the policy
		o.Taken(yes)
	}
	if n := testing.AllocsPerRun(1000, func() {
		o.Taken(yes)
		o.Taken(no)
		o.Called(call)
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
	_ = m.Close(t.Context())
}
