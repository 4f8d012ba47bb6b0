package guard_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
)

// TestABatchOfBoth: one batch settles what the guard gave and what the store gave. Each gets its
// own answer.
func TestABatchOfBoth(t *testing.T) {
	t.Parallel()
	bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
		plan := policy(t, 0, rolling(100, time.Hour))
		hold(t, g, "there", time.Hour, plan, "k", 10)
		hold(t, g, "there too", time.Hour, plan, "k", 10)
		inner.set(refuses)
		hold(t, g, "here", time.Hour, plan, "k", 10)
		one := []store.BucketCost{cost(plan, "k", 1)}
		batch := []store.Settlement{
			{Op: store.OpSettle, ID: "here", Grant: grant("here"), Buckets: one},
			{Op: store.OpSettle, ID: "there", Grant: grant("there"), Buckets: one},
			{Op: store.OpRenew, ID: "there too", Grant: grant("there too"), Buckets: one, Hold: time.Hour},
			{Op: store.OpCharge, Buckets: one, At: time.Now()},
			{Op: store.OpCancel, ID: "here", Grant: grant("here"), Buckets: one},
		}
		out := make([]store.Outcome, len(batch))
		if err := g.Settle(t.Context(), batch, out); err != nil {
			t.Fatal(err)
		}
		for i, want := range []struct{ unavailable, gone bool }{{}, {}, {unavailable: true}, {}, {gone: true}} {
			if errors.Is(out[i].Err, store.ErrStoreUnavailable) != want.unavailable || out[i].Gone != want.gone {
				t.Errorf("settlement %d: %+v", i, out[i])
			}
		}
		back(t, g, inner)
		if got := used(t, inner, plan, "k"); !slices.Equal(got, []int64{13}) {
			t.Errorf("the store knows of %v, want 1, 1, 10 and 1", got)
		}
	})
}

// TestAnIDThatIsAnothersByNow: the store has meanwhile used the ID for something else. What was
// given here is charged, and settling it charges the difference.
func TestAnIDThatIsAnothersByNow(t *testing.T) {
	t.Parallel()
	bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
		plan := policy(t, 0, rolling(100, time.Hour))
		inner.set(refuses)
		hold(t, g, "id", time.Hour, plan, "k", 10)
		hold(t, g, "other", time.Hour, plan, "k", 10)
		for _, id := range []string{"id", "other"} {
			hold(t, inner.Store, id, time.Hour, plan, "k", 7)
		}
		back(t, g, inner)
		if got := used(t, inner, plan, "k")[0]; got != 34 {
			t.Errorf("%d used, want 20 charged and 14 of the other", got)
		}
		for i, c := range []struct {
			id      string
			n, want int64
		}{{"id", 13, 37}, {"other", 2, 37}} { // what is charged is not given back
			if o := end(t, g, store.OpSettle, c.id, plan, "k", c.n); o.Err != nil || o.Gone {
				t.Errorf("settlement %d: %+v", i, o)
			}
			wantBack(t, g, time.Second)
			if got := used(t, inner, plan, "k")[0]; got != c.want {
				t.Errorf("settlement %d: %d used, want %d", i, got, c.want)
			}
		}
	})
}

// TestChargeThatOneBucketRefuses: the charge is tried again without delaying others. A charge that
// the store will never accept is dropped and logged.
func TestChargeThatOneBucketRefuses(t *testing.T) {
	t.Parallel()
	for _, never := range []bool{false, true} {
		bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, rolling(100, time.Hour))
			hold(t, g, "there", time.Hour, plan, "bad", 10)
			inner.set(refuses)
			hold(t, g, "here", time.Hour, plan, "bad", 10)
			take(t, g, plan, "bad", 10)
			take(t, g, plan, "good", 10)
			end(t, g, store.OpSettle, "there", plan, "bad", 1)
			err := error(&store.Error{
				Store: "faulty", Op: "take", Err: errors.New("WRONGTYPE"),
				Fault: store.FaultBucket,
			})
			if never {
				err = fmt.Errorf("no: %w", store.ErrInvalid)
			}
			inner.mu.Lock()
			inner.blocked = func(b store.BucketCost) error {
				if b.Key.Name == "bad" {
					return err
				}
				return nil
			}
			inner.mu.Unlock()
			inner.set(well)
			time.Sleep(5 * time.Second)
			if d := take(t, g, plan, "good", 1); d.Fallback || d.First.Limits[0].Remaining != 89 {
				t.Errorf("another bucket: fallback %v, %d left", d.Fallback, d.First.Limits[0].Remaining)
			}
			if st := g.State(); st.Unavailable || (st.Pending == 0) != never {
				t.Errorf("never accepted %v: %+v", never, st)
			}
			inner.mu.Lock()
			inner.blocked = nil
			inner.mu.Unlock()
			wantBack(t, g, 5*time.Second)
		})
	}
}

// TestASettlementThatFailsOnceIsDelivered at once, although the store counts as available and
// nobody calls again.
func TestASettlementThatFailsOnceIsDelivered(t *testing.T) {
	t.Parallel()
	bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
		plan := policy(t, 0, rolling(100, time.Hour))
		hold(t, g, "id", time.Hour, plan, "k", 10)
		synctest.Wait() // until the guard has nothing to deliver
		inner.set(refuses)
		if o := end(t, g, store.OpSettle, "id", plan, "k", 4); o.Err != nil {
			t.Fatal(o.Err)
		}
		inner.set(well)
		time.Sleep(5 * time.Second)
		if n := used(t, inner, plan, "k"); n[0] != 4 || g.State().Pending != 0 {
			t.Errorf("%d units used, %+v, want 4 and nothing pending", n[0], g.State())
		}
	})
}

// TestATakeThatWasDeliveredIsNotSentAgain, although another one of the same call failed.
func TestATakeThatWasDeliveredIsNotSentAgain(t *testing.T) {
	t.Parallel()
	bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
		plan := policy(t, 0, rolling(100, time.Hour))
		inner.set(refuses)
		hold(t, g, "one", time.Hour, plan, "good", 1)
		hold(t, g, "two", time.Hour, plan, "bad", 1)
		sent := map[string]int{}
		inner.mu.Lock()
		inner.blocked = func(b store.BucketCost) error {
			if sent[b.Key.Name]++; b.Key.Name == "bad" {
				return &store.Error{Store: "faulty", Op: "take", Err: errRefused, Fault: store.FaultTransient}
			}
			return nil
		}
		inner.mu.Unlock()
		inner.set(well)
		time.Sleep(10 * time.Second)
		inner.mu.Lock()
		defer inner.mu.Unlock()
		if sent["good"] != 1 || sent["bad"] < 2 {
			t.Errorf("sent %v times, want the good one once and the bad one again", sent)
		}
	})
}

// TestWhatNoLimiterSends: takes, settlements and looks that no store can decide are refused each
// for itself, and the others of their batch are decided as if they were alone, whether the store is
// available or not.
func TestWhatNoLimiterSends(t *testing.T) {
	t.Parallel()
	for _, m := range []mood{well, refuses, stalls} {
		bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
			t.Helper()
			plan, slot := policy(t, 0, rolling(10, time.Hour)), policy(t, 0, slots(1))
			b := cost(plan, "k", 1)
			send(t, g, store.Take{ID: "mine", Grant: 1, Hold: time.Hour, Buckets: []store.BucketCost{b}})
			inner.set(m)
			wrong := map[string]store.Take{
				"a bucket twice": {Buckets: []store.BucketCost{b, b}}, "no bucket": {},
				"an id without a hold": {ID: "id", Buckets: []store.BucketCost{b}},
				"a hold without an id": {Hold: time.Hour, Buckets: []store.BucketCost{b}},
				"a priority of 10":     {Priority: 10, Buckets: []store.BucketCost{b}},
				"less than nothing":    {Buckets: []store.BucketCost{cost(plan, "k", -9)}},
				"slots, no hold":       {Buckets: []store.BucketCost{cost(slot, "k", 1)}},
			}
			batch := []store.Take{{Buckets: []store.BucketCost{cost(plan, "k", 2)}}}
			names := []string{"right"}
			for what, tk := range wrong {
				batch, names = append(batch, tk), append(names, what)
			}
			batch, names = append(batch, batch[0]), append(names, "right")
			out := make([]store.Verdict, len(batch))
			if err := g.Take(t.Context(), batch, out); err != nil {
				t.Fatal(err)
			}
			for i, d := range out {
				switch {
				case names[i] == "right":
					if !d.Allowed || d.Fallback == (m == well) {
						t.Errorf("mood %d: the others of the batch: allowed %v, fallback %v, %v", m, d.Allowed,
							d.Fallback, d.Fail)
					}
				case d.Allowed || !errors.Is(d.Fail, store.ErrInvalid) && !errors.Is(d.Fail, store.ErrNeedsReserve):
					t.Errorf("mood %d: %s: allowed %v, %v", m, names[i], d.Allowed, d.Fail)
				}
			}
			sets := []store.Settlement{
				{Op: store.OpSettle, ID: "mine", Grant: 1, Buckets: []store.BucketCost{cost(plan, "k", -9)}},
				{Op: store.OpCharge, At: time.Now(), Buckets: []store.BucketCost{cost(plan, "k", -9)}},
				{Op: store.OpPause, Hold: -time.Hour, Buckets: []store.BucketCost{b}},
				{Op: 77, Buckets: []store.BucketCost{b}},
				{Op: store.OpSettle, ID: "mine", Grant: 1, Buckets: []store.BucketCost{cost(plan, "k", 3)}},
			}
			outs := make([]store.Outcome, len(sets))
			if err := g.Settle(t.Context(), sets, outs); err != nil {
				t.Fatal(err)
			}
			for i, o := range outs[:4] {
				if !errors.Is(o.Err, store.ErrInvalid) {
					t.Errorf("mood %d: settlement %d: %v", m, i, o.Err)
				}
			}
			if outs[4].Err != nil || outs[4].Gone {
				t.Errorf("mood %d: the last settlement: %+v", m, outs[4])
			}
			looks := make([]store.State, 3)
			if err := g.Peek(t.Context(), []store.BucketCost{{Key: b.Key}, cost(plan, "k", -5), b}, 0,
				looks); err != nil {
				t.Fatal(err)
			}
			if !errors.Is(looks[0].Fail, store.ErrInvalid) || !errors.Is(looks[1].Fail, store.ErrInvalid) ||
				looks[2].Fail != nil {
				t.Errorf("mood %d: looks: %v, %v, %v", m, looks[0].Fail, looks[1].Fail, looks[2].Fail)
			}
			if d := send(t, g, store.Take{Buckets: []store.BucketCost{cost(plan, "k", 4)}}); d.Allowed {
				t.Errorf("mood %d: 3, 2 and 2 are used of 10, and 4 more were allowed", m)
			}
			if d := send(t, g, store.Take{Buckets: []store.BucketCost{cost(plan, "k", 3)}}); !d.Allowed {
				t.Errorf("mood %d: 3, 2 and 2 are used of 10, and 3 more were refused", m)
			}
			inner.set(well)
		})
	}
}
