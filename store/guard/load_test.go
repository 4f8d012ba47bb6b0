package guard_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
)

// load is an open loop: takes are sent at a fixed pace, whether or not earlier ones were answered.
// The short form bounds the number under way, so that a slow machine sends fewer.
type load struct {
	t      *testing.T
	guards []*guard.Store // asked in turn
	plans  []*store.Plan  // taken in turn
	keys   int            // of each plan
	every  time.Duration
	era    atomic.Int32 // another number means other buckets

	mu      sync.Mutex
	took    []time.Duration
	allowed map[store.Key]int64
	spared  map[store.Key]int64 // the same, decided by the guards
	refused map[store.Key]int64
	// upper bound: what was allowed, and what the store may have carried out after its caller
	// stopped waiting
	counted  map[store.Key]int64
	fallback int
	open     int       // allowed by a guard although the limit is closed
	normal   time.Time // when the store last decided
	wg       sync.WaitGroup
	quit     chan struct{}
	underWay atomic.Int32
}

// mostUnderWay is how many takes of the short form may be under way.
const mostUnderWay = 16

func newLoad(t *testing.T, every time.Duration, keys int, plans []*store.Plan, guards ...*guard.Store) *load {
	t.Helper()
	return &load{
		t: t, guards: guards, plans: plans, keys: keys, every: every, quit: make(chan struct{}),
		allowed: map[store.Key]int64{}, spared: map[store.Key]int64{}, refused: map[store.Key]int64{},
		counted: map[store.Key]int64{},
	}
}

// drive starts to send takes to guards in turn.
func drive(t *testing.T, every time.Duration, keys int, plans []*store.Plan, guards ...*guard.Store) *load {
	t.Helper()
	l := newLoad(t, every, keys, plans, guards...)
	l.start()
	return l
}

func (l *load) start() { l.wg.Go(l.send) }

// pace returns the interval between takes. In the long form that is 30 % of what guards grant when
// nothing fails.
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
	ample := compile(t, drawgate.Policy{Name: "capacity", Limits: []drawgate.Limit{{
		Name: "h", Kind: drawgate.Rolling,
		Amount: 1e9, Window: time.Hour,
	}}})
	l := newLoad(t, 0, 10, []*store.Plan{ample}, guards...)
	var sent atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range 64 {
		wg.Go(func() {
			for time.Since(start) < 2*time.Second {
				i := int(sent.Add(1))
				if d, err := l.take(l.bucket(i), guards[i%len(guards)]); err != nil || !d.Allowed {
					t.Errorf("%+v, %v", d, err)
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(sent.Load()) / time.Since(start).Seconds()
}

// send sends the takes that are due, every millisecond or as soon as it can.
func (l *load) send() {
	tick := time.NewTicker(min(l.every, time.Millisecond))
	defer tick.Stop()
	next := time.Now()
	for i := 0; ; {
		select {
		case <-l.quit:
			return
		case <-tick.C:
		}
		for ; !next.After(time.Now()); next = next.Add(l.every) {
			if !long && l.underWay.Load() >= mostUnderWay {
				next = time.Now()
				break
			}
			n, at := i, next
			l.underWay.Add(1)
			l.wg.Go(func() {
				defer l.underWay.Add(-1)
				l.one(n, at, l.guards[n%len(l.guards)])
			})
			i++
		}
	}
}

// bucket returns what take i takes: a unit of each limit.
func (l *load) bucket(i int) store.BucketCost {
	plan := l.plans[i%len(l.plans)]
	return cost(plan, l.name(l.era.Load(), i/len(l.plans)%l.keys),
		slices.Repeat([]int64{1}, len(store.Internal.Specs(plan, false)))...)
}

func (*load) name(era int32, key int) string { return fmt.Sprintf("%d.%d", era, key) }

// turn switches all later takes to unused buckets.
func (l *load) turn() { l.era.Add(1) }

// take takes, and returns the decision.
func (l *load) take(b store.BucketCost, g *guard.Store) (*store.Verdict, error) {
	var out [1]store.Verdict
	err := g.Take(l.t.Context(), []store.Take{{Buckets: []store.BucketCost{b}}}, out[:])
	return &out[0], errors.Join(err, out[0].Fail)
}

// one makes a take that was due at next. Its duration counts from then on.
func (l *load) one(i int, next time.Time, g *guard.Store) {
	b := l.bucket(i)
	d, err := l.take(b, g)
	took := time.Since(next)
	if err != nil {
		l.t.Errorf("a caller was given an error: %v", err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, took)
	if d.Allowed {
		l.counted[b.Key]++
	}
	if d.Fallback {
		l.counted[b.Key]++
	}
	if !d.Allowed {
		l.refused[b.Key]++
	} else if l.allowed[b.Key]++; d.Fallback {
		l.spared[b.Key]++
	}
	switch {
	case !d.Fallback:
		l.normal = time.Now()
	case d.Allowed && b.Plan.Policy().Fallback == drawgate.FallbackClosed:
		l.open++
		fallthrough
	default:
		l.fallback++
	}
}

// patience is how long to wait for a busy machine.
const patience = time.Minute

// awaits waits until the store decides again, and returns how long that took.
func (l *load) awaits() time.Duration {
	l.t.Helper()
	within := patience
	if long {
		within = 2 * time.Second // as promised
	}
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

// fallbacks returns how many takes the guards decided.
func (l *load) fallbacks() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fallback
}

// falls waits until all guards have stopped sending callers to the store.
func (l *load) falls() {
	l.t.Helper()
	start := time.Now()
	for slices.ContainsFunc(l.guards, func(g *guard.Store) bool { return !g.State().Unavailable }) {
		if time.Since(start) > patience {
			l.t.Error("the store is not away: the fault was none")
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// falters waits until the guards have decided more takes than before.
func (l *load) falters(before int) {
	l.t.Helper()
	for start := time.Now(); l.fallbacks() == before; time.Sleep(time.Millisecond) {
		if time.Since(start) > patience {
			l.t.Error("nothing was decided without the store: the fault was none")
			return
		}
	}
}

// least returns the smallest amount that was admitted of any current bucket of a plan.
func (l *load) least(plan *store.Plan, of map[store.Key]int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	least := of[store.Key{Policy: plan.Name(), Name: l.name(l.era.Load(), 0)}]
	for k := range l.keys {
		least = min(least, of[store.Key{Policy: plan.Name(), Name: l.name(l.era.Load(), k)}])
	}
	return least
}

// counts waits until the store may count at least n of each bucket of a plan.
func (l *load) counts(plan *store.Plan, n int64) {
	l.t.Helper()
	l.until(plan, l.counted, n, "counted")
}

// admits waits until n of each bucket of a plan were admitted. After a turn those are decisions of
// the guards.
func (l *load) admits(plan *store.Plan, n int64) {
	l.t.Helper()
	l.until(plan, l.allowed, n, "admitted")
}

// presses waits until n of each bucket of a plan were refused: more would have been admitted if
// possible.
func (l *load) presses(plan *store.Plan, n int64) {
	l.t.Helper()
	l.until(plan, l.refused, n, "refused")
}

func (l *load) until(plan *store.Plan, of map[store.Key]int64, n int64, what string) {
	l.t.Helper()
	for start := time.Now(); l.least(plan, of) < n; time.Sleep(time.Millisecond) {
		if time.Since(start) > patience {
			l.t.Errorf("policy %s: %d of a bucket %s, want %d", plan.Name(), l.least(plan, of), what, n)
			return
		}
	}
}

// deadline is how long a guard waits for its store.
const deadline = 40 * time.Millisecond

// stop ends the load and checks it: no call hung, and no closed limit allowed a call during the
// outage.
func (l *load) stop() {
	l.t.Helper()
	close(l.quit)
	l.wg.Wait()
	slices.Sort(l.took)
	at := func(q float64) time.Duration { return l.took[int(q*float64(len(l.took)-1))].Round(time.Microsecond) }
	l.t.Logf("%d takes, %d of them decided without the store; p50 %v, p99 %v, p99.9 %v, most %v", len(l.took),
		l.fallback, at(0.5), at(0.99), at(0.999), at(1))
	if long && at(0.999) > deadline+25*time.Millisecond {
		l.t.Errorf("p99.9 is %v, want the deadline of %v and 25 ms at most", at(0.999), deadline)
	}
	if at(1) > patience { // nothing hangs; the long form measures what a busy machine adds
		l.t.Errorf("a take took %v", at(1))
	}
	if l.open > 0 {
		l.t.Errorf("%d takes were allowed although the limit is closed", l.open)
	}
}

// within checks that no bucket of a plan was admitted more than most, and no bucket that was new
// after a turn more than later.
func (l *load) within(plan *store.Plan, most, later int64) {
	l.t.Helper()
	sum, spared, top := int64(0), int64(0), int64(0)
	for k, n := range l.allowed {
		if k.Policy != plan.Name() {
			continue
		}
		sum, spared, top = sum+n, spared+l.spared[k], max(top, n)
		may := later
		if strings.HasPrefix(k.Name, "0.") {
			may = most
		}
		if n > may {
			l.t.Errorf("bucket %s of %s: %d of %d admitted", k.Name, k.Policy, n, may)
		}
	}
	l.t.Logf("%s: %d admitted in all, %d of them without the store; %d of one bucket, where %d may be", plan.Name(),
		sum, spared, top, max(most, later))
}
