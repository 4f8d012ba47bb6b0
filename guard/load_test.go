package guard_test

import (
	"fmt"
	"slices"
	"sync"
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
	passed   int       // decided by the store
	open     int       // allowed in its place although the limit is closed
	normal   time.Time // the last decision by the store
	wg       sync.WaitGroup
	quit     chan struct{}
}

// drive begins to send takes to guards in turn.
func drive(t *testing.T, every time.Duration, keys int, plans []*drawgate.Plan, guards ...*guard.Store) *load {
	t.Helper()
	if long { // about a third of what two cores can do
		every /= 20
	}
	l := &load{t: t, plans: plans, keys: keys, every: every, allowed: map[drawgate.Key]int64{}, quit: make(chan struct{})}
	l.wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-l.quit:
				return
			case <-tick.C:
				l.wg.Go(func() { l.one(i, guards[i%len(guards)]) })
			}
		}
	})
	return l
}

func (l *load) one(i int, g *guard.Store) {
	plan := l.plans[i%len(l.plans)]
	b := cost(plan, fmt.Sprint(i/len(l.plans)%l.keys), 1)
	var out [1]drawgate.Decision
	start := time.Now()
	err := g.Take(l.t.Context(), []drawgate.Take{{Buckets: []drawgate.BucketCost{b}}}, out[:])
	took := time.Since(start)
	d := &out[0]
	if err != nil || d.Fail != nil {
		l.t.Errorf("a caller was given an error: %v, %v", err, d.Fail)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, took)
	if d.Allowed {
		l.allowed[b.Key]++
	}
	switch {
	case !d.Fallback:
		l.passed++
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

// counts returns how many takes were decided by the store, and in its place.
func (l *load) counts() (passed, fallback int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.passed, l.fallback
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
