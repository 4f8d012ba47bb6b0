package drawgate_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/memstore"
)

// TestObserver is told of every decision, with the time in the queue apart, of settlements and of
// store calls.
func TestObserver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var taken []drawgate.Taken
		var ops, calls []string
		l, err := drawgate.New(memstore.New(nil), drawgate.Rate("rate", 1, time.Second, 1),
			&drawgate.Options{Observer: &drawgate.Observer{
				Taken:   func(e *drawgate.Taken) { taken = append(taken, *e) },
				Settled: func(e *drawgate.Settled) { ops = append(ops, e.Settlement.Op.String()) },
				Called:  func(e *drawgate.StoreCall) { calls = append(calls, e.Op) },
			}})
		if err != nil {
			t.Fatal(err)
		}
		if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		if d, err := l.Allow(t.Context(), "k"); err != nil || d.Allowed {
			t.Fatal(d, err)
		}
		go func() {
			time.Sleep(time.Second / 2)
			if n, oldest := l.Waiting(); n != 1 || oldest != time.Second/2 {
				t.Errorf("%d wait, the oldest for %v", n, oldest)
			}
		}()
		r, err := l.Reserve(t.Context(), "k", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Allow(t.Context(), "k", drawgate.Cost{N: 2}); !errors.Is(err, drawgate.ErrNeverFits) {
			t.Fatal(err)
		}
		if n, _ := l.Waiting(); n != 0 {
			t.Errorf("%d wait", n)
		}
		if len(taken) != 3 || len(ops) != 1 || ops[0] != "cancel" || len(calls) != 3 {
			t.Fatalf("%d takes, settled %v, calls %v", len(taken), ops, calls)
		}
		for i, want := range []time.Duration{0, 0, time.Second} {
			if e := taken[i]; e.Queued < want-time.Second/50 || // it may be granted a little ahead
				e.Queued > want+time.Second/50 || e.Took < e.Queued || e.Err != nil || e.Wait != (i == 2) {
				t.Errorf("take %d stood for %v of %v: %v", i, e.Queued, e.Took, e.Err)
			}
		}
	})
}

// TestTenantOfAnAsk is part of the key.
func TestTenantOfAnAsk(t *testing.T) {
	t.Parallel()
	l, err := drawgate.New(memstore.New(nil), drawgate.Rate("rate", 1, time.Hour, 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		for _, tenant := range []string{"", "a", "b"} {
			d, _, err := l.Take(t.Context(), drawgate.Request{Buckets: []drawgate.Ask{{Tenant: tenant, Key: "k"}}})
			if err != nil || d.Allowed != want {
				t.Errorf("tenant %q: %v %v, want %v", tenant, d.Allowed, err, want)
			}
		}
	}
}

// An observer is told for which bucket a take waited: what became of it is the doing of that
// policy.
func TestObserverIsToldWhereATakeQueued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var taken []drawgate.Taken
		wide := drawgate.Policy{Name: "wide", Limits: []drawgate.Limit{{
			Name: "h", Kind: drawgate.Rolling,
			Window: time.Hour, Amount: 100,
		}}}
		narrow := drawgate.Policy{Name: "narrow", Limits: []drawgate.Limit{{
			Name: "h", Kind: drawgate.Rolling,
			Window: time.Hour, Amount: 1,
		}}, Wait: drawgate.Wait{Queue: 1}}
		l, err := drawgate.New(memstore.New(nil), wide,
			&drawgate.Options{Observer: &drawgate.Observer{Taken: func(e *drawgate.Taken) {
				taken = append(taken,
					*e)
			}}})
		if err != nil {
			t.Fatal(err)
		}
		o, err := l.With(narrow)
		if err != nil {
			t.Fatal(err)
		}
		take := func(ctx context.Context) error {
			_, _, err := l.Take(ctx, drawgate.Request{Buckets: []drawgate.Ask{l.Ask("k"), o.Ask("k")}, Wait: true})
			return err
		}
		if err := take(t.Context()); err != nil {
			t.Fatal(err)
		}
		soon, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- take(ctx) }()
		synctest.Wait()
		if err := take(t.Context()); !errors.Is(err, drawgate.ErrQueueFull) {
			t.Errorf("no place: %v", err)
		}
		if err := take(soon); !errors.Is(err, drawgate.ErrDeadline) {
			t.Errorf("not in time: %v", err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		var at []int
		for i := range taken {
			at = append(at, taken[i].QueuedAt)
		}
		if !slices.Equal(at, []int{0, 1, 1, 1}) {
			t.Errorf("queued at %v, want 0 for the one that passed and 1 for the others", at)
		}
	})
}
