package guard_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

// counting is several guards, each with its own connection to one store, which count each other.
type counting struct {
	t      *testing.T
	store  store.Store
	plan   *store.Plan
	ways   []*faulty
	guards []*guard.Store
}

func newCounting(t *testing.T, n int, l drawgate.Limit) *counting {
	t.Helper()
	c := &counting{t: t, store: memstore.New(nil), plan: policy(t, drawgate.FallbackShare, l)}
	for range n {
		c.start(well)
	}
	return c
}

// start adds a guard whose connection to the store has that mood.
func (c *counting) start(m mood) {
	c.t.Helper()
	f := &faulty{Store: c.store}
	f.set(m)
	c.ways, c.guards = append(c.ways, f), append(c.guards, guarded(c.t, f, &guard.Options{CountInstances: true}))
}

func (c *counting) set(m mood) {
	for _, f := range c.ways {
		f.set(m)
	}
}

// ask has all guards take units as fast as they can for a second, and returns how many each was
// admitted.
func (c *counting) ask() []int {
	c.t.Helper()
	got := make([]int, len(c.guards))
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for i, g := range c.guards {
			if take(c.t, g, c.plan, "k", 1).Allowed {
				got[i]++
			}
		}
	}
	return got
}

// TestInstancesThatAreCountedShareALimit: three guards without a configured number each admit a
// third of a limit during an outage of ten seconds, and a fourth that starts meanwhile admits none.
// When the store is back it decides again, and the fourth is counted.
//
// req: A10, B11
func TestInstancesThatAreCountedShareALimit(t *testing.T) {
	t.Parallel()
	for _, m := range []mood{refuses, stalls} {
		t.Run(map[mood]string{refuses: "refuses", stalls: "stalls"}[m], func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCounting(t, 3, rolling(300, time.Second))
				time.Sleep(45 * time.Second)
				c.ask()
				c.set(m)
				c.ask() // the window in which the outage starts
				c.start(m)
				for second := range 9 {
					got := c.ask()
					for i, n := range got[:3] {
						if n < 99 || n > 101 {
							t.Errorf("second %d: instance %d admitted %d, want a third of 300", second, i, n)
						}
					}
					if got[3] != 0 {
						t.Errorf("second %d: the one that started meanwhile admitted %d, want none", second, got[3])
					}
				}
				c.set(well)
				for _, g := range c.guards {
					wantBack(t, g, 3*time.Second)
				}
				time.Sleep(3 * time.Second)
				if got := c.ask(); got[0]+got[1]+got[2]+got[3] > 300 || got[0]+got[1]+got[2]+got[3] < 297 {
					t.Errorf("with the store again: %v, want 300 together", got)
				}
				time.Sleep(45 * time.Second)
				for i, g := range c.guards {
					if st := g.State(); st.Instances != 4 || !st.MayShare {
						t.Errorf("instance %d counts %d, may share %v, want 4 that may", i, st.Instances, st.MayShare)
					}
				}
				c.set(m)
				c.ask()
				for i, n := range c.ask() {
					if n < 74 || n > 76 {
						t.Errorf("instance %d admitted %d, want a quarter of 300", i, n)
					}
				}
			})
		})
	}
}

// TestAnInstanceWithoutMaturityAdmitsNoShare: the refusal names the store as the reason, and open
// limits are still counted.
func TestAnInstanceWithoutMaturityAdmitsNoShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCounting(t, 1, rolling(300, time.Second))
		time.Sleep(30 * time.Second)
		c.set(refuses)
		d := take(t, c.guards[0], c.plan, "k", 1)
		if d.Allowed || !d.Fallback || d.Reason != store.Unavailable {
			t.Errorf("got %+v, want a refusal for want of the store", d)
		}
		open := policy(t, drawgate.FallbackOpen, rolling(1, time.Hour))
		for range 3 {
			if d := take(t, c.guards[0], open, "k", 1); !d.Allowed {
				t.Errorf("a limit that is open refused: %+v", d)
			}
		}
		if st := c.guards[0].State(); st.MayShare || st.Instances != 1 {
			t.Errorf("got %+v", st)
		}
	})
}

// TestAClosedGuardIsNotCountedAnyMore: its slot is given back before the store is closed.
func TestAClosedGuardIsNotCountedAnyMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		keep := guarded(t, store, &guard.Options{CountInstances: true})
		other := guard.New(unclosed{store}, &guard.Options{CountInstances: true})
		time.Sleep(time.Minute)
		if n := keep.State().Instances; n != 2 {
			t.Errorf("%d instances, want 2", n)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Minute)
		if st := keep.State(); st.Instances != 1 || !st.MayShare {
			t.Errorf("got %+v, want one that may share", st)
		}
	})
}

// TestABucketThatFailsDoesNotTouchTheCount: a bucket that cannot be read says nothing about the
// store.
func TestABucketThatFailsDoesNotTouchTheCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCounting(t, 2, rolling(300, time.Second))
		c.ways[0].mu.Lock()
		c.ways[0].blocked = func(b store.BucketCost) error {
			if b.Key.Name == "bad" {
				return &store.Error{Store: "faulty", Op: "take", Err: errRefused, Fault: store.FaultBucket}
			}
			return nil
		}
		c.ways[0].mu.Unlock()
		for range 90 {
			if d := take(t, c.guards[0], c.plan, "bad", 1); !d.Fallback {
				t.Fatalf("the store decided: %+v", d)
			}
			time.Sleep(time.Second / 2)
		}
		if st := c.guards[0].State(); !st.MayShare || st.Instances != 2 {
			t.Errorf("got %+v, want 2 instances, and a share", st)
		}
	})
}

// renewing is a store whose renewals take a moment.
type renewing struct {
	store.Store
	renewed atomic.Int64
}

func (r *renewing) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	time.Sleep(20 * time.Millisecond)
	defer r.renewed.Add(1)
	return r.Store.Settle(ctx, batch, out)
}

// TestATakeDoesNotWaitForASlowCount longer than for the store, and not beyond its own deadline,
// also if the renewal fails and is tried again.
func TestATakeDoesNotWaitForASlowCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = time.Second
		g, plan := stalled(t, timeout)
		time.Sleep(time.Minute)
		for range 20 {
			for _, most := range []time.Duration{time.Hour, 100 * time.Millisecond} {
				ctx, cancel := context.WithTimeout(t.Context(), most)
				var out [1]store.Verdict
				began := time.Now()
				err := g.Take(ctx, []store.Take{{Buckets: []store.BucketCost{cost(plan, "k", 1)}}}, out[:])
				if took := time.Since(began); took > timeout || took >= most || err != nil || !out[0].Allowed ||
					out[0].Fallback {
					t.Errorf("with %v: %v, %+v, %v", most, took, out[0], err)
				}
				cancel()
			}
			time.Sleep(300 * time.Millisecond)
		}
	})
}

// stalled returns a guard whose process is counted, and whose store then answers no renewals.
func stalled(t *testing.T, timeout time.Duration) (*guard.Store, *store.Plan) {
	t.Helper()
	inner := &stalledCount{Store: memstore.New(nil)}
	g := guarded(t, inner, &guard.Options{CountInstances: true, CountInCalls: true, Timeout: timeout})
	plan := policy(t, drawgate.FallbackShare, rolling(300, time.Second))
	take(t, g, plan, "k", 1)
	inner.stalled.Store(true)
	return g, plan
}

// stalledCount is a store that does not answer renewals while stalled is set.
type stalledCount struct {
	store.Store
	stalled atomic.Bool
}

func (s *stalledCount) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	if s.stalled.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Store.Settle(ctx, batch, out)
}

// TestATakeWaitsUntilItsProcessIsCounted, if that is due: the process may be stopped when the take
// is answered. Other takes do not wait.
func TestATakeWaitsUntilItsProcessIsCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := &renewing{Store: memstore.New(nil)}
		g := guarded(t, inner, &guard.Options{CountInstances: true, CountInCalls: true})
		plan := policy(t, drawgate.FallbackShare, rolling(300, time.Second))
		for minute := range int64(3) {
			for range 5 {
				began := time.Now()
				take(t, g, plan, "k", 1)
				if n, took := inner.renewed.Load(), time.Since(began); n != minute || took > 20*time.Millisecond {
					t.Errorf("minute %d: %d renewals, %v", minute, n, took)
				}
			}
			if st := g.State(); st.MayShare != (minute == 2) {
				t.Errorf("minute %d: may share %v", minute, st.MayShare)
			}
			time.Sleep(time.Minute)
		}
	})
}

// A renewal that fails holds up the takes of one moment, and not those of every attempt after it:
// the table works, only the item of the slots does not.
func TestTakesDoNotWaitForRetriesOfTheCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, plan := stalled(t, time.Second)
		slow := 0
		for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); {
			began := time.Now()
			if d := take(t, g, plan, "k", 1); !d.Allowed || d.Fallback {
				t.Fatalf("got %+v", d)
			}
			if time.Since(began) > 0 {
				slow++
			}
			time.Sleep(200 * time.Millisecond)
		}
		if slow > 22 { // two a minute: it fails, and the next take comes before the store's time is over
			t.Errorf("%d takes waited within ten minutes, want at most two each minute", slow)
		}
	})
}
