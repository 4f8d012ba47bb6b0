package guard_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

// tardy answers the first n takes with an ID with ErrTooLate.
type tardy struct {
	*faulty
	n int
}

func (s *tardy) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if s.n > 0 && s.is(well) && batch[0].ID != "" {
		s.n--
		for i := range out {
			out[i] = store.Verdict{Fail: store.ErrTooLate}
		}
		return nil
	}
	return s.faulty.Take(ctx, batch, out)
}

// TestAReplayThatIsLateIsSentAgain: the slot that was given here is not given to anybody else.
func TestAReplayThatIsLateIsSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &tardy{faulty: &faulty{Store: memstore.New(nil)}}
		g := guarded(t, store, full(1))
		plan := policy(t, 0, slots(1))
		store.set(refuses)
		if d := send(t, g, reserve(plan, "id", 1, 1)); !d.Allowed {
			t.Fatal("refused while the store is unavailable")
		}
		store.n = 1
		store.set(well)
		wantBack(t, g, 10*time.Second)
		if d := send(t, g, reserve(plan, "other", 2, 1)); d.Allowed {
			t.Error("one slot has two holders")
		}
	})
}

// TestAPauseDoesNotKeepWhatWasGivenFromTheStore: a reservation of two buckets is pending when
// another process pauses one of them. The slot of the other bucket is not given again, and nothing
// stays pending.
func TestAPauseDoesNotKeepWhatWasGivenFromTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New(nil)
		mine, theirs := &faulty{Store: shared}, &faulty{Store: shared}
		g := guarded(t, mine, full(2))
		a, b := limiters(t, g)
		a2, b2 := limiters(t, guarded(t, theirs, full(2)))
		mine.set(refuses)
		both := drawgate.Request{
			Buckets: []drawgate.Ask{a.Ask("k"), b.Ask("k")},
			Hold:    drawgate.Hold{For: 24 * time.Hour},
		}
		if _, err := takeHeld(t.Context(), a, both); err != nil {
			t.Fatal(err)
		}
		if err := a2.Pause(t.Context(), "k", time.Hour, "the provider said 429"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		mine.set(well)
		time.Sleep(10 * time.Second)
		held := 0
		for range 4 {
			if _, err := takeHeld(t.Context(), b2, drawgate.Request{
				Buckets: []drawgate.Ask{b2.Ask("k")},
				Hold:    drawgate.Hold{For: time.Hour},
			}); err == nil {
				held++
			}
		}
		if s := g.State(); held != 1 || s.Pending != 0 {
			t.Errorf("%d more slots of 2 were given, and %d buckets are pending", held, s.Pending)
		}
	})
}

// TestAnIDThatACrashedProcessHasOpen: a process crashes with a slot, and another one is given a
// slot with the same ID during an outage. When the hold of the first is over, nobody else gets the
// slot of the second, who renews and settles it at the store.
//
// req: A10
func TestAnIDThatACrashedProcessHasOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New(nil)
		inner := &faulty{Store: shared}
		g, plan := guarded(t, inner, full(1)), policy(t, 0, slots(1))
		crashed, again := reserve(plan, "job", 1, 1), reserve(plan, "job", 2, 1)
		crashed.Hold, again.Hold = 20*time.Second, time.Minute
		if d := send(t, shared, crashed); !d.Allowed {
			t.Fatal("refused")
		}
		inner.set(refuses)
		if d := send(t, g, again); !d.Allowed {
			t.Fatal("refused while the store is unavailable")
		}
		inner.set(well)
		wantBack(t, g, 15*time.Second)
		time.Sleep(30 * time.Second)
		for _, s := range []store.Store{shared, g} {
			if d := send(t, s, reserve(plan, "other", 3, 1)); d.Allowed {
				t.Error("one slot has two holders")
			}
		}
		if d := send(t, g, again); !d.Allowed || !d.Replayed || d.Fallback {
			t.Errorf("sent again: %+v", d)
		}
		settle := func(op store.Op) store.Outcome {
			var out [1]store.Outcome
			st := store.Settlement{Op: op, ID: "job", Grant: 2, Buckets: []store.BucketCost{cost(plan, "k", 1)}}
			if op == store.OpRenew {
				st.Hold = time.Hour
			}
			if err := g.Settle(t.Context(), []store.Settlement{st}, out[:]); err != nil {
				t.Fatal(err)
			}
			return out[0]
		}
		if o := settle(store.OpRenew); o.Err != nil || o.Gone || time.Until(o.End) < 59*time.Minute {
			t.Errorf("renewed: %+v", o)
		}
		time.Sleep(time.Minute)
		if d := send(t, shared, reserve(plan, "other", 4, 1)); d.Allowed {
			t.Error("the renewed slot has two holders")
		}
		if o := settle(store.OpSettle); o.Err != nil || o.Gone {
			t.Errorf("settled: %+v", o)
		}
		wantBack(t, g, time.Second)
		if d := send(t, shared, reserve(plan, "other", 5, 1)); !d.Allowed {
			t.Error("the slot is not free after its settlement")
		}
	})
}

// limiters returns one of ten a minute and one of two slots.
func limiters(t *testing.T, g *guard.Store) (a, b *drawgate.Limiter) {
	t.Helper()
	a, err := drawgate.New(g, drawgate.PerMinute("a", 10), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	b, err = a.With(drawgate.Policy{Name: "b", Limits: []drawgate.Limit{{
		Name: "s", Kind: drawgate.Concurrency,
		Amount: 2,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

// TestALeaseIsNotRenewedWhilePaused: neither by the store nor by the guard.
func TestALeaseIsNotRenewedWhilePaused(t *testing.T) {
	t.Parallel()
	for _, m := range []mood{well, refuses} {
		bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
			t.Helper()
			a, _ := limiters(t, g)
			inner.set(m)
			r, err := takeHeld(t.Context(), a, drawgate.Request{
				Buckets: []drawgate.Ask{a.Ask("k", store.Cost{N: 10})},
				Hold:    drawgate.Hold{For: 10 * time.Second, Lease: true},
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Pause(t.Context(), "k", time.Hour, ""); err != nil {
				t.Fatal(err)
			}
			st := store.Settlement{
				Op: store.OpRenew, ID: r.ID(), Grant: r.Grant(), Hold: time.Hour,
				Buckets: []store.BucketCost{cost(a.Plan().Plan, "k")},
			}
			var out [1]store.Outcome
			if err := g.Settle(t.Context(), []store.Settlement{st}, out[:]); err != nil || !out[0].Kept ||
				out[0].Gone || time.Until(out[0].End) > 10*time.Second {
				t.Errorf("mood %v: %+v, %v", m, out[0], err)
			}
		})
	}
}
