package guard_test

import (
	"bytes"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/redisstore"
)

// witness hears what a guard recovers.
type witness struct {
	units, reservations, notDone, charged atomic.Int64

	mu  sync.Mutex
	log bytes.Buffer // guarded by mu
}

func (w *witness) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(b)
}

// lines returns how often the log has the event.
func (w *witness) lines() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.log.String(), "event="+guard.RecoveredEvent)
}

// process is one of several processes that share a store.
type process struct {
	*guard.Store
	witness
}

func newProcess(t *testing.T, url string, off bool) *process {
	t.Helper()
	p := &process{}
	inner, err := redisstore.Open(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Store = guarded(t, inner, &guard.Options{
		Timeout: patience, NoRecovery: off, Logger: slog.New(slog.NewTextHandler(&p.witness, nil)),
		Observer: &guard.Observer{
			Charged: func(c *guard.Charged) { p.charged.Add(int64(len(c.Buckets))) },
			Recovered: func(r *guard.Recovered) {
				p.units.Add(r.Units())
				p.reservations.Add(int64(r.Reservations))
				p.notDone.Add(int64(r.NotDone))
			},
		},
	})
	return p
}

// state returns what the store says of a bucket, as the process hears it.
func (p *process) state(t *testing.T, plan *store.Plan) *store.State {
	t.Helper()
	var out [1]store.State
	if err := p.Peek(t.Context(), []store.BucketCost{cost(plan, "k", 0, 0)}, 0, out[:]); err != nil {
		t.Fatal(err)
	}
	return &out[0]
}

// awaitAll waits until the store has so many units and open reservations, while every process asks.
func awaitAll(t *testing.T, plan *store.Plan, units int64, open int, all ...*process) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		done := true
		var st *store.State
		for _, p := range all {
			st = p.state(t, plan)
			done = done && st.Fail == nil && !st.Fallback && st.Open == open && st.States[0].Used == units
		}
		if done {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d units are used and %d reservations open, want %d and %d", st.States[0].Used, st.Open, units, open)
		}
	}
}

// recoveryPlan has units and slots, of which nothing is admitted without the store.
func recoveryPlan(t *testing.T, amount int64) *store.Plan {
	t.Helper()
	return policy(t, drawgate.FallbackClosed, rolling(amount, time.Hour), slots(2))
}

// admitAll has two processes take 30 and 20 units, in takes of 5, and hold 5 more and a slot each.
func admitAll(t *testing.T, plan *store.Plan, ps []*process) {
	t.Helper()
	for i, n := range []int{6, 4} {
		for range n {
			if d := take(t, ps[i], plan, "k", 5, 0); !d.Allowed {
				t.Fatal("a take is refused")
			}
		}
		if d := hold(t, ps[i], strconv.Itoa(i), time.Hour, plan, "k", 5, 1); !d.Allowed {
			t.Fatal("a reservation is refused")
		}
	}
}

// comesBack checks what two processes have again after a loss of all that they were admitted.
func comesBack(t *testing.T, plan *store.Plan, ps []*process) {
	t.Helper()
	awaitAll(t, plan, 60, 2, ps...)
	for i, p := range ps { // one that settles before it knows would have it settled again
		for end := time.Now().Add(patience); p.reservations.Load() == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("process %d never says that its reservation is back", i)
			}
		}
	}
	if d := hold(t, ps[0], "third", time.Hour, plan, "k", 1, 1); d.Allowed {
		t.Error("a third slot of two is granted")
	}
	for i, p := range ps {
		if o := end(t, p, store.OpSettle, strconv.Itoa(i), plan, "k", 3, 1); o.Gone {
			t.Errorf("reservation %d is gone", i)
		}
	}
	awaitAll(t, plan, 56, 0, ps...)
	for i, want := range []int64{30, 20} {
		p := ps[i]
		if p.units.Load() != want || p.reservations.Load() != 1 || p.lines() != 1 || p.charged.Load() != 0 {
			t.Errorf("process %d: %d units and %d reservations were recovered in %d lines, and %d charged; want %d, 1, 1, 0",
				i, p.units.Load(), p.reservations.Load(), p.lines(), p.charged.Load(), want)
		}
	}
	n := int64(0)
	for take(t, ps[0], plan, "k", 1, 0).Allowed {
		n++
	}
	if n != 100-56 {
		t.Errorf("%d more were admitted, want %d", n, 100-56)
	}
}

// TestRecovery: a server forgets what it has granted. Once every process had an answer, all of it
// is back: units, reservations under their grants, and slots.
//
// req: A10, C12
func TestRecovery(t *testing.T) {
	t.Parallel()
	plan := recoveryPlan(t, 100)
	for name, lose := range map[string]func(s *redistest.Server){
		"flushed":  func(s *redistest.Server) { s.Do("FLUSHALL") },
		"evicted":  func(s *redistest.Server) { s.Do("DEL", keyOf(s, plan)) },
		"restarts": func(s *redistest.Server) { s.Kill9(); s.Restart() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			ps := []*process{newProcess(t, s.URL(), false), newProcess(t, s.URL(), false)}
			admitAll(t, plan, ps)
			lose(s)
			comesBack(t, plan, ps)
		})
	}
}

// TestNoRecovery: with recovery off, what is lost is forgotten, as the store's answers say.
func TestNoRecovery(t *testing.T) {
	t.Parallel()
	s, plan := redistest.Start(t), recoveryPlan(t, 100)
	ps := []*process{newProcess(t, s.URL(), true), newProcess(t, s.URL(), true)}
	admitAll(t, plan, ps)
	s.Do("FLUSHALL")
	awaitAll(t, plan, 0, 0, ps...)
	if o := end(t, ps[0], store.OpSettle, "0", plan, "k", 5, 1); !o.Gone {
		t.Error("a reservation that was lost is there")
	}
	if ps[0].units.Load() != 0 || ps[0].lines() != 0 {
		t.Error("something is recovered")
	}
}

// TestRecoveryUnderLoad: a server is flushed while two processes take. In the end it knows exactly
// what they were admitted.
//
// req: A10, C12
func TestRecoveryUnderLoad(t *testing.T) {
	t.Parallel()
	const takes = 300
	s, plan := redistest.Start(t), recoveryPlan(t, 1_000_000)
	ps := []*process{newProcess(t, s.URL(), false), newProcess(t, s.URL(), false)}
	var admitted atomic.Int64
	var wg sync.WaitGroup
	half := make(chan struct{})
	for _, p := range ps {
		for range 3 {
			wg.Go(func() {
				for range takes {
					d := take(t, p, plan, "k", 1, 0)
					if d.Allowed && admitted.Add(1) == 3*takes {
						close(half)
					}
				}
			})
		}
	}
	<-half
	s.Do("FLUSHALL")
	wg.Wait()
	awaitAll(t, plan, admitted.Load(), 0, ps...)
	if got := ps[0].units.Load() + ps[1].units.Load(); got == 0 || got > admitted.Load() {
		t.Errorf("%d units were recovered, of %d", got, admitted.Load())
	}
}

// keyOf returns the bucket's key, or "" if the server does not have it.
func keyOf(s *redistest.Server, plan *store.Plan) string {
	for key := range strings.Lines(s.Do("KEYS", "*"+plan.Name()+"*")) {
		return strings.TrimSpace(key)
	}
	return ""
}

// failsOver checks that two processes have everything again after a fail-over to a replica that had
// received none of it: the links between them are cut first.
func failsOver(t *testing.T, url string, primaries, replicas []*redistest.Server) {
	t.Helper()
	plan := recoveryPlan(t, 100)
	ps := []*process{newProcess(t, url, false), newProcess(t, url, false)}
	for i, r := range replicas {
		r.Stop()
		primaries[i].Do("CLIENT", "KILL", "TYPE", "replica")
	}
	admitAll(t, plan, ps)
	for _, p := range primaries {
		if keyOf(p, plan) != "" {
			p.Kill9()
			break
		}
	}
	for _, r := range replicas {
		r.Continue()
	}
	comesBack(t, plan, ps)
}

// TestRecoveryAfterSentinelFailOver: a replica is promoted that had not received the last writes.
//
// req: A10, C12
func TestRecoveryAfterSentinelFailOver(t *testing.T) {
	t.Parallel()
	c := redistest.StartSentinels(t, true)
	failsOver(t, c.URL(), []*redistest.Server{c.Primary}, []*redistest.Server{c.Replica})
}

// TestRecoveryAfterClusterFailOver is the same in a cluster.
//
// req: A10, C12
func TestRecoveryAfterClusterFailOver(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, true)
	failsOver(t, c.URL(), c.Primaries, c.Replicas)
}
