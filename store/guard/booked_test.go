package guard_test

import (
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
)

// TestRecoveryOfBooking: a server forgets a reservation that was booked ahead. When it is opened
// again, its units count from the booked instant on.
//
// req: A10, C12
func TestRecoveryOfBooking(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p, q := newProcess(t, s.URL(), false), newProcess(t, s.URL(), false)
	plan := policy(t, drawgate.FallbackClosed, rolling(10, 3*time.Second))
	if !take(t, p, plan, "k", 10).Allowed {
		t.Fatal("a take is refused")
	}
	booked := send(t, p, store.Take{
		ID: "booked", Grant: grant("booked"), Buckets: []store.BucketCost{cost(plan, "k", 5)}, Hold: time.Minute,
		Ahead: 20 * time.Second,
	})
	if !booked.Allowed || booked.Start == 0 {
		t.Fatalf("%+v", booked)
	}
	s.Do("FLUSHALL")
	awaitAll(t, plan, 15, 1, p)
	time.Sleep(time.Until(time.UnixMicro(booked.Start).Add(time.Second)))
	n := 0
	for take(t, q, plan, "k", 1).Allowed {
		n++
	}
	if n > 5 {
		t.Errorf("%d units are admitted beside 5 that were booked, of 10", n)
	}
}

// TestReplayAfterRecovery: a reservation in two buckets is opened again in each, and its take can
// be sent again.
//
// req: A10, C12
func TestReplayAfterRecovery(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := newProcess(t, s.URL(), false)
	plan := policy(t, drawgate.FallbackClosed, rolling(10, time.Hour), slots(3))
	tk := store.Take{
		ID: "x", Grant: grant("x"), Hold: time.Minute,
		Buckets: []store.BucketCost{cost(plan, "k", 5, 1), cost(plan, "l", 4, 1)},
	}
	if !send(t, p, tk).Allowed {
		t.Fatal("a take is refused")
	}
	s.Do("FLUSHALL")
	for end := time.Now().Add(patience); p.reservations.Load() < 2; time.Sleep(time.Millisecond) {
		used(t, p, plan, "k")
		used(t, p, plan, "l")
		if time.Now().After(end) {
			t.Fatal("it is not opened again")
		}
	}
	if v := send(t, p, tk); !v.Allowed || !v.Replayed {
		t.Errorf("sent again: %+v", v)
	}
	awaitAll(t, plan, 5, 1, p)
}
