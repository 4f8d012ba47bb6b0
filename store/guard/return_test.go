package guard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

func full(n int) *guard.Options { return &guard.Options{Instances: n, Start: drawgate.StartFull} }

// back makes the store answer again and waits until nothing is pending.
func back(t *testing.T, g *guard.Store, store *faulty) {
	t.Helper()
	store.set(well)
	wantBack(t, g, 2*time.Second)
}

// TestReturnWithinTwoSeconds, however long the outage was.
//
// req: A10, D10, E7
func TestReturnWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	for _, outage := range []time.Duration{time.Millisecond, time.Second, time.Minute, time.Hour} {
		bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, rolling(1000, 24*time.Hour))
			inner.set(stalls)
			for i := range 5 {
				take(t, g, plan, fmt.Sprint(i), 1)
			}
			if st := g.State(); !st.Unavailable || st.Err == nil || !errors.Is(st.Err, store.ErrStoreUnavailable) ||
				st.Decided != 5 || st.Pending != 5 {
				t.Errorf("%+v", st)
			}
			time.Sleep(outage)
			back(t, g, inner)
			for i := range 5 {
				if d := take(t, g, plan, fmt.Sprint(i), 1); d.Fallback || d.First.Limits[0].Remaining != 998 {
					t.Errorf("bucket %d after %v: fallback %v, %d left, want 998", i, outage, d.Fallback,
						d.First.Limits[0].Remaining)
				}
			}
		})
	}
}

// TestChargedBeforeTheNextTake: the store never decides about a bucket without knowing what was
// admitted of it here, even if it is asked at once.
func TestChargedBeforeTheNextTake(t *testing.T) {
	t.Parallel()
	bubble(t, full(1), func(t *testing.T, g *guard.Store, store *faulty) {
		plan := policy(t, 0, rolling(3, time.Hour))
		const keys = 2000 // more than fit into one delivery
		store.set(refuses)
		for i := range keys {
			for range 3 {
				if d := take(t, g, plan, fmt.Sprint(i), 1); !d.Allowed {
					t.Fatal("refused")
				}
			}
		}
		store.during = func() { time.Sleep(time.Millisecond) }
		store.set(well)
		for g.State().Unavailable {
			time.Sleep(time.Millisecond)
		}
		delivered := 0
		for i := range keys {
			d := take(t, g, plan, fmt.Sprint(keys-1-i), 1)
			if d.Allowed {
				t.Fatalf("bucket %d: a fourth unit of three, fallback %v", i, d.Fallback)
			}
			if !d.Fallback {
				delivered++
			}
		}
		if delivered != keys {
			t.Errorf("%d of %d were decided by the store, which was there", delivered, keys)
		}
	})
}

// TestOnlyWhatStillCountsIsCharged: units that left their window, or drained, during the outage are
// not charged.
//
// req: D10
func TestOnlyWhatStillCountsIsCharged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit drawgate.Limit
		each  time.Duration
		takes int
		want  int64
	}{
		{rolling(10, time.Minute), 10 * time.Second, 60, 6},  // those of the last minute
		{leaky(10, time.Minute, 5), 10 * time.Second, 60, 1}, // 10 a minute drain, 6 come
		// those of the new day, and the first one: it was sent on the old one, and not answered
		{daily(1000), time.Minute, 20, 11},
	} {
		bubble(t, full(1), func(t *testing.T, g *guard.Store, store *faulty) {
			time.Sleep(24*time.Hour - 10*time.Minute) // to ten minutes before midnight
			plan := policy(t, 0, c.limit)
			store.set(refuses)
			for i := range c.takes {
				if !take(t, g, plan, "k", 1).Allowed {
					t.Fatalf("take %d is refused", i)
				}
				time.Sleep(c.each)
			}
			back(t, g, store)
			if got := used(t, store, plan, "k")[0]; got > c.want || got < c.want-1 {
				t.Errorf("%v: %d charged after %d takes, want %d", c.limit.Kind, got, c.takes, c.want)
			}
		})
	}
}

// TestReservationsGivenHere: they behave as in a store.
func TestReservationsGivenHere(t *testing.T) {
	t.Parallel()
	bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
		plan := policy(t, 0, rolling(10, time.Hour), slots(3))
		inner.set(refuses)
		for i, want := range []bool{true, true, true, false} {
			d := hold(t, g, fmt.Sprint("id", i), time.Minute, plan, "k", 2, 1)
			if d.Allowed != want || !d.Fallback {
				t.Errorf("reservation %d: allowed %v, fallback %v", i, d.Allowed, d.Fallback)
			}
			if want && (d.HoldEnd().Sub(d.At()) != time.Minute || d.Granted(0) != store.Amounts{2, 1}) {
				t.Errorf("reservation %d: until %v, %v granted", i, d.HoldEnd(), d.Granted(0))
			}
		}
		if d := hold(t, g, "id0", time.Minute, plan, "k", 2, 1); !d.Replayed || !d.Allowed {
			t.Error("the same again is not answered again")
		}
		var out [1]store.Verdict
		other := store.Take{
			ID: "id0", Grant: grant("id0"), Hold: time.Minute,
			Buckets: []store.BucketCost{cost(plan, "k", 1, 1)},
		}
		if err := g.Take(t.Context(), []store.Take{other}, out[:]); err != nil ||
			!errors.Is(out[0].Fail, store.ErrIDReused) {
			t.Errorf("the id with another content: %v, %v", err, out[0].Fail)
		}
		if o := end(t, g, store.OpSettle, "id0", plan, "k", 1, 1); o.Err != nil || o.Gone {
			t.Errorf("settle: %+v", o)
		}
		if o := end(t, g, store.OpCancel, "id1", plan, "k"); o.Err != nil || o.Gone {
			t.Errorf("cancel: %+v", o)
		}
		if o := end(t, g, store.OpRenew, "id2", plan, "k"); o.Err != nil || o.Gone ||
			time.Until(o.End) < time.Hour-time.Millisecond {
			t.Errorf("renew: %+v", o)
		}
		for _, op := range []store.Op{store.OpSettle, store.OpCancel} {
			if o := end(t, g, op, "id0", plan, "k", 0, 0); !o.Gone {
				t.Errorf("%v of what is settled: %+v", op, o)
			}
		}
		if got := used(t, g, plan, "k"); !slices.Equal(got, []int64{3, 1}) {
			t.Errorf("used %v, want 1 settled and 2 open, one slot", got)
		}
		hold(t, g, "short", time.Second, plan, "k", 1, 1)
		time.Sleep(2 * time.Second)
		if o := end(t, g, store.OpSettle, "short", plan, "k", 0, 0); !o.Gone {
			t.Errorf("a hold that is over: %+v", o)
		}
		back(t, g, inner)
		if got := used(t, inner, plan, "k"); !slices.Equal(got, []int64{4, 1}) {
			t.Errorf("the store knows of %v, want 4 and the slot that is open", got)
		}
		// The store has it now, with its renewed end.
		if d := hold(t, g, "id2", time.Minute, plan, "k", 2, 1); !d.Replayed || d.Fallback {
			t.Errorf("replayed %v, fallback %v", d.Replayed, d.Fallback)
		}
		time.Sleep(30 * time.Minute)
		if o := end(t, g, store.OpSettle, "id2", plan, "k", 0, 1); o.Err != nil || o.Gone {
			t.Errorf("settled after the return: %+v", o)
		}
		wantBack(t, g, time.Second)
		if o := end(t, g, store.OpSettle, "id2", plan, "k", 2, 1); !o.Gone {
			t.Errorf("settled again: %+v", o)
		}
		if got := used(t, inner, plan, "k"); !slices.Equal(got, []int64{2, 0}) {
			t.Errorf("the store knows of %v, want 2", got)
		}
	})
}

// TestSlotsGivenHereCountInTheStore, even if others have meanwhile taken all of them.
func TestSlotsGivenHereCountInTheStore(t *testing.T) {
	t.Parallel()
	bubble(t, full(2), func(t *testing.T, g *guard.Store, inner *faulty) {
		plan := policy(t, 0, slots(4))
		inner.set(refuses)
		for i := range 2 {
			hold(t, g, fmt.Sprint("here", i), time.Hour, plan, "k", 1)
		}
		for i := range 4 { // another process
			if d := hold(t, inner.Store, fmt.Sprint("there", i), time.Hour, plan, "k", 1); !d.Allowed {
				t.Fatal("refused")
			}
		}
		back(t, g, inner)
		if got := used(t, inner, plan, "k"); got[0] != 6 {
			t.Errorf("%d slots in the store, want 6", got[0])
		}
		for i := range 2 {
			end(t, inner.Store, store.OpCancel, fmt.Sprint("there", i), plan, "k")
		}
		if hold(t, g, "more", time.Hour, plan, "k", 1).Allowed {
			t.Error("a fifth slot")
		}
		end(t, g, store.OpCancel, "here0", plan, "k")
		wantBack(t, g, time.Second)
		if !hold(t, g, "more", time.Hour, plan, "k", 1).Allowed {
			t.Error("the slot did not come free")
		}
	})
}

// TestSettledDuringAnOutage: settlements of what the store granted are kept, and delivered once.
// What only the store can answer is an error.
func TestSettledDuringAnOutage(t *testing.T) {
	t.Parallel()
	for _, m := range []mood{refuses, stalls, mute} {
		bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, rolling(10, time.Hour), slots(5))
			for i := range 4 {
				hold(t, g, fmt.Sprint("id", i), time.Minute, plan, "k", 2, 1)
			}
			end(t, inner, store.OpCancel, "id3", plan, "k") // by somebody else
			inner.set(m)
			for i, op := range []store.Op{store.OpSettle, store.OpCancel} {
				if o := end(t, g, op, fmt.Sprint("id", i), plan, "k", 1, 1); o.Err != nil || o.Gone {
					t.Errorf("%v: %+v", op, o)
				}
				if o := end(t, g, op, fmt.Sprint("id", i), plan, "k", 0, 0); !o.Gone {
					t.Errorf("%v again: %+v", op, o)
				}
			}
			for what, o := range map[string]store.Outcome{
				"renew":                    end(t, g, store.OpRenew, "id2", plan, "k"),
				"an id of another process": end(t, g, store.OpSettle, "foreign", plan, "k"),
			} {
				if !errors.Is(o.Err, store.ErrStoreUnavailable) {
					t.Errorf("%s: %+v, want the store's failure", what, o)
				}
			}
			if got := used(t, g, plan, "k"); !slices.Equal(got, []int64{5, 2}) {
				t.Errorf("here %v are used, want 1 and two open ones", got)
			}
			if o := end(t, g, store.OpCharge, "", plan, "k", 3); o.Err != nil {
				t.Errorf("charge: %+v", o)
			}
			back(t, g, inner)
			want := []int64{6, 1} // 1 settled, 2 open, 3 charged
			if m == mute {
				want = used(t, inner, plan, "k") // the charge has no ID: see TestALostAnswer
				if want[0] < 6 || want[0]%3 != 0 || want[1] != 1 {
					t.Errorf("the store knows of %v", want)
				}
			}
			if got := used(t, inner, plan, "k"); !slices.Equal(got, want) {
				t.Errorf("the store knows of %v, want %v", got, want)
			}
		})
	}
}

// TestSettledDuringAnOutageByAnotherPlan: the caller may settle with a newly compiled plan, with
// other limits and amounts. Its amounts still count.
func TestSettledDuringAnOutageByAnotherPlan(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{9, 1} {
		for _, given := range []mood{well, refuses} { // granted by the store, or here
			bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
				limits := []drawgate.Limit{rolling(10, time.Hour), rolling(99, time.Minute)}
				limits[0].Name, limits[1].Name = "hour", "minute"
				plan := compile(t, drawgate.Policy{Name: "p", Limits: limits})
				again := compile(t, drawgate.Policy{Name: "p", Limits: []drawgate.Limit{limits[1], limits[0]}})
				inner.set(given)
				if !hold(t, g, "id", time.Minute, plan, "k", 3, 3).Allowed {
					t.Fatal("refused")
				}
				inner.set(refuses)
				if o := end(t, g, store.OpSettle, "id", again, "k", n+1, n); o.Err != nil || o.Gone {
					t.Fatalf("%+v", o)
				}
				back(t, g, inner)
				if got := used(t, inner, plan, "k"); got[0] != n || got[1] != n+1 {
					t.Errorf("settled with %d and %d, the store has %d", n, n+1, got)
				}
			})
		}
	}
}

// TestALostAnswer: a take with an ID counts exactly once, whether or not it arrived. A take without
// an ID counts at least once, unless the store can tell: see TestAPlainTakeCountsOnceInSQLite.
//
// req: A12
func TestALostAnswer(t *testing.T) {
	t.Parallel()
	bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
		plan := policy(t, 0, rolling(100, time.Hour))
		inner.set(mute)
		if d := hold(t, g, "id", time.Hour, plan, "reserved", 10); !d.Allowed || !d.Fallback {
			t.Fatalf("allowed %v, fallback %v", d.Allowed, d.Fallback)
		}
		take(t, g, plan, "plain", 10)
		back(t, g, inner)
		if got := used(t, inner, plan, "reserved")[0]; got != 10 {
			t.Errorf("a reservation of 10 counts %d", got)
		}
		if o := end(t, g, store.OpSettle, "id", plan, "reserved", 3); o.Gone || o.Err != nil {
			t.Errorf("%+v", o)
		}
		wantBack(t, g, time.Second)
		if got := used(t, inner, plan, "reserved")[0]; got != 3 {
			t.Errorf("settled with 3, it counts %d", got)
		}
		if got := used(t, inner, plan, "plain")[0]; got < 10 {
			t.Errorf("a plain take of 10 counts %d: it may count more than once, and must not count less", got)
		}
	})
}

// TestABucketGivesNothingBackThatHasDrained: a reservation that the store learns of late is settled
// as if it had known it from the start.
func TestABucketGivesNothingBackThatHasDrained(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} { // settled before, or after the return
		bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, leaky(60, time.Minute, 60)) // 1 a second
			take(t, g, plan, "k", 20)
			inner.set(refuses)
			hold(t, g, "id", time.Hour, plan, "k", 40)
			time.Sleep(30 * time.Second) // 30 are left, of 60
			settle := func() { end(t, g, store.OpCancel, "id", plan, "k") }
			if !late {
				settle()
			}
			back(t, g, inner)
			if late {
				settle()
				wantBack(t, g, time.Second)
			}
			// Had the store been there: 30 less the 10 of 40 that had not drained.
			if got := used(t, inner, plan, "k")[0]; got < 19 || got > 31 {
				t.Errorf("late %v: %d used, want about 20 and never less than 19", late, got)
			}
		})
	}
}

// TestNoRoom: what is kept is bounded. Without room, nothing is granted that could not be delivered
// later.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	open := rolling(10, time.Hour)
	open.Fallback = drawgate.FallbackOpen
	bubble(t, &guard.Options{Instances: 1, Start: drawgate.StartFull, MaxBuckets: 64, MaxHeld: 2},
		func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, rolling(10, time.Hour))
			step := compile(t, drawgate.Policy{
				Name: "open",
				Limits: []drawgate.Limit{{
					Name: "o", Kind: drawgate.Rolling,
					Amount: 10, Window: time.Hour, Fallback: drawgate.FallbackOpen,
				}},
			})
			inner.set(refuses)
			allowed := 0
			for i := range 1000 {
				if d := take(t, g, plan, fmt.Sprint(i), 1); d.Allowed {
					allowed++
				} else if d.Reason == store.Passed || d.RetryAfter <= 0 {
					t.Fatalf("reason %v, retry-after %v", d.Reason, d.RetryAfter)
				}
				if d := take(t, g, step, fmt.Sprint(i), 1); !d.Allowed {
					t.Fatal("a limit that steps aside needs no room")
				}
			}
			if st := g.State(); allowed == 0 || allowed > 64 || st.Buckets > 64 {
				t.Errorf("%d buckets admitted, %+v", allowed, st)
			}
			back(t, g, inner)
			inner.set(refuses)
			time.Sleep(2 * time.Hour)
			if d := take(t, g, plan, "late", 1); !d.Allowed {
				t.Errorf("when nothing is used any more there is room again: %v", d.Fail)
			}
		})
	bubble(t, &guard.Options{Instances: 1, Start: drawgate.StartFull, MaxHeld: 2},
		func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, rolling(10, time.Hour))
			hold(t, g, "a", time.Minute, plan, "k", 1)
			hold(t, g, "b", time.Minute, plan, "k", 1)
			hold(t, g, "c", time.Minute, plan, "k", 1)
			inner.set(refuses)
			if d := hold(t, g, "d", time.Minute, plan, "k", 1); d.Allowed || d.Reason != store.Unavailable {
				t.Errorf("no room for another: allowed %v, reason %v", d.Allowed, d.Reason)
			}
			if got := used(t, g, plan, "k")[0]; got != 3 {
				t.Errorf("%d used after a refusal, want 3", got)
			}
			if o := end(t, g, store.OpSettle, "c", plan, "k", 0); !errors.Is(o.Err, store.ErrStoreUnavailable) {
				t.Errorf("the one that was not kept: %+v", o)
			}
			if o := end(t, g, store.OpCharge, "", plan, "k", 1); !errors.Is(o.Err, store.ErrStoreUnavailable) {
				t.Errorf("a charge: %+v", o)
			}
			time.Sleep(2 * time.Minute)
			if d := hold(t, g, "d", time.Minute, plan, "k", 1); !d.Allowed {
				t.Errorf("when holds are over there is room again: %v", d.Fail)
			}
		})
}

// TestHoldsWithoutRoomStillCount: what the store granted while there was no room to record it
// counts in the share for as long as it may be held. Until then, unknown buckets admit nothing,
// because it may be one of them.
//
// req: A10
func TestHoldsWithoutRoomStillCount(t *testing.T) {
	t.Parallel()
	for _, renewed := range []bool{false, true} {
		bubble(t, &guard.Options{Instances: 1, Start: drawgate.StartFull, MaxBuckets: 64},
			func(t *testing.T, g *guard.Store, inner *faulty) {
				others := compile(t, drawgate.Policy{
					Name:   "others",
					Limits: []drawgate.Limit{{Name: "o", Kind: drawgate.Rolling, Amount: 10, Window: time.Hour}},
				})
				for i := range 1000 {
					take(t, g, others, fmt.Sprint(i), 1)
				}
				plan := policy(t, 0, slots(2))
				for _, id := range []string{"a", "b"} {
					if d := hold(t, g, id, 3*time.Hour, plan, "k", 1); !d.Allowed || d.Fallback {
						t.Fatalf("the store gives a slot: %v", d.Fail)
					}
				}
				time.Sleep(150 * time.Minute) // nothing counts in the others any more, and there is room again
				open := 30 * time.Minute
				if renewed {
					if o := end(t, g, store.OpRenew, "b", plan, "k"); o.Err != nil || o.Gone {
						t.Fatalf("renewed: %+v", o)
					}
					open = time.Hour
				}
				inner.set(refuses)
				if d := hold(t, g, "c", time.Minute, plan, "k", 1); d.Allowed || d.Reason != store.Unavailable ||
					d.RetryAfter <= 0 {
					t.Errorf("renewed %v: a third of two slots: allowed %v, reason %v, retry-after %v", renewed,
						d.Allowed,
						d.Reason, d.RetryAfter)
				}
				time.Sleep(open - time.Minute)
				if d := hold(t, g, "d", time.Second, plan, "k", 1); d.Allowed {
					t.Errorf("renewed %v: a third of two slots a minute before their end", renewed)
				}
				time.Sleep(2 * time.Minute)
				if d := hold(t, g, "e", time.Minute, plan, "k", 1); !d.Allowed {
					t.Errorf("renewed %v: after their end: %v", renewed, d.Fail)
				}
			})
	}
}

// TestWaitersWakeWhenTheStoreIsBack: they do not sleep until a share would be free.
func TestWaitersWakeWhenTheStoreIsBack(t *testing.T) {
	t.Parallel()
	bubble(t, share(4), func(t *testing.T, g *guard.Store, store *faulty) {
		lim, err := drawgate.New(g.Full(), drawgate.PerHour("hour", 8), nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 { // a share is 2
			if d, err := lim.Allow(t.Context(), "k"); err != nil || !d.Allowed {
				t.Fatal(err, d.Err())
			}
		}
		store.set(stalls)
		time.AfterFunc(time.Minute, func() { store.set(well) })
		start := time.Now()
		d, err := lim.Wait(t.Context(), "k")
		if took := time.Since(start); err != nil || d.Fallback || took < time.Minute ||
			took > time.Minute+2*time.Second {
			t.Errorf("%v, fallback %v after %v; want the store's answer within 2 s of its return", err, d.Fallback,
				took)
		}
	})
}

// TestReservationHandles: a reservation can be settled, cancelled and renewed during an outage, and
// never hangs.
func TestReservationHandles(t *testing.T) {
	t.Parallel()
	bubble(t, share(1), func(t *testing.T, g *guard.Store, inner *faulty) {
		lim, err := drawgate.New(g.Full(), drawgate.PerHour("hour", 10), nil)
		if err != nil {
			t.Fatal(err)
		}
		before, err := lim.Reserve(t.Context(), "k", time.Minute, store.Cost{N: 4})
		if err != nil {
			t.Fatal(err)
		}
		inner.set(stalls)
		here, err := lim.Reserve(t.Context(), "k", time.Minute, store.Cost{N: 5})
		if err != nil || !here.Decision.Fallback {
			t.Fatal(err)
		}
		if _, err := takeHeld(t.Context(), lim, drawgate.Request{Buckets: []drawgate.Ask{lim.Ask("k",
			store.Cost{N: 2})}, Hold: drawgate.Hold{For: time.Minute}}); !errors.Is(err, drawgate.ErrLimited) {
			t.Errorf("10 are 4, 5 and 2: %v", err)
		}
		if err := here.Renew(t.Context(), time.Hour); err != nil {
			t.Error(err)
		}
		if err := before.Renew(t.Context(), time.Hour); !errors.Is(err, store.ErrStoreUnavailable) {
			t.Errorf("only the store can give more time: %v", err)
		}
		if err := before.Settle(t.Context(), store.Cost{N: 1}); err != nil {
			t.Error(err)
		}
		if err := before.Settle(t.Context(), store.Cost{N: 1}); !errors.Is(err, drawgate.ErrGone) {
			t.Error(err)
		}
		back(t, g, inner)
		if err := here.Settle(t.Context(), store.Cost{N: 2}); err != nil {
			t.Error(err)
		}
		wantBack(t, g, time.Second)
		st, err := lim.Status(t.Context(), "k")
		if err != nil || st.States[0].Used != 3 || st.Open != 0 {
			t.Errorf("%v: %+v, %d open; want 3 used", err, st.States, st.Open)
		}
	})
}

// TestReplace: a store that stays unavailable until it is repaired is replaced by one that was
// opened again.
func TestReplace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := &faulty{Store: memstore.New(nil)}
		g := guarded(t, broken, full(1))
		plan := policy(t, 0, rolling(10, time.Hour))
		take(t, g, plan, "k", 2)
		broken.fail(&store.Error{Store: "faulty", Op: "take", Err: errors.New("corrupt"), Fault: store.FaultPermanent})
		if d := take(t, g, plan, "k", 3); !d.Allowed || !d.Fallback || !g.State().Unavailable {
			t.Errorf("allowed %v, fallback %v, %+v: one failure that lasts is enough", d.Allowed, d.Fallback, g.State())
		}
		time.Sleep(time.Hour / 2)
		if !g.State().Unavailable {
			t.Error("it came back by itself")
		}
		repaired := memstore.New(nil)
		if old := g.Replace(repaired); old != store.Store(broken) {
			t.Error("another store was in place")
		}
		if err := broken.Close(); err != nil {
			t.Error(err)
		}
		wantBack(t, g, 2*time.Second)
		if got := used(t, repaired, plan, "k")[0]; got != 3 {
			t.Errorf("%d charged to the new store, want the 3 that the old one does not know", got)
		}
	})
}

// trips is a store whose checks need several round trips.
type trips struct {
	*faulty
	n    int
	trip time.Duration
}

func (s *trips) Ping(ctx context.Context) error {
	for range s.n {
		select {
		case <-time.After(s.trip):
		case <-ctx.Done():
			return &store.Error{Store: "trips", Op: "ping", Err: ctx.Err()}
		}
	}
	return s.faulty.Ping(ctx)
}

// TestBackThoughTheCheckTakesLonger: a store that answers a call in time is used again, although
// its check, of several round trips, takes longer than a call may. One that does not is not.
//
// req: A11
func TestBackThoughTheCheckTakesLonger(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		trip time.Duration
		back bool
	}{{25 * time.Millisecond, true}, {45 * time.Millisecond, false}} {
		synctest.Test(t, func(t *testing.T) {
			store := &trips{faulty: &faulty{Store: memstore.New(nil)}, n: 4, trip: c.trip}
			store.during = func() { time.Sleep(c.trip) }
			g := guarded(t, store, full(1))
			plan := policy(t, 0, rolling(10, time.Hour))
			store.set(refuses)
			for range 3 {
				take(t, g, plan, "k", 1)
			}
			store.set(well)
			time.Sleep(5 * time.Second)
			if back := !g.State().Unavailable; back != c.back {
				t.Errorf("round trips of %v: in use again: %v, want %v", c.trip, back, c.back)
			}
		})
	}
}

// TestReplaceWhileAsked: a store is replaced and closed just before a call reaches it. The call is
// carried out by the new one, and its caller notices nothing.
func TestReplaceWhileAsked(t *testing.T) {
	t.Parallel()
	plan := policy(t, 0, rolling(10, time.Hour))
	buckets := []store.BucketCost{cost(plan, "k", 1)}
	for name, call := range map[string]func(ctx context.Context, g *guard.Store) error{
		"a take": func(ctx context.Context, g *guard.Store) error {
			var out [1]store.Verdict
			err := g.Take(ctx, []store.Take{{Buckets: buckets}}, out[:])
			if err == nil && (!out[0].Allowed || out[0].Fallback) {
				t.Errorf("allowed %v, fallback %v", out[0].Allowed, out[0].Fallback)
			}
			return errors.Join(err, out[0].Fail)
		},
		"a charge": func(ctx context.Context, g *guard.Store) error {
			var out [1]store.Outcome
			err := g.Settle(ctx, []store.Settlement{{Op: store.OpCharge, At: time.Now(), Buckets: buckets}}, out[:])
			return errors.Join(err, out[0].Err)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			old, next := &faulty{Store: memstore.New(nil)}, memstore.New(nil)
			g := guarded(t, old, full(1))
			old.during = func() {
				if err := g.Replace(next).Close(); err != nil {
					t.Error(err)
				}
			}
			if err := call(t.Context(), g); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got := used(t, next, plan, "k")[0]; got != 1 {
				t.Errorf("%s: %d used in the new store, want 1", name, got)
			}
		})
	}
}

// TestClose: Close delivers what is pending. Nothing is decided afterwards.
func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		defer mem.Close()
		inner := &faulty{Store: unclosed{mem}}
		g := guard.New(inner, full(1))
		plan := policy(t, 0, rolling(10, time.Hour))
		inner.set(refuses)
		take(t, g, plan, "k", 3)
		inner.set(well)
		for range 2 {
			if err := g.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if got := used(t, inner, plan, "k")[0]; got != 3 {
			t.Errorf("%d charged, want 3", got)
		}
		var out [1]store.Verdict
		if err := g.Take(t.Context(), []store.Take{{Buckets: []store.BucketCost{cost(plan, "k", 1)}}},
			out[:]); !errors.Is(err, store.ErrClosed) {
			t.Errorf("a take after Close: %v", err)
		}
	})
}

// unclosed is a store that ignores Close.
type unclosed struct{ store.Store }

func (unclosed) Close() error { return nil }

// TestFullLedgerCountsFromTheAnswer: a bucket without room in the ledger admits nothing here for as
// long as the store's admissions count, which starts when the store answers, not when it was asked.
//
// req: A11
func TestFullLedgerCountsFromTheAnswer(t *testing.T) {
	t.Parallel()
	bubble(t, &guard.Options{Instances: 1, Start: drawgate.StartFull, MaxBuckets: 64},
		func(t *testing.T, g *guard.Store, store *faulty) {
			others := compile(t, drawgate.Policy{
				Name:   "others",
				Limits: []drawgate.Limit{{Name: "o", Kind: drawgate.Rolling, Amount: 10, Window: time.Minute}},
			})
			for i := range 1000 {
				take(t, g, others, fmt.Sprint(i), 1)
			}
			plan := policy(t, 0, rolling(2, time.Hour))
			store.during = func() { time.Sleep(30 * time.Millisecond) }
			first := take(t, g, plan, "k", 2)
			store.during = nil
			time.Sleep(time.Until(first.At().Add(time.Hour - 10*time.Millisecond)))
			store.set(refuses)
			if d := take(t, g, plan, "k", 2); !first.Allowed || first.Fallback || d.Allowed {
				t.Errorf("%v %v, then within the hour %v", first.Allowed, first.Fallback, d.Allowed)
			}
		})
}

// TestWhatWasGivenHereCountsOnce, although the store's answers are lost while it learns of it: a
// plain take, and a reservation whose own take was carried out and not answered.
//
// req: A10, A12
func TestWhatWasGivenHereCountsOnce(t *testing.T) {
	t.Parallel()
	for _, lost := range []int{1, 2, 5} {
		bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, rolling(100, time.Hour))
			inner.set(mute)
			if d := hold(t, g, "id", time.Hour, plan, "k", 5); !d.Fallback || !d.Unsure {
				t.Errorf("asked and not answered: by the fallback %v, unsure %v", d.Fallback, d.Unsure)
			}
			inner.set(refuses)
			for !g.State().Unavailable {
				take(t, g, plan, "other", 1)
			}
			if d := take(t, g, plan, "k", 3); !d.Fallback || d.Unsure {
				t.Errorf("not asked: by the fallback %v, unsure %v", d.Fallback, d.Unsure)
			}
			end(t, g, store.OpSettle, "id", plan, "k", 4)
			time.Sleep(time.Minute)
			left := map[string]int{"take": lost, "settle": lost, "charge": lost}
			inner.mu.Lock()
			inner.mood, inner.only = well, func(op string, _ bool) mood {
				if left[op] == 0 {
					return well
				}
				left[op]--
				return mute
			}
			inner.mu.Unlock()
			wantBack(t, g, time.Minute)
			if got := used(t, inner, plan, "k"); !slices.Equal(got, []int64{7}) {
				t.Errorf("%d answers lost: the store knows of %v, want 7", lost, got)
			}
			time.Sleep(5 * time.Second)
			var out [1]store.State
			if err := inner.Store.Peek(t.Context(), []store.BucketCost{cost(plan, "k")}, 0, out[:]); err != nil ||
				out[0].Open != 0 {
				t.Errorf("%d answers lost: %d reservations stay open, %v", lost, out[0].Open, err)
			}
		})
	}
}

// TestACancellationIsOwed: a reservation that was given back while the store was away counts there
// until it is cancelled, if a take of it was carried out and not answered. That is undelivered, as
// long as no decision said that it may be so.
//
// req: A10
func TestACancellationIsOwed(t *testing.T) {
	t.Parallel()
	for _, said := range []bool{true, false} {
		bubble(t, full(1), func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, rolling(100, time.Hour))
			inner.set(mute)
			for !said && !g.State().Unavailable {
				take(t, g, plan, "other", 200) // too many
			}
			if d := hold(t, g, "id", time.Hour, plan, "k", 5); d.Unsure != said {
				t.Fatalf("unsure %v, want %v", d.Unsure, said)
			}
			if !said {
				inner.mu.Lock()
				inner.mood, inner.only = well, func(op string, _ bool) mood {
					if op == "take" {
						return mute
					}
					return well
				}
				inner.mu.Unlock()
				time.Sleep(time.Minute) // it is sent as it was given here
			}
			if n := used(t, inner.Store, plan, "k"); n[0] != 5 {
				t.Fatalf("the store has %v", n)
			}
			inner.mu.Lock()
			inner.only = nil
			inner.mu.Unlock()
			inner.set(refuses)
			end(t, g, store.OpCancel, "id", plan, "k")
			for i := 0; i < 20 && g.State().Undelivered == said; i++ { // something is on its way, without an answer
				time.Sleep(100 * time.Millisecond)
			}
			if g.State().Undelivered == said {
				t.Errorf("said %v: undelivered %v", said, said)
			}
			time.Sleep(time.Minute)
			inner.set(well)
			wantBack(t, g, time.Minute)
			time.Sleep(5 * time.Second)
			if n := used(t, inner, plan, "k"); n[0] != 0 || g.State().Undelivered {
				t.Errorf("said %v: the store has %v, undelivered %v", said, n, g.State().Undelivered)
			}
		})
	}
}

// TestARefusedTakeMayBeGranted: a take that was sent, carried out and not answered, and that the
// process then refused: the decision says that the store may have granted it.
//
// req: A10
func TestARefusedTakeMayBeGranted(t *testing.T) {
	t.Parallel()
	bubble(t, full(2), func(t *testing.T, g *guard.Store, inner *faulty) {
		plan := policy(t, 0, rolling(100, time.Hour))
		inner.set(mute)
		if d := hold(t, g, "id", time.Hour, plan, "k", 80); d.Allowed || !d.Fallback || !d.Unsure {
			t.Errorf("a share of 50 allowed 80: %v, by the fallback %v, unsure %v", d.Allowed, d.Fallback, d.Unsure)
		}
		for !g.State().Unavailable {
			take(t, g, plan, "other", 1)
		}
		if d := hold(t, g, "id2", time.Hour, plan, "k", 80); d.Allowed || !d.Fallback || d.Unsure {
			t.Errorf("not asked: %v, by the fallback %v, unsure %v", d.Allowed, d.Fallback, d.Unsure)
		}
	})
}
