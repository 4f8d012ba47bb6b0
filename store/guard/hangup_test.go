package guard_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/store/redisstore"
)

// TestHangingUpIsNoOutage: callers that wait in the queue and hang up, at any moment, do not make a
// healthy store look unavailable.
//
// req: A11
func TestHangingUpIsNoOutage(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		leaveEarly(t, memstore.New(nil))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		store, err := redisstore.Open("redis://"+redistest.Start(t).Addr, nil)
		if err != nil {
			t.Fatal(err)
		}
		leaveEarly(t, store)
	})
}

func leaveEarly(t *testing.T, store store.Store) {
	t.Helper()
	var errs sync.Map
	const slow = 10 * time.Second // a machine that is slow is no outage either
	g := guard.New(store, &guard.Options{Timeout: slow, Observer: &guard.Observer{
		BackendError:      func(e *guard.BackendError) { errs.Store(e.Op+": "+e.Err.Error(), true) },
		FallbackActivated: func(e *guard.FallbackActivated) { errs.Store("fallback: "+e.Err.Error(), true) },
	}})
	l, err := drawgate.New(g.Full(), drawgate.Policy{
		Name: "p", Limits: []drawgate.Limit{
			drawgate.ConcurrencyLimit("slots", 2),
			drawgate.RollingLimit("rpm", 100_000, time.Minute),
		},
		Wait: drawgate.Wait{MaxWait: time.Minute, Queue: 10_000, Backoff: []time.Duration{time.Millisecond}},
	}, &drawgate.Options{StoreTimeout: slow})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	defer l.Close()
	var group sync.WaitGroup
	for i := range 1000 {
		group.Go(func() {
			bounded, end := context.WithTimeoutCause(t.Context(), time.Minute, drawgate.ErrDeadline)
			defer end()
			ctx, cancel := context.WithCancelCause(bounded)
			time.AfterFunc(time.Duration(rand.IntN(500_000))*time.Microsecond, func() { cancel(nil) })
			_, r, err := l.Take(ctx, drawgate.Request{
				Buckets: []drawgate.Ask{{Key: "k"}}, Wait: i%3 > 0,
				Hold: drawgate.Hold{For: 5 * time.Second},
			})
			if err == nil && r != nil {
				_ = r.Settle(ctx) // or the hold ends by itself
			}
		})
	}
	group.Wait()
	errs.Range(func(k, _ any) bool { t.Error(k); return true })
	if n := g.State().Decided; n != 0 {
		t.Errorf("%d takes were decided without the store", n)
	}
}
