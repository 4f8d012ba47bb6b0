package instances_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/instances"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

// wire is a process's way to the store, which can be cut.
type wire struct {
	store.Store

	cut    atomic.Bool
	stalls atomic.Bool  // does not answer
	blind  atomic.Bool  // does not answer how many are open
	slow   atomic.Int64 // is silent for so long, whatever the deadline is, in ns
	calls  atomic.Int64
}

func (w *wire) pass(ctx context.Context) error {
	w.calls.Add(1)
	time.Sleep(time.Duration(w.slow.Load()))
	if w.stalls.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if w.cut.Load() {
		return errors.New("cut")
	}
	return nil
}

func (w *wire) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if err := w.pass(ctx); err != nil {
		return err
	}
	return w.Store.Take(ctx, batch, out)
}

func (w *wire) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	if err := w.pass(ctx); err != nil {
		return err
	}
	return w.Store.Settle(ctx, batch, out)
}

func (w *wire) Peek(ctx context.Context, b []store.BucketCost, priority int8, out []store.State) error {
	if err := w.pass(ctx); err != nil {
		return err
	}
	if w.blind.Load() {
		return errors.New("blind")
	}
	return w.Store.Peek(ctx, b, priority, out)
}

// start starts a counter over a way of its own to a store.
func start(t *testing.T, st store.Store, opts *instances.Options) (*instances.Counter, *wire) {
	t.Helper()
	w := &wire{Store: st}
	c, err := instances.Start(func() store.Store { return w }, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	synctest.Wait()
	return c, w
}

// reset does what an operator's reset does, or a server that loses the bucket.
func reset(t *testing.T, st store.Store) {
	t.Helper()
	if err := st.(store.Resetter).Reset(t.Context(), []store.Key{{Policy: instances.Policy, Name: "all"}}); err != nil {
		t.Fatal(err)
	}
}

func check(t *testing.T, c *instances.Counter, n int, ready bool) {
	t.Helper()
	if got, ok := c.Share(); got != n || ok != ready {
		t.Errorf("%d instances, ready %v, want %d, %v", got, ok, n, ready)
	}
}

// TestCountersCountEachOther, know it after two renewals, and forget who has gone five minutes
// later.
func TestCountersCountEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(nil)
		a, _ := start(t, st, nil)
		b, _ := start(t, st, nil)
		c, _ := start(t, st, &instances.Options{AtLeast: 5})
		check(t, a, 1, false)
		check(t, b, 2, false)
		check(t, c, 5, false)
		time.Sleep(instances.Steady.Every)
		synctest.Wait()
		check(t, a, 3, false)
		time.Sleep(instances.Steady.Every)
		synctest.Wait()
		for _, it := range []*instances.Counter{a, b} {
			check(t, it, 3, true)
		}
		check(t, c, 5, true)
		c.Close()
		time.Sleep(instances.Memory - instances.Steady.Every)
		synctest.Wait()
		check(t, a, 3, true)
		time.Sleep(instances.Steady.Every)
		synctest.Wait()
		check(t, a, 2, true)
		a.Close()
		b.Close()
		var out [1]store.State
		plan, err := drawgate.Policy{
			Name:   instances.Policy,
			Limits: []drawgate.Limit{{Name: "instances", Kind: drawgate.Concurrency, Amount: 1}},
		}.Compile()
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Peek(t.Context(), []store.BucketCost{{
			Key:  store.Key{Policy: instances.Policy, Name: "all"},
			Plan: plan.Plan,
		}}, 0, out[:]); err != nil || out[0].Open != 0 {
			t.Errorf("%d slots are open after all have closed (%v), want none", out[0].Open, err)
		}
	})
}

// TestACounterThatIsCutOff keeps its number, tries every two seconds, and renews its slot when the
// store is back. One that starts meanwhile has no share.
//
// req: A10, B11
func TestACounterThatIsCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(nil)
		a, wa := start(t, st, nil)
		start(t, st, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		wa.cut.Store(true)
		a.Unavailable()
		check(t, a, 2, true)
		late := &wire{Store: st}
		late.cut.Store(true)
		c, err := instances.Start(func() store.Store { return late }, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		before := wa.calls.Load()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := wa.calls.Load() - before; n < 8 || n > 11 {
			t.Errorf("%d attempts in 20 s, want one each 2 s", n)
		}
		check(t, c, 1, false)
		check(t, a, 2, true)
		wa.cut.Store(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		wa.cut.Store(true)
		check(t, a, 2, true)
	})
}

// TestASlotThatIsLost: whose slot was reset, or forgotten by the store, begins anew.
func TestASlotThatIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		a, wa := start(t, store, nil)
		b, _ := start(t, store, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		reset(t, store)
		check(t, a, 2, true) // it does not know yet
		time.Sleep(instances.Steady.Every)
		synctest.Wait()
		check(t, a, 2, false)
		check(t, b, 2, false)
		time.Sleep(2 * instances.Steady.Every)
		synctest.Wait()
		check(t, a, 2, true)

		// The count fails after the slot was opened anew: that it is a new one is not forgotten.
		reset(t, store)
		wa.blind.Store(true)
		time.Sleep(instances.Steady.Every)
		synctest.Wait()
		wa.blind.Store(false)
		time.Sleep(instances.Retry)
		synctest.Wait()
		check(t, a, 2, false)
	})
}

// TestAStoreThatDoesNotAnswer is unavailable after two seconds, and keeps nobody from closing.
func TestAStoreThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		a, wa := start(t, store, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		wa.stalls.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		check(t, a, 1, true)
		at := time.Now()
		a.Close()
		if took := time.Since(at); took != 0 {
			t.Errorf("closing took %v", took)
		}
	})
}

// TestCloseGivesBackASlotThatIsBeingRenewed: an attempt that ends with the counter says nothing
// about the store.
func TestCloseGivesBackASlotThatIsBeingRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		a, _ := start(t, store, nil)
		b, wb := start(t, store, nil)
		time.Sleep(instances.Steady.Every - time.Second)
		wb.stalls.Store(true)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		go func() {
			time.Sleep(time.Millisecond)
			wb.stalls.Store(false)
		}()
		time.Sleep(500 * time.Millisecond) // it is over by then
		b.Close()
		time.Sleep(2 * instances.Memory)
		synctest.Wait()
		check(t, a, 1, true)
	})
}

// TestMoreProcessesThanCanBeCounted: a process for which there is no slot says so once, admits no
// share, and does not try more often than others.
func TestMoreProcessesThanCanBeCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reports atomic.Int64
		w := &wire{Store: full{memstore.New(nil)}}
		c, err := instances.Start(func() store.Store { return w },
			&instances.Options{Report: func(error) { reports.Add(1) }})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		time.Sleep(100 * time.Second)
		synctest.Wait()
		if n := w.calls.Load(); reports.Load() != 1 || n != 6 {
			t.Errorf("told %d times after %d attempts, want once after 6", reports.Load(), n)
		}
		check(t, c, 1, false)
	})
}

// full is a store in which as many reservations are open as may be.
type full struct{ store.Store }

func (full) Take(_ context.Context, _ []store.Take, out []store.Verdict) error {
	out[0] = store.Verdict{Fail: store.ErrTooManyOpen}
	return nil
}

// TestCountedInCalls: a call renews the slot if that is due, which is once a minute at most, and
// waits for it. Two minutes later the process may admit a share.
func TestCountedInCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		c, w := start(t, store, &instances.Options{InCalls: true})
		began, first := time.Now(), w.calls.Load()
		for time.Since(began) < 10*time.Minute {
			due := time.Since(began) >= time.Minute
			if ended := c.Call(); ended != nil {
				<-ended
				if !due {
					t.Errorf("after %v: renewed already", time.Since(began))
				}
			}
			check(t, c, 1, time.Since(began) >= 2*time.Minute)
			time.Sleep(7500 * time.Millisecond)
		}
		synctest.Wait()
		if n := (w.calls.Load() - first) / 2; n < 9 || n > 10 { // each renews and counts
			t.Errorf("%d attempts in ten minutes, want one each minute", n)
		}
	})
}

// TestACallAfterAStop begins a new attempt, and does not take the end of one that began before for
// it.
func TestACallAfterAStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, w := start(t, memstore.New(nil), &instances.Options{InCalls: true})
		w.slow.Store(int64(time.Minute)) // as if the process were stopped for so long
		time.Sleep(time.Minute)
		synctest.Wait()
		time.Sleep(time.Minute)
		attempts := 0
		w.slow.Store(0)
		for ended := c.Call(); ended != nil; ended = c.Call() {
			<-ended
			attempts++
		}
		if attempts == 0 || attempts > 2 {
			t.Errorf("waited for %d attempts, want one or two", attempts)
		}
	})
}
