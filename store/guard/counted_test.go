package guard_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

// TestCountedAllTheTime: a take was carried out and not answered, so the guard admitted it, and its
// hold ended at the store. What was used counts there until the guard has charged it, and after
// that: whatever is lost on the way, others never find it free.
//
// req: A1
func TestCountedAllTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plan := policy(t, 0, rolling(1000, 12*time.Hour))
		inner := &faulty{Store: memstore.New(nil)}
		g := guarded(t, inner, full(1))
		inner.set(mute)
		hold(t, g, "id", time.Minute, plan, "k", 5)
		inner.set(refuses)
		time.Sleep(30 * time.Second)
		end(t, g, store.OpSettle, "id", plan, "k", 5)
		time.Sleep(5 * time.Minute)
		inner.mu.Lock()
		inner.only = func(op string, _ bool) mood { // settlements arrive, and takes do not
			if op == "take" {
				return refuses
			}
			return well
		}
		inner.mu.Unlock()
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			if n := used(t, inner.Store, plan, "k")[0]; n < 5 {
				t.Fatalf("%d are used, want at least 5", n)
			}
		}
	})
}

// TestAnIDThatIsUsedAgain: a take was carried out and not answered, admitted by the guard, and
// settled. Then its id was used again, by another grant. The first one is cancelled before the
// second one would be given another id, by which only this process knows it.
//
// req: A10, E7
func TestAnIDThatIsUsedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plan := policy(t, 0, rolling(1000, 12*time.Hour), slots(10))
		inner := &faulty{Store: memstore.New(nil)}
		g := guarded(t, inner, full(1))
		inner.set(mute)
		one := store.Take{ID: "job-7", Grant: 1, Hold: time.Hour, Buckets: []store.BucketCost{cost(plan, "k", 5, 1)}}
		if d := send(t, g, one); !d.Allowed || !d.Unsure {
			t.Fatalf("allowed %v, unsure %v", d.Allowed, d.Unsure)
		}
		inner.set(refuses)
		time.Sleep(3 * time.Second)
		settleGrant(t, g, plan, 1, 5)
		two := one
		two.Grant = 2
		if d := send(t, g, two); !d.Allowed {
			t.Fatal("it was refused")
		}
		time.Sleep(3 * time.Second)
		inner.set(well)
		wantBack(t, g, 2*time.Second)
		if o := settleGrant(t, inner.Store, plan, 2, 5); o.Gone {
			t.Error("the store does not know it by its id")
		}
	})
}

// inBoth takes n units of each of the buckets "a" and "b".
func inBoth(plan *store.Plan, hold time.Duration, n int64) store.Take {
	return store.Take{
		ID: "id", Grant: 1, Hold: hold, Buckets: []store.BucketCost{cost(plan, "a", n), cost(plan, "b", n)},
	}
}

// endBoth settles or renews what inBoth took.
func endBoth(t *testing.T, s store.Store, of store.Take, op store.Op) {
	t.Helper()
	var out [1]store.Outcome
	st := store.Settlement{Op: op, ID: of.ID, Grant: of.Grant, Buckets: of.Buckets, Hold: time.Hour}
	if err := s.Settle(t.Context(), []store.Settlement{st}, out[:]); err != nil || out[0].Err != nil || out[0].Gone {
		t.Fatalf("%v %+v", err, out[0])
	}
}

// TestCountedWhereThereWasNoRoom: the guard admitted a take that the store had carried out, and had
// no room to record it in one of its buckets. What is used there is charged all the same, before
// the store gives back what the hold has left.
//
// req: A1
func TestCountedWhereThereWasNoRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plan := policy(t, drawgate.FallbackOpen, rolling(1000, 12*time.Hour))
		brief := policy(t, drawgate.FallbackOpen, rolling(1000, time.Minute))
		inner, opts := &faulty{Store: memstore.New(nil)}, full(1)
		opts.MaxBuckets = 2
		g := guarded(t, inner, opts)
		take(t, g, plan, "a", 1)
		take(t, g, brief, "other", 1)
		inner.set(mute)
		of := inBoth(plan, 3*time.Minute, 5)
		if d := send(t, g, of); !d.Allowed || !d.Unsure {
			t.Fatalf("allowed %v, unsure %v", d.Allowed, d.Unsure)
		}
		inner.set(refuses)
		time.Sleep(2 * time.Minute)
		endBoth(t, g, of, store.OpSettle) // now there is room
		time.Sleep(3 * time.Minute)
		inner.set(well)
		for range 30 {
			time.Sleep(time.Second)
			if n := used(t, inner.Store, plan, "b")[0]; n < 5 {
				t.Fatalf("%d are used, want at least 5", n)
			}
		}
	})
}

// TestCountedWhereNothingWasReset: the guard admitted a take that the store had carried out, and
// its holder renewed it beyond its end there. While the guard was about to replay it, one of its
// buckets was reset, which forgets the reservation. In the other one what the hold has left still
// counts.
//
// req: A1
func TestCountedWhereNothingWasReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plan, mem := policy(t, 0, rolling(1000, 12*time.Hour)), memstore.New(nil)
		inner, opts := &faulty{Store: mem}, full(1)
		opts.Failures = 1000
		g := guarded(t, struct {
			*faulty
			store.Resetter
		}{inner, mem}, opts)
		inner.set(mute)
		of := inBoth(plan, time.Minute, 5)
		if d := send(t, g, of); !d.Allowed || !d.Unsure {
			t.Fatalf("allowed %v, unsure %v", d.Allowed, d.Unsure)
		}
		inner.set(refuses)
		time.Sleep(30 * time.Second)
		endBoth(t, g, of, store.OpRenew)
		time.Sleep(3 * time.Minute)
		inner.mu.Lock()
		inner.only = func(op string, _ bool) mood { // the replay does not arrive
			if op == "take" {
				return refuses
			}
			return well
		}
		inner.mu.Unlock()
		time.Sleep(5 * time.Second)
		if err := g.Full().(store.Resetter).Reset(t.Context(), []store.Key{cost(plan, "a").Key}); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			time.Sleep(time.Second)
			if n := used(t, inner.Store, plan, "b")[0]; n < 5 {
				t.Fatalf("%d are used, want at least 5", n)
			}
		}
	})
}
