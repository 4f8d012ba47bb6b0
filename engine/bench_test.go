package engine_test

import (
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/internal/needs"
)

func bench(t testing.TB) *engine.Engine {
	t.Helper()
	fast := tokenBucket("fast", 1_000_000_000, 1_000_000)
	return newEngine(t, engine.Config{
		Policies: policies(fast, perDay("other", 1_000_000_000)),
		Rules: []rules.Rule{{
			Name: "one", Match: rules.Match{Path: "/"},
			Apply: []rules.Apply{{Policy: "fast", Key: "user"}},
		}},
	}, nil)
}

func BenchmarkTake(b *testing.B) {
	e := bench(b)
	requests := map[string]*engine.Request{
		"by=rule": from("u"), "by=name": ask("fast", "u"), "by=name/costs=1": ask("fast", "u", drawgate.Cost{N: 3}),
	}
	for _, name := range []string{"by=rule", "by=name", "by=name/costs=1"} {
		r := requests[name]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var res engine.Result
			for b.Loop() {
				if err := e.TakeInto(b.Context(), r, &res); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("by=limiter", func(b *testing.B) { // the floor: no engine at all
		b.ReportAllocs()
		l := e.Limiter("fast")
		for b.Loop() {
			if _, err := l.Allow(b.Context(), "u"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("by=rule/parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			var res engine.Result
			r := from("u")
			for pb.Next() {
				if err := e.TakeInto(b.Context(), r, &res); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

// TestTakesDoNotAllocate: with a Result that is used again, one policy costs no allocation;
// without, one.
func TestTakesDoNotAllocate(t *testing.T) {
	needs.NoRace(t)
	e := bench(t)
	for name, r := range map[string]*engine.Request{"a rule": from("u"), "a name": ask("fast", "u")} {
		var res engine.Result
		into := testing.AllocsPerRun(1000, func() {
			if err := e.TakeInto(t.Context(), r, &res); err != nil || !res.Decision.Allowed {
				t.Fatal(err, res.Decision.Allowed)
			}
		})
		fresh := testing.AllocsPerRun(1000, func() {
			if _, err := e.Take(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		})
		if into != 0 || fresh > 2 {
			t.Errorf("%s: %v allocations with a Result, want 0; %v without, want at most 2", name, into, fresh)
		}
	}
}
