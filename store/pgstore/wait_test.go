package pgstore_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
)

// listens waits until a connection with a name listens for notifications, and returns its process.
func listens(t *testing.T, server *pgtest.Server, name string) (pid string) {
	t.Helper()
	until(t, "a store listens", func() bool {
		pid = server.Do("SELECT pid FROM pg_stat_activity WHERE state = 'idle' AND query LIKE 'LISTEN%' AND application_name = '" + name + "'")
		return pid != "" && !strings.Contains(pid, "\n")
	})
	return pid
}

// unplug ends a connection, and waits until it is gone.
func unplug(t *testing.T, server *pgtest.Server, pid string) {
	t.Helper()
	server.Do("SELECT pg_terminate_backend(" + pid + ")")
	until(t, "the connection is gone", func() bool {
		return server.Do("SELECT count(*) FROM pg_stat_activity WHERE pid = "+pid) == "0"
	})
}

// slots is a policy of so many slots.
func slots(n int64) drawgate.Policy {
	return drawgate.Policy{Name: "slots", Limits: []drawgate.Limit{drawgate.ConcurrencyLimit("slots", n)}}
}

// TestOtherProcessesAreNotified: a store whose take waits in a bucket hears of what another store
// gives back there, also after the connection that listens was lost. It hears nothing of other
// buckets.
//
// req: B11, E1
func TestOtherProcessesAreNotified(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	url := server.Schema(t)
	waiting, other := open(t, named(t, url, "listens"), nil), open(t, url, nil)
	plan := planOf(t, slots(1))
	heard := make(chan store.Key, 10)
	defer waiting.Watch(heard)()
	for range 2 {
		pid := listens(t, server, "listens")
		for _, name := range []string{"another", "k"} {
			grant := store.NewGrant()
			held := takeOf(plan, name)
			held.ID, held.Grant, held.Hold = "id", grant, time.Hour
			mustTake(t, other, held)
			if name == "k" {
				refused := takeOf(plan, "k")
				refused.ID, refused.Grant, refused.Hold = "another id", store.NewGrant(), time.Hour
				refused.Ticket = &store.Ticket{Number: 1, Patience: time.Minute}
				if v, err := takeOne(t, waiting, refused); err != nil || v.Allowed {
					t.Fatalf("allowed %t, %v", v.Allowed, err)
				}
			}
			var o [1]store.Outcome
			back := store.Settlement{Op: store.OpSettle, ID: "id", Grant: grant, Buckets: held.Buckets}
			back.Buckets[0].N[0] = store.KeepEstimate
			if err := other.Settle(t.Context(), []store.Settlement{back}, o[:]); err != nil || o[0].Err != nil {
				t.Fatal(err, o[0].Err)
			}
		}
		select {
		case k := <-heard:
			if k.Name != "k" {
				t.Errorf("it heard of %v", k)
			}
		case <-time.After(time.Minute):
			t.Fatal("it heard nothing")
		}
		if err := waiting.Withdraw(t.Context(), 1, []store.Key{takeOf(plan, "k").Buckets[0].Key}); err != nil {
			t.Fatal(err)
		}
		for len(heard) > 0 { // of what it did itself
			<-heard
		}
		unplug(t, server, pid)
	}
}

// TestLineOverTwoProcesses lets callers of two limiters wait for one slot, each on a store of its
// own: they get it in the order in which they began to wait. Tickets live for five seconds: a round
// in which the machine stood still for so long says nothing.
//
// req: B11, E1
func TestLineOverTwoProcesses(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).Schema(t)
	var limiters []*drawgate.Limiter
	for range 2 {
		l, err := drawgate.New(open(t, url, nil), slots(1), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
		limiters = append(limiters, l)
	}
	for round := range 20 {
		began := time.Now()
		order := serve(t, limiters, fmt.Sprint("k", round))
		if slices.IsSorted(order) {
			return
		}
		lasted := time.Since(began)
		t.Logf("they were served in the order %v, in %v", order, lasted)
		if lasted < 2*time.Second {
			t.Fatal("this is not the order in which they began to wait")
		}
	}
	t.Error("the machine was too slow each time")
}

// serve lets callers wait for a slot, one after the other, and returns in which order they get it.
func serve(t *testing.T, limiters []*drawgate.Limiter, key string) (order []int) {
	t.Helper()
	first, err := limiters[0].Reserve(t.Context(), key, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	const waiters = 4 // of each process two: no more could have the slot at once
	served := make(chan int, waiters)
	var all sync.WaitGroup
	defer all.Wait()
	for i := range waiters {
		all.Go(func() {
			r, err := limiters[i%2].Reserve(t.Context(), key, time.Hour)
			if err != nil {
				t.Error(err)
				served <- -1
				return
			}
			served <- i
			if err := r.Settle(t.Context()); err != nil {
				t.Error(err)
			}
		})
		until(t, "it stands in line", func() bool {
			st, err := limiters[1].Status(t.Context(), key)
			return err == nil && len(st.Line) == i+1
		})
	}
	if err := first.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range waiters {
		order = append(order, <-served)
	}
	return order
}

// TestSharedPauseAndInstances: a pause that one process sets holds for another one, and guards
// count each other through the store.
//
// req: A10, B11
func TestSharedPauseAndInstances(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).Schema(t)
	var limiters []*drawgate.Limiter
	var guards []*guard.Store
	for range 3 {
		g := guard.New(open(t, url, nil), &guard.Options{CountInstances: true})
		t.Cleanup(func() {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		})
		l, err := drawgate.New(g, hourlyPolicy(10), nil)
		if err != nil {
			t.Fatal(err)
		}
		guards, limiters = append(guards, g), append(limiters, l)
	}
	if err := limiters[0].Pause(t.Context(), "k", time.Hour, "the provider said 429"); err != nil {
		t.Fatal(err)
	}
	d, err := limiters[1].Allow(t.Context(), "k")
	if err != nil || d.Allowed || d.Reason != drawgate.Paused {
		t.Errorf("allowed %t because of %v, %v: want a pause", d.Allowed, d.Reason, err)
	}
	st, err := limiters[2].Status(t.Context(), "k")
	if err != nil || st.Pause.Reason != "the provider said 429" {
		t.Errorf("the pause is %+v, %v", st.Pause, err)
	}
	if _, err := limiters[2].Unpause(t.Context(), "k", st.Pause.Until, ""); err != nil {
		t.Fatal(err)
	}
	if d, err = limiters[1].Allow(t.Context(), "k"); err != nil || !d.Allowed {
		t.Errorf("after the pause: allowed %t, %v", d.Allowed, err)
	}
	until(t, "each guard has counted all", func() bool {
		for _, g := range guards {
			if g.State().Instances != len(guards) {
				return false
			}
		}
		return true
	})
}
