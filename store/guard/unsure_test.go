package guard_test

import (
	"context"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
)

// TestARefusalStaysUnsure: a take that was carried out and not answered is made again from the
// queue. Until its cancellation is answered, each refusal says that the store may have granted it.
//
// req: A10
func TestARefusalStaysUnsure(t *testing.T) {
	t.Parallel()
	bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
		plan := policy(t, drawgate.FallbackClosed, rolling(10, time.Hour))
		inner.set(mute)
		for i := range 5 {
			if d := send(t, g, reserve(plan, "id", 1, 5)); d.Allowed || !d.Unsure {
				t.Errorf("try %d: allowed %v, unsure %v", i, d.Allowed, d.Unsure)
			}
			time.Sleep(300 * time.Millisecond)
		}
		inner.set(well)
		free(t, inner, plan, 10*time.Second)
		time.Sleep(10 * time.Second) // until no message can open it again
		if d := send(t, g, reserve(plan, "id", 1, 11)); d.Allowed || d.Unsure {
			t.Errorf("it was cancelled: allowed %v, unsure %v", d.Allowed, d.Unsure)
		}
	})
}

// lossy is a store that carries out the first take, and loses the answer a second later.
type lossy struct {
	store.Store

	takes     int
	meanwhile func()
}

func (s *lossy) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	err := s.Store.Take(ctx, batch, out)
	if s.takes++; s.takes > 1 || err != nil {
		return err
	}
	time.Sleep(time.Second)
	s.meanwhile()
	return &store.Error{Store: "lossy", Op: "take", Err: errRefused}
}

// TestWhatTheStoreRefusesMayBeUnsure: the first message of a take was carried out and not answered,
// and the second one is refused, because others have taken what came free since. The grant stays
// open until it is cancelled, and what it holds of other limits counts.
//
// req: A10
func TestWhatTheStoreRefusesMayBeUnsure(t *testing.T) {
	t.Parallel()
	opts := full(1)
	opts.Timeout = 3 * time.Second
	bubble(t, opts, func(t *testing.T, _ *guard.Store, inner *faulty) {
		plan := policy(t, drawgate.FallbackClosed, rolling(10, time.Second), rolling(100, time.Hour))
		s := &lossy{Store: inner, meanwhile: func() { take(t, inner, plan, "k", 10, 1) }}
		g := guarded(t, s, opts)
		if d := send(t, g, reserve(plan, "id", 1, 10, 10)); d.Allowed || d.Fallback || !d.Unsure {
			t.Errorf("allowed %v, by the fallback %v, unsure %v", d.Allowed, d.Fallback, d.Unsure)
		}
		if d := send(t, g, reserve(plan, "id2", 2, 10, 10)); d.Allowed || d.Unsure {
			t.Errorf("another one: allowed %v, unsure %v", d.Allowed, d.Unsure)
		}
	})
}

// TestWhatCountsTwiceIsTold: a reservation was given without asking the store. When that is back,
// it is told, and opens the hold, but its answer is lost, and it is away until after the hold's
// end: then it has the hold, as used, beside what was used, until that is cancelled. Where it no
// longer remembers it State tells that, and does not where it does, or never had it.
//
// req: A10
func TestWhatCountsTwiceIsTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		replay mood          // what becomes of the message
		down   time.Duration // afterwards
		used   int64         // by the store
		twice  uint64
	}{
		"carried out, and away for very long": {mute, 2 * time.Hour, 9, 1},
		"carried out, and away for long":      {mute, 50 * time.Second, 4, 0},
		"carried out, and away for a while":   {mute, 5 * time.Second, 4, 0},
		"never asked":                         {refuses, 0, 4, 0},
	} {
		bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, rolling(1000, 12*time.Hour))
			inner.set(refuses)
			for !g.State().Unavailable {
				take(t, g, plan, "other", 1)
			}
			if d := hold(t, g, "id", 30*time.Second, plan, "k", 5); !d.Allowed || d.Unsure {
				t.Fatalf("%s: allowed %v, unsure %v", name, d.Allowed, d.Unsure)
			}
			if c.down > 0 {
				inner.mu.Lock()
				inner.mood, inner.only = well, func(op string, _ bool) mood {
					if op == "take" {
						return c.replay
					}
					return well
				}
				inner.mu.Unlock()
				time.Sleep(3 * time.Second)
				inner.mu.Lock()
				inner.mood, inner.only = refuses, nil
				inner.mu.Unlock()
			}
			end(t, g, store.OpSettle, "id", plan, "k", 4)
			time.Sleep(c.down)
			inner.set(well)
			wantBack(t, g, time.Minute)
			time.Sleep(10 * time.Second)
			st := g.State()
			if n := used(t, inner.Store, plan, "k")[0]; n != c.used || st.Miscounted != c.twice || st.Undelivered {
				t.Errorf("%s: %d are used, %d counted twice, undelivered %v, want %d and %d", name, n, st.Miscounted, st.Undelivered,
					c.used, c.twice)
			}
		})
	}
}

// TestASettlementAfterTheHold: a call ended while the store was away, and its hold ended there
// before the store was back: it counts as it was used, or, where the store no longer remembers it,
// as it was granted at least. State tells that, unless all was used.
//
// req: A10
func TestASettlementAfterTheHold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		used  int64
		down  time.Duration
		want  int64
		wrong uint64
	}{
		{3, time.Minute, 3, 0},
		{5, time.Minute, 5, 0},
		{7, time.Minute, 7, 0},
		{3, 10 * time.Second, 3, 0},
		{3, 2 * time.Hour, 5, 1},
		{5, 2 * time.Hour, 5, 0},
		{7, 2 * time.Hour, 7, 1},
	} {
		bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, rolling(1000, 12*time.Hour))
			hold(t, g, "id", 30*time.Second, plan, "k", 5)
			inner.set(refuses)
			end(t, g, store.OpSettle, "id", plan, "k", c.used)
			time.Sleep(c.down)
			inner.set(well)
			wantBack(t, g, time.Minute)
			st := g.State()
			if n := used(t, inner.Store, plan, "k")[0]; n != c.want || st.Miscounted != c.wrong {
				t.Errorf("%+v: %d are used, %d counted wrongly", c, n, st.Miscounted)
			}
		})
	}
}

// replaying is a store whose answers to takes that were given elsewhere wait for something.
type replaying struct {
	store.Store

	before func()
}

func (s *replaying) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	err := s.Store.Take(ctx, batch, out)
	if err == nil && batch[0].Given {
		time.Sleep(5 * time.Millisecond)
		s.before()
	}
	return err
}

// TestExcessAfterARenewalThatWasNotTold: a reservation that was given here is renewed just before
// the store is told of it, and the store is away again before it can be told of the renewal. What
// is used beyond the estimate is charged, although the hold ended earlier there than here.
//
// req: A10
func TestExcessAfterARenewalThatWasNotTold(t *testing.T) {
	t.Parallel()
	bubble(t, full(1), func(t *testing.T, _ *guard.Store, inner *faulty) {
		plan := policy(t, 0, rolling(1000, time.Hour))
		s := &replaying{Store: inner}
		g := guarded(t, s, full(1))
		inner.set(refuses)
		for !g.State().Unavailable {
			take(t, g, plan, "other", 1)
		}
		hold(t, g, "id", 30*time.Second, plan, "k", 5)
		renew := func() {
			var out [1]store.Outcome
			st := store.Settlement{
				Op: store.OpRenew, ID: "id", Grant: grant("id"), Hold: 30 * time.Second,
				Buckets: []store.BucketCost{cost(plan, "k")},
			}
			if err := g.Settle(t.Context(), []store.Settlement{st}, out[:]); err != nil || out[0].Err != nil ||
				out[0].Gone {
				t.Error(err, out)
			}
		}
		s.before = func() {
			s.before = func() {} // later ones are charges
			renew()
			inner.set(refuses)
		}
		inner.set(well)
		for range 5 {
			time.Sleep(10 * time.Second)
			renew()
		}
		end(t, g, store.OpSettle, "id", plan, "k", 9)
		inner.set(well)
		wantBack(t, g, time.Minute)
		st := g.State()
		if n := used(t, inner.Store, plan, "k")[0]; n != 9 || st.Miscounted != 0 {
			t.Errorf("%d are used, want 9; %d counted wrongly", n, st.Miscounted)
		}
	})
}

// resettable is a store whose buckets can be reset while other calls fail.
type resettable struct {
	*faulty
	store.Resetter
}

// TestAResetLeavesTheOtherBucket: a reservation of two buckets was settled, which was not delivered
// yet when one of them was reset: the other one learns what was used.
//
// req: A10
func TestAResetLeavesTheOtherBucket(t *testing.T) {
	t.Parallel()
	opts := full(1)
	opts.Failures = 1000
	bubble(t, opts, func(t *testing.T, _ *guard.Store, inner *faulty) {
		plan := policy(t, 0, rolling(1000, time.Hour))
		g := guarded(t, resettable{inner, inner.Store.(store.Resetter)}, opts) //nolint:forcetypeassert // a memory store
		two := []store.BucketCost{cost(plan, "k", 5), cost(plan, "m", 5)}
		send(t, g, store.Take{ID: "id", Grant: 7, Hold: time.Hour, Buckets: two})
		inner.set(refuses)
		st := store.Settlement{
			Op: store.OpSettle, ID: "id", Grant: 7, Buckets: []store.BucketCost{cost(plan, "k", 3), cost(plan, "m", 3)},
		}
		if err := g.Settle(t.Context(), []store.Settlement{st}, make([]store.Outcome, 1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		if err := g.Full().(store.Resetter).Reset(t.Context(), []store.Key{two[0].Key}); err != nil { //nolint:forcetypeassert // as above
			t.Fatal(err)
		}
		back(t, g, inner)
		if k, m := used(t, inner, plan, "k")[0], used(t, inner, plan, "m")[0]; k != 0 || m != 3 {
			t.Errorf("%d and %d are used, want 0 and 3", k, m)
		}
	})
}
