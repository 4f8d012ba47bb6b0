package drawgate_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/memstore"
)

// TestObserver is told of every decision, with the time in the queue apart, of settlements and of store calls.
func TestObserver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var taken []drawgate.Taken
		var ops, calls []string
		l, err := drawgate.New(memstore.New(nil), drawgate.Rate("rate", 1, time.Second, 1), &drawgate.Options{Observer: &drawgate.Observer{
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
			d, err := l.Take(t.Context(), drawgate.Request{Buckets: []drawgate.Ask{{Tenant: tenant, Key: "k"}}})
			if err != nil || d.Allowed != want {
				t.Errorf("tenant %q: %v %v, want %v", tenant, d.Allowed, err, want)
			}
		}
	}
}
