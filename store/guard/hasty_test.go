package guard_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

// TestHastyCallersDoNotOpen: a limit with FallbackOpen does not admit a caller that gives a working
// store too little time. Over gRPC it is the client that chooses the deadline.
func TestHastyCallersDoNotOpen(t *testing.T) {
	t.Parallel()
	bubble(t, &guard.Options{Instances: 3, Start: drawgate.StartFull},
		func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, drawgate.FallbackOpen, rolling(30, time.Hour))
			drain(t, inner, plan, "k")
			inner.during = func() { time.Sleep(2 * time.Millisecond) }
			for range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
				var out [1]store.Verdict
				err := g.Take(ctx, []store.Take{{Buckets: []store.BucketCost{cost(plan, "k", 1)}}}, out[:])
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("%+v, %v", out[0].Allowed, err)
				}
			}
			if g.State().Unavailable {
				t.Error("the store is well")
			}
		})
}

// single is a store that reports the failure of each take individually, as Redis does.
type single struct{ *faulty }

func (s single) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if err := s.faulty.Take(ctx, batch, out); err != nil {
		for i := range out {
			out[i] = store.Verdict{Fail: err}
		}
	}
	return nil
}

// TestHastyCallersOfAStoreThatAnswersEach: they are not admitted either, whether they wait for the
// answer or for a delivery that comes first.
func TestHastyCallersOfAStoreThatAnswersEach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := &faulty{Store: memstore.New(nil)}
		g := guarded(t, single{inner}, &guard.Options{Instances: 3, Start: drawgate.StartFull})
		plan := policy(t, drawgate.FallbackOpen, rolling(3, time.Hour))
		hurry := func(what string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
			defer cancel()
			var out [1]store.Verdict
			err := g.Take(ctx, []store.Take{{Buckets: []store.BucketCost{cost(plan, "k", 1)}}}, out[:])
			if out[0].Allowed || err == nil && out[0].Fail == nil {
				t.Errorf("%s: allowed %v, %v, %v", what, out[0].Allowed, err, out[0].Fail)
			}
		}
		drain(t, inner, plan, "k")
		inner.mu.Lock()
		inner.during = func() { time.Sleep(2 * time.Millisecond) }
		inner.mu.Unlock()
		hurry("a store that is well")
		inner.mu.Lock()
		inner.during, inner.only = nil, func(_ string, plain bool) mood {
			if plain {
				return refuses
			}
			return stalls // for long enough that nothing is delivered
		}
		inner.mu.Unlock()
		if d := take(t, g, plan, "k", 1); !d.Allowed || !d.Fallback {
			t.Fatal("the limit does not step aside")
		}
		hurry("a store that has to be told first")
		inner.mu.Lock()
		inner.only = nil
		inner.mu.Unlock()
		wantBack(t, g, 3*time.Second)
	})
}

// longList is a store that answers takes at once, and has so much to list that it takes a while.
type longList struct{ *memstore.Store }

func (longList) List(ctx context.Context, _, _ string, _ func(store.Key) bool) error {
	select {
	case <-time.After(6 * time.Second):
		return nil
	case <-ctx.Done():
		return &store.Error{Store: "test", Op: "list", Err: ctx.Err(), Fault: store.FaultTransient}
	}
}

// TestLongListsDoNotOpen: a store that answers each take at once is not down because lists of its
// buckets take longer than those who ask for them have.
func TestLongListsDoNotOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := guarded(t, longList{memstore.New(nil)}, nil)
		s := g.Full()
		plan := policy(t, 0, rolling(1000, time.Hour))
		if v := take(t, g, plan, "k", 1); v.Fallback || !v.Allowed {
			t.Fatal(v)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { _ = s.(store.Lister).List(ctx, "", "p", func(store.Key) bool { return true }) })
		}
		for range 49 { // the store answers all the time
			time.Sleep(100 * time.Millisecond)
			if v := take(t, g, plan, "k", 1); v.Fallback {
				t.Fatal("a take is decided without the store")
			}
		}
		wg.Wait()
		if v := take(t, g, plan, "k", 1); v.Fallback || g.State().Unavailable {
			t.Errorf("after the lists the store counts as unavailable: %+v", g.State())
		}
	})
}

// TestPatientGuards: a guard that gives its store ten seconds gives them to those who wait, too: an
// answer after five is theirs, and a store that does not answer is left by its fallback. What has
// an id, and what settles it, is given as long.
func TestPatientGuards(t *testing.T) {
	t.Parallel()
	opts := &guard.Options{Instances: 1, Start: drawgate.StartFull, Timeout: 10 * time.Second}
	bubble(t, opts, func(t *testing.T, g *guard.Store, inner *faulty) {
		l, err := drawgate.New(g, policyOf(policy(t, drawgate.FallbackOpen, rolling(3, time.Hour))), nil)
		if err != nil {
			t.Fatal(err)
		}
		inner.mu.Lock()
		inner.during = func() { time.Sleep(5 * time.Second) }
		inner.mu.Unlock()
		began := time.Now()
		if d, err := l.Wait(t.Context(), "k"); err != nil || d.Fallback || time.Since(began) != 5*time.Second {
			t.Errorf("a slow store: fallback %v, %v, after %v", d.Fallback, err, time.Since(began))
		}
		res, err := l.Reserve(t.Context(), "k", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		inner.mu.Lock()
		inner.during = nil
		inner.mu.Unlock()
		inner.set(stalls)
		began = time.Now()
		if d, err := l.Wait(t.Context(), "k"); err != nil || !d.Fallback || time.Since(began) != 10*time.Second {
			t.Errorf("no answer: fallback %v, %v, after %v", d.Fallback, err, time.Since(began))
		}
	})
}

// cut is a store that loses the answer to its first take after a while.
type cut struct {
	store.Store
	takes atomic.Int32 // but for those by which it is told what a fallback granted
}

func (c *cut) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	err := c.Store.Take(ctx, batch, out)
	if batch[0].Given || c.takes.Add(1) > 1 {
		return err
	}
	time.Sleep(4 * time.Second)
	clear(out)
	return &store.Error{Store: "cut", Op: "take", Err: errRefused}
}

// TestPatientGuardsDoNotHoldTwice: a take is not sent again when the hold may be over that the
// store has of it. What the fallback grants then counts once.
func TestPatientGuardsDoNotHoldTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := &cut{Store: memstore.New(nil)}
		g := guarded(t, inner, &guard.Options{Instances: 1, Start: drawgate.StartFull, Timeout: 10 * time.Second})
		l, err := drawgate.New(g, policyOf(policy(t, drawgate.FallbackShare, rolling(10, time.Hour))), nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := l.Reserve(t.Context(), "k", 3*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if n := inner.takes.Load(); n != 1 || !res.Decision.Fallback {
			t.Errorf("sent %d times, fallback %v", n, res.Decision.Fallback)
		}
		if err := res.Settle(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if st, err := l.Status(t.Context(), "k"); err != nil || st.States[0].Used != 1 || st.Open != 0 {
			t.Errorf("%+v, %v", st.States, err)
		}
	})
}
