package guard_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/guard"
)

// load is an open loop: takes are sent when they are due, whether or not earlier ones were answered.
type load struct {
	t     *testing.T
	plans []*drawgate.Plan // taken in turn
	keys  int              // of each plan
	every time.Duration

	mu       sync.Mutex
	took     []time.Duration
	allowed  map[drawgate.Key]int64
	fallback int
	open     int       // allowed in its place although the limit is closed
	normal   time.Time // the last decision by the store
	wg       sync.WaitGroup
	quit     chan struct{}
}

// drive begins to send takes to guards in turn.
func drive(t *testing.T, every time.Duration, keys int, plans []*drawgate.Plan, guards ...*guard.Store) *load {
	t.Helper()
	l := &load{t: t, plans: plans, keys: keys, every: every, allowed: map[drawgate.Key]int64{}, quit: make(chan struct{})}
	l.wg.Go(func() { l.send(guards) })
	return l
}

// pace returns how often to take: in the long form 30 % of what guards grant when nothing fails.
func pace(t *testing.T, short time.Duration, guards ...*guard.Store) time.Duration {
	t.Helper()
	if !long {
		return short
	}
	most := capacity(t, guards)
	t.Logf("%.0f takes a second, 30 %% of the %.0f that 64 callers are granted when nothing fails", 0.3*most, most)
	return time.Duration(float64(time.Second) / (0.3 * most))
}

// capacity returns how many takes are granted a second.
func capacity(t *testing.T, guards []*guard.Store) float64 {
	t.Helper()
	wide := compile(t, drawgate.Policy{Name: "capacity", Limits: []drawgate.Limit{{Name: "h", Kind: drawgate.Rolling, Amount: 1e9, Window: time.Hour}}})
	l := load{t: t, keys: 10, plans: []*drawgate.Plan{wide}}
	var sent atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range 64 {
		wg.Go(func() {
			for time.Since(start) < 2*time.Second {
				i := int(sent.Add(1))
				if d, err := l.take(i, guards[i%len(guards)]); err != nil || !d.Allowed {
					t.Errorf("%+v, %v", d, err)
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(sent.Load()) / time.Since(start).Seconds()
}

// send sends what is due, every millisecond or as soon as it comes to it.
func (l *load) send(guards []*guard.Store) {
	tick := time.NewTicker(min(l.every, time.Millisecond))
	defer tick.Stop()
	start := time.Now()
	for i := 0; ; {
		select {
		case <-l.quit:
			return
		case <-tick.C:
		}
		for due := start.Add(time.Duration(i) * l.every); !due.After(time.Now()); due = due.Add(l.every) {
			n := i
			l.wg.Go(func() { l.one(n, due, guards[n%len(guards)]) })
			i++
		}
	}
}

// take makes the take with a number, and returns its decision.
func (l *load) take(i int, g *guard.Store) (*drawgate.Decision, error) {
	b := cost(l.plans[i%len(l.plans)], fmt.Sprint(i/len(l.plans)%l.keys), 1)
	var out [1]drawgate.Decision
	err := g.Take(l.t.Context(), []drawgate.Take{{Buckets: []drawgate.BucketCost{b}}}, out[:])
	return &out[0], errors.Join(err, out[0].Fail)
}

// one makes a take that was due at an instant, from which on its time counts.
func (l *load) one(i int, due time.Time, g *guard.Store) {
	plan := l.plans[i%len(l.plans)]
	d, err := l.take(i, g)
	took := time.Since(due)
	if err != nil {
		l.t.Errorf("a caller was given an error: %v", err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, took)
	if d.Allowed {
		l.allowed[drawgate.Key{Policy: plan.Name(), Name: fmt.Sprint(i / len(l.plans) % l.keys)}]++
	}
	switch {
	case !d.Fallback:
		l.normal = time.Now()
	case d.Allowed && plan.Policy().Fallback == drawgate.FallbackClosed:
		l.open++
		fallthrough
	default:
		l.fallback++
	}
}

// awaits waits until the store decides again, and returns how long that took.
func (l *load) awaits() time.Duration {
	l.t.Helper()
	const within = 10 * time.Second // two are promised; what a busy machine adds is not measured here
	start := time.Now()
	for time.Since(start) < within {
		l.mu.Lock()
		back := l.normal.After(start)
		l.mu.Unlock()
		if back {
			return time.Since(start)
		}
		time.Sleep(time.Millisecond)
	}
	l.t.Errorf("the store does not decide again after %v", within)
	return within
}

// fallbacks returns how many takes were decided in the store's place.
func (l *load) fallbacks() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fallback
}

// falls waits until more takes than before were decided in the store's place: on a busy machine the first may be late.
func (l *load) falls(before int) {
	l.t.Helper()
	const within = 10 * time.Second
	for start := time.Now(); l.fallbacks() == before; time.Sleep(time.Millisecond) {
		if time.Since(start) > within {
			l.t.Error("nothing was decided without the store: the fault was none")
			return
		}
	}
}

// stop ends the load and reports it. No call hung, and none was allowed by a closed limit while the store was away.
func (l *load) stop() {
	l.t.Helper()
	close(l.quit)
	l.wg.Wait()
	slices.Sort(l.took)
	at := func(q float64) time.Duration { return l.took[int(q*float64(len(l.took)-1))].Round(time.Microsecond) }
	l.t.Logf("%d takes, %d of them decided without the store; p50 %v, p99 %v, p99.9 %v, most %v", len(l.took), l.fallback, at(0.5), at(0.99), at(0.999), at(1))
	if at(1) > 5*time.Second { // the promise is the deadline and 25 ms; what a busy machine adds is not measured here
		l.t.Errorf("a take took %v", at(1))
	}
	if l.open > 0 {
		l.t.Errorf("%d takes were allowed although the limit is closed", l.open)
	}
}

// within checks that no bucket of a plan was admitted more than most.
func (l *load) within(plan *drawgate.Plan, most int64) {
	l.t.Helper()
	sum, top := int64(0), int64(0)
	for k, n := range l.allowed {
		if k.Policy != plan.Name() {
			continue
		}
		sum, top = sum+n, max(top, n)
		if n > most {
			l.t.Errorf("bucket %s of %s: %d of %d admitted", k.Name, k.Policy, n, most)
		}
	}
	l.t.Logf("%s: %d admitted in all, %d of one bucket, where %d may be", plan.Name(), sum, top, most)
}
