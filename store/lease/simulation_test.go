package lease

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
)

var simulated = map[string]store.Limit{
	"rolling":  {Name: "a", Kind: store.Rolling, Window: time.Minute},
	"bucket":   {Name: "a", Kind: store.Bucket, Window: time.Minute},
	"calendar": {Name: "a", Kind: store.Calendar, Every: store.Minute},
}

// Many processes share a limit that all of them together ask too much of. Never over, at least 98 %
// used, and few calls, while demand moves, processes come, die and stand still, and messages take 1
// to 200 ms or are lost.
// req: E1, E2
func TestSimulation(t *testing.T) {
	t.Parallel()
	needs.NoRace(t) // one goroutine
	const perProc = 500
	for name, l := range simulated {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			procs := needs.Rounds(4, 8, 50)
			if name == "rolling" {
				procs = needs.Rounds(8, 50, 1000)
			}
			l.Amount = int64(procs) * perProc * 60 * 3 / 5
			w := newWorld(1, store.Policy{Limits: []store.Limit{l}})
			w.lost = 0.001
			move := func(p *proc) { p.rate = perProc * (0.4 + 1.2*w.rng.Float64()) }
			for range procs {
				move(w.start(perProc))
			}
			part := 10 * time.Second / time.Duration(procs)
			w.everySome(part, func() { move(w.any()) })
			w.everySome(20*part, func() {
				w.any().dead = true
				move(w.start(perProc))
			})
			w.everySome(20*part, func() { p := w.any(); p.stopped = w.now + w.rng.Int64N(int64(3*time.Second)) })
			w.run(int64(10 * time.Minute))
			w.check(t, l, 0.98)
		})
	}
}

// check checks what a simulation of ten minutes that began with an unused limit promises.
func (w *world) check(t *testing.T, l store.Limit, least float64) {
	t.Helper()
	if over := w.over(); over > 0 {
		t.Errorf("over by %d", over)
	}
	most := float64(10 * l.Amount)
	if l.Kind == store.Bucket {
		most = float64(11 * l.Amount)
	}
	used, calls := float64(w.sum())/most, float64(w.calls)/float64(w.decisions)
	t.Logf("used %.2f%%, %.2f calls for 100 of %d decisions", 100*used, 100*calls, w.decisions)
	if used < least {
		t.Errorf("used %.2f%% of the limit", 100*used)
	}
	if calls > 0.02 {
		t.Errorf("%.2f%% of the decisions cost a call", 100*calls)
	}
}

// Processes that ask for the same get about the same.
func TestFair(t *testing.T) {
	t.Parallel()
	needs.NoRace(t)
	for name, l := range simulated {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const procs = 8
			perProc := int64(needs.Rounds(250, 500, 500))
			for _, excess := range []int64{2, 8} { // how many times what there is they ask for
				l.Amount = procs * perProc * 60 / excess
				w := newWorld(2, store.Policy{Limits: []store.Limit{l}})
				for range procs {
					w.start(float64(perProc))
				}
				w.run(int64(10 * time.Minute))
				w.check(t, l, 0.98)
				least := int64(math.MaxInt64)
				for _, p := range w.procs {
					least = min(least, p.served)
				}
				if mean := w.sum() / procs; least < mean/2 {
					t.Errorf("asked for %d times the limit: one process was served %d, the mean is %d", excess, least, mean)
				}
			}
		})
	}
}

// Whatever happens, nothing is over: random histories with slow clocks, messages that come late,
// not at all, or twice, processes that die, stand still or are suspended, at any point, pauses, and
// a store whose clock is set back.
// req: E1
func TestNeverOver(t *testing.T) {
	t.Parallel()
	needs.NoRace(t)
	for seed := range uint64(needs.Rounds(4, 25, 5000)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := history(seed)
			if over := w.over(); over > 0 {
				t.Errorf("seed %d: over by %d", seed, over)
			}
			if w.sum() == 0 {
				t.Errorf("seed %d: nothing was admitted", seed)
			}
		})
	}
}

// history runs a random history.
func history(seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 1))
	amount := 6000 + rng.Int64N(30_000)
	limits := []store.Limit{
		{Name: "a", Kind: store.Rolling, Window: time.Minute, Amount: amount},
		{Name: "a", Kind: store.Rolling, Window: 10 * time.Second, Amount: amount, Precision: store.Exact},
		{Name: "a", Kind: store.Bucket, Window: 10 * time.Second, Amount: amount},
		{Name: "a", Kind: store.Calendar, Every: store.Minute, Amount: amount},
	}
	first := limits[rng.IntN(len(limits))]
	p := store.Policy{Limits: []store.Limit{first}}
	if second := limits[rng.IntN(len(limits))]; second.Kind != first.Kind {
		second.Name = "b"
		p.Limits = append(p.Limits, second)
	}
	w := newWorld(seed, p)
	w.rng = rng
	w.lost, w.twice = []float64{0, 0.02, 0.2}[rng.IntN(3)], []float64{0, 0.1, 0.5}[rng.IntN(3)]
	w.most = int64(time.Millisecond) << rng.IntN(9)
	procs := 2 + rng.IntN(6)
	rate := float64(amount) / 60 * (0.5 + 2.5*rng.Float64()) * 60 / w.span()
	for range procs {
		p := w.start(rate / float64(procs))
		p.hung = []float64{0, 0, 0.001}[rng.IntN(3)]
	}
	calm := rng.IntN(3) == 0
	if !calm {
		w.everySome(3*time.Second, func() { p := w.any(); p.stopped = w.now + rng.Int64N(int64(2*time.Second)) })
		w.everySome(5*time.Second, func() { w.any().suspend(rng.Int64N(int64(2 * time.Second))) })
		w.everySome(5*time.Second, func() {
			w.any().dead = true
			w.start(rate / float64(procs))
		})
		w.everySome(15*time.Second, w.pause)
		if first.Kind != store.Calendar && len(p.Limits) == 1 {
			w.everySome(20*time.Second, func() { w.back += rng.Int64N(3_000_000) })
		}
	}
	w.run(int64(100 * time.Second))
	return w
}

// span returns the seconds of the first limit's window.
func (w *world) span() float64 {
	l := w.plan.Policy().Limits[0]
	if l.Kind == store.Calendar {
		return 60
	}
	return l.Window.Seconds()
}

func (w *world) pause() {
	s := &store.Settlement{
		Op: store.OpPause, Hold: time.Duration(w.rng.Int64N(int64(3 * time.Second))),
		Buckets: w.buckets(store.Amounts{}),
	}
	s.Hold = max(s.Hold.Truncate(time.Microsecond), time.Millisecond)
	store.Apply(s, []*store.Record{w.rec}, w.clock())
}
