package guard_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// onBoth runs a test with a guard of a store in memory, and of one in a file.
func onBoth(t *testing.T, f func(t *testing.T, g *guard.Store, inner *faulty)) {
	t.Helper()
	for name, open := range map[string]func(t *testing.T) store.Store{
		"memory": func(*testing.T) store.Store { return memstore.New(nil) },
		"file": func(t *testing.T) store.Store {
			t.Helper()
			s, err := sqlitestore.Open(filepath.Join(t.TempDir(), "state.db"), nil)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inner := &faulty{Store: open(t)}
				f(t, guarded(t, inner, full(1)), inner)
			})
		})
	}
}

// TestNothingTwice: a take was carried out and not answered, so the guard admitted it. Then the
// store was away until the hold had ended, which so counts there as used. What was used counts
// once, whatever kind of limit it is of: what is settled, cancelled, or not ended at all.
//
// req: A10, A12
func TestNothingTwice(t *testing.T) {
	t.Parallel()
	const granted, at = 5, 1000
	limits := []drawgate.Limit{rolling(at, 12*time.Hour), daily(at), leaky(at, 1000*time.Hour, at), slots(at)}
	plans := map[string]*store.Plan{"start": policy(t, 0, limits...)}
	for i := range limits[:3] {
		limits[i].Charge = drawgate.ChargeEnd
	}
	plans["end"] = policy(t, 0, limits...)
	for _, c := range []struct {
		op   store.Op
		used int64
		want int64
	}{{store.OpSettle, 3, 3}, {store.OpSettle, 5, 5}, {store.OpSettle, 8, 8}, {store.OpCancel, 0, 0}, {0, 0, granted}} {
		for charge, plan := range plans {
			t.Run(fmt.Sprintf("%v %d, counts from the %s", c.op, c.used, charge), func(t *testing.T) {
				t.Parallel()
				onBoth(t, func(t *testing.T, g *guard.Store, inner *faulty) {
					t.Helper()
					inner.set(mute)
					if d := hold(t, g, "id", time.Minute, plan, "k", granted, granted, granted, 1); !d.Allowed ||
						!d.Unsure {
						t.Fatalf("allowed %v, unsure %v", d.Allowed, d.Unsure)
					}
					inner.set(refuses)
					time.Sleep(30 * time.Second)
					if c.op != 0 {
						end(t, g, c.op, "id", plan, "k", c.used, c.used, c.used, 1)
					}
					time.Sleep(5 * time.Minute)
					inner.set(well)
					wantBack(t, g, 10*time.Second)
					time.Sleep(10 * time.Second) // until no message can open it again
					for i, n := range used(t, inner, plan, "k")[:3] {
						if n != c.want {
							t.Errorf("%d are used of limit %d, want %d", n, i, c.want)
						}
					}
					if st := g.State(); st.Miscounted != 0 || st.Undelivered {
						t.Errorf("%d counted wrongly, undelivered %v", st.Miscounted, st.Undelivered)
					}
				})
			})
		}
	}
}

// TestARefusedTakeThatWasCarriedOut: the store carried out a take, lost the answer, and was away
// until the hold had ended, and the guard refused the take: nothing of it counts.
//
// req: A2, A10
func TestARefusedTakeThatWasCarriedOut(t *testing.T) {
	t.Parallel()
	plan := policy(t, 0, rolling(1000, 12*time.Hour))
	onBoth(t, func(t *testing.T, g *guard.Store, inner *faulty) {
		t.Helper()
		take(t, g, plan, "k", 998) // of the share, too
		inner.set(mute)
		hold(t, g, "else", time.Hour, plan, "k", 2)
		if d := hold(t, g, "id", time.Minute, plan, "k", 2); d.Allowed {
			t.Fatal("the guard allowed it")
		}
		inner.set(refuses)
		time.Sleep(5 * time.Minute)
		inner.set(well)
		wantBack(t, g, 10*time.Second)
		time.Sleep(10 * time.Second)
		if n := used(t, inner, plan, "k")[0]; n != 1000 {
			t.Errorf("%d are used, want 1000", n)
		}
	})
}

// TestAHoldThatEndedIsNotTakenBack: a take was answered after a message of it that was not, and its
// hold ended before its holder settled it. It counts as granted, although a copy of the first
// message is cancelled afterwards.
//
// req: A1, A10
func TestAHoldThatEndedIsNotTakenBack(t *testing.T) {
	t.Parallel()
	plan := policy(t, 0, rolling(1000, 12*time.Hour))
	onBoth(t, func(t *testing.T, g *guard.Store, inner *faulty) {
		t.Helper()
		first := true
		inner.only = func(op string, _ bool) mood {
			if op == "take" && first {
				first = false
				return refuses
			}
			return well
		}
		if d := hold(t, g, "id", time.Second, plan, "k", 5); !d.Allowed || d.Fallback {
			t.Fatalf("allowed %v, by the fallback %v", d.Allowed, d.Fallback)
		}
		time.Sleep(1100 * time.Millisecond)
		if o := end(t, g, store.OpSettle, "id", plan, "k", 3); !o.Gone {
			t.Errorf("settled after its end: %+v", o)
		}
		time.Sleep(10 * time.Second)
		if n := used(t, inner, plan, "k")[0]; n != 5 {
			t.Errorf("%d are used, want 5", n)
		}
	})
}
