//go:build long

package redisstore_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/linetest"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/lease"
)

// TestFairLong: who waits in eight stores on one server is served in order.
//
// req: C5
func TestFairLong(t *testing.T) {
	server := redistest.Start(t)
	var stores []store.Store
	for range 8 {
		stores = append(stores, open(t, server, nil))
	}
	linetest.Judge(t, stores, 12*time.Second)
}

// TestFairWithLeasesLong: the same, while three of the stores decide by leases for other callers,
// who are never over.
//
// req: C5, E1
func TestFairWithLeasesLong(t *testing.T) {
	server := redistest.Start(t)
	a := leaseAskers{spec: leaseSpec{Scale: 1, Window: 4 * time.Second}, clock: newMachineClock(0)}
	ctx, stop := context.WithCancel(t.Context())
	var stores []store.Store
	for i := range 8 {
		var s store.Store = open(t, server, nil)
		if i < 3 {
			g := guard.New(s, &guard.Options{Instances: 8, Timeout: time.Second})
			l := lease.New(g.Full(), nil)
			t.Cleanup(func() { _ = l.Close() })
			s = l.Full()
			a.start(ctx, t, s)
		}
		stores = append(stores, s)
	}
	linetest.Judge(t, stores, 12*time.Second)
	stop()
	a.all.Wait()
	most, amount := mostIn(a.list, a.spec.Window.Microseconds()), a.spec.amounts()[ofHot]
	t.Logf("%d takes were decided for others, %d allowed; at most %d of %d units in a window", a.asked, len(a.list), most, amount)
	if most > amount {
		t.Errorf("%d units were admitted in a window, want at most %d", most, amount)
	}
}

// leaseAskers ask for the rolling limit, and do not wait.
type leaseAskers struct {
	spec  leaseSpec
	clock machineClock
	all   sync.WaitGroup
	mu    sync.Mutex
	asked int     // guarded by mu
	list  []grant // guarded by mu
}

func (a *leaseAskers) start(ctx context.Context, t *testing.T, s store.Store) {
	t.Helper()
	lim, err := drawgate.New(s, a.spec.policies()[ofHot], nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		a.all.Go(func() {
			for ctx.Err() == nil {
				g := grant{n: 1 + rand.Int64N(2*leaseCost-1), sent: a.clock.now()}
				d, err := lim.Allow(context.WithoutCancel(ctx), "k0", drawgate.Requests(g.n))
				g.got = a.clock.now()
				a.mu.Lock()
				if a.asked++; err == nil && d.Allowed {
					a.list = append(a.list, g)
				}
				a.mu.Unlock()
				time.Sleep(rand.N(20 * time.Millisecond))
			}
		})
	}
}
