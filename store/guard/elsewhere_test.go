package guard_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

// TestAGrantThatWasUsedElsewhere: a take was carried out, and its answer was lost, so a process
// refused it. Its taker sent it again, as the same grant, by another process, which was told that
// it is open, and used it, and vanished. The hold ends, as used: the first process must not take
// that back.
//
// req: A1, A4
func TestAGrantThatWasUsedElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plan := policy(t, drawgate.FallbackClosed, rolling(10, 12*time.Hour))
		inner := memstore.New(nil)
		bad, good := &faulty{Store: inner}, &faulty{Store: inner}
		opts := func() *guard.Options { return full(2) }
		one, other := guarded(t, bad, opts()), guarded(t, good, opts())
		bad.set(mute)
		if d := hold(t, one, "id", time.Minute, plan, "k", 10); d.Allowed || !d.Unsure {
			t.Fatalf("allowed %v, unsure %v", d.Allowed, d.Unsure)
		}
		bad.set(refuses)
		if d := hold(t, other, "id", time.Minute, plan, "k", 10); !d.Allowed || !d.Replayed {
			t.Fatalf("elsewhere: allowed %v, replayed %v", d.Allowed, d.Replayed)
		}
		time.Sleep(5 * time.Minute) // its holder uses it, and vanishes
		bad.set(well)
		wantBack(t, one, time.Minute)
		time.Sleep(10 * time.Second)
		if n := used(t, inner, plan, "k")[0]; n != 10 {
			t.Errorf("%d are used, want 10", n)
		}
	})
}
