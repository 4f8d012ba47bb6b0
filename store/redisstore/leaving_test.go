package redisstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// TestLeavingBetweenSlots: who leaves the queue of one slot is not told that nothing was done while
// what was reserved in another slot may be left.
//
// req: C3, E5
func TestLeavingBetweenSlots(t *testing.T) {
	t.Parallel()
	servers, plan := redistest.StartCluster(t, false), day(t, 100)
	via, proxies := viaProxies(t, servers)
	s := openURL(t, servers.URL(), (&redisstore.Options{}).Via(via)).Patiently()
	ask := across(plan, 7, 0, 1)
	second := ask.Buckets[1].Key.Name // in the order of keys
	if redisstore.KeyOf("drawgate", ask.Buckets[1].Key) < redisstore.KeyOf("drawgate", ask.Buckets[0].Key) {
		second = ask.Buckets[0].Key.Name
	}
	for _, b := range ask.Buckets {
		take(t, s, takeOf(plan, b.Key.Name, 1))
	}
	ctx, leave := context.WithCancel(t.Context())
	other, end := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	s.OnStep(func(step string, g int) {
		if step != "reserve" || g != 1 { // the first slot has its reservation by then
			return
		}
		for _, p := range proxies {
			p.Hold()
		}
		wg.Go(func() { _ = tryTake(other, s, takeOf(plan, second, 1)) })
		until(t, "another call is in flight", func() bool { return s.InFlight() == 1 })
		wg.Go(func() {
			until(t, "the take waits for its batch", func() bool { return s.Gathered() == 1 })
			leave()
		})
	})
	err := tryTake(ctx, s, ask)
	if !errors.Is(err, store.ErrUnknownOutcome) || errors.Is(err, store.ErrNothingDone) {
		t.Errorf("got %v, want that the outcome is unknown", err)
	}
	end()
	for _, p := range proxies {
		p.Cut()
		p.Release()
	}
	wg.Wait()
}

// TestNumbersWithoutEnd: a record whose numbers would keep the script busy for ever is damaged.
//
// req: E4, E7
func TestNumbersWithoutEnd(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, c := open(t, server, nil), client(t, server)
	plan := compile(t, "r", drawgate.RollingLimit("r", 1000, time.Hour))
	key := redisstore.KeyOf("drawgate", store.Key{Policy: "r", Name: "bad"})
	for range 3 {
		take(t, s, takeOf(plan, "bad", 1))
	}
	head, err := c.Do(t.Context(), c.B().Hget().Key(key).Field("h").Build()).ToString()
	if err != nil {
		t.Fatal(err)
	}
	const oldest = 43 // where the number of the oldest entry is
	for _, n := range []float64{math.Inf(-1), math.Inf(1), math.NaN(), -1e300, 1e300, 1.5} {
		b := []byte(head)
		binary.LittleEndian.PutUint64(b[oldest:], math.Float64bits(n))
		server.Do("HSET", key, "h", string(b))
		for _, ask := range []store.Take{takeOf(plan, "bad", 1), held(takeOf(plan, "bad", 1), "x", time.Hour)} {
			wantFault(t, "a number that is wrong", tryTake(t.Context(), s, ask), store.FaultBucket)
		}
		take(t, s, takeOf(plan, "good", 1))
	}
}
