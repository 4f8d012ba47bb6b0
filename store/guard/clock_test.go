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

// far is a store whose answers take a while to arrive.
type far struct {
	store.Store

	way time.Duration
}

func (f *far) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	err := f.Store.Take(ctx, batch, out)
	time.Sleep(f.way)
	return err
}

// TestTheToleranceOfTheClock: one process alone may exceed a limit only within the tolerance of its
// clock, 10 ms and a round trip, as docs/fallback.md says: what it admitted during an outage may
// leave its window that much too early.
//
// req: A10, D10
func TestTheToleranceOfTheClock(t *testing.T) {
	t.Parallel()
	const window, way, tolerance = 2 * time.Second, 25 * time.Millisecond, 35 * time.Millisecond
	used := false
	for early := time.Duration(0); early <= 3*tolerance; early += 5 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			inner := &far{Store: memstore.New(nil), way: way}
			g, f := begin(t, inner, well, guard.Options{Instances: 1, Start: drawgate.StartFull, Failures: 1000})
			plan := policy(t, 0, rolling(40, window))
			take(t, g, plan, "other", 1) // the process's clock is behind by what the answer took
			f.set(refuses)
			from := time.Now()
			if d := take(t, g, plan, "k", 40); !d.Allowed || !d.Fallback {
				t.Fatalf("allowed %v, fallback %v", d.Allowed, d.Fallback)
			}
			time.Sleep(time.Until(from.Add(window - early)))
			f.set(well)
			inner.way = 0
			take(t, g, plan, "other", 1) // now it is not
			f.set(refuses)
			if !take(t, g, plan, "k", 1).Allowed {
				return
			}
			within := time.Since(from)
			used = used || within < window
			if within < window-tolerance {
				t.Errorf("more than the limit within %v, want never more within %v", within, window-tolerance)
			}
		})
	}
	if !used {
		t.Error("the limit was never exceeded: docs/fallback.md need not name the tolerance")
	}
}
