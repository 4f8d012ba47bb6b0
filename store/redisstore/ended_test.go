package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// besideBefore returns a store, and one as in the version before, on one server and with one clock.
func besideBefore(t *testing.T) (is, was *redisstore.Store, clock *fakeClock) {
	t.Helper()
	before, err := os.ReadFile("testdata/script-before.lua")
	if err != nil {
		t.Fatal(err)
	}
	conn, clock := client(t, redistest.Start(t)), newClock()
	is = redisstore.NewWithClock(conn, nil, clock.now)
	was = redisstore.NewWithClock(conn, &redisstore.Options{NoBatches: true}, clock.now).AsBefore(string(before))
	return is, was, clock
}

// cancelEnded cancels a hold that has ended.
func cancelEnded(t *testing.T, s store.Store, of store.Take) {
	t.Helper()
	settle(t, s, store.Settlement{
		Op: store.OpCancel, ID: of.ID, Grant: of.Grant, Buckets: of.Buckets, Ended: true,
	})
}

// TestEntriesThatAreCountedAnew: the record forgets a limit of an old version of the policy, and
// the limit comes back. Its entries are numbered anew: what a hold left in an old one is not taken
// from a new one.
//
// req: A1
func TestEntriesThatAreCountedAnew(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := redisstore.NewWithClock(client(t, redistest.Start(t)), nil, clock.now)
	monthly := func(name string) drawgate.Limit {
		return drawgate.Limit{Name: name, Kind: drawgate.Calendar, Every: drawgate.Month, Amount: 1000}
	}
	plan := compile(t, "p", drawgate.RollingLimit("r", 1000, time.Second), monthly("m"))
	of := held(takeOf(plan, "k", 100, 100), "id", 100*time.Millisecond)
	of.Grant = 7
	take(t, s, of)
	clock.advance(200 * time.Millisecond)
	take(t, s, takeOf(plan, "k", 0, 1)) // the hold is remembered, because of the month
	clock.advance(10 * time.Second)
	for version := range 4 {
		var ls []drawgate.Limit
		for i := range 6 {
			ls = append(ls, monthly(fmt.Sprintf("m%d-%d", version, i)))
		}
		take(t, s, takeOf(compile(t, "p", ls...), "k", 1, 1, 1, 1, 1, 1))
	}
	take(t, s, takeOf(plan, "k", 100, 0)) // of somebody else
	cancelEnded(t, s, of)
	if u := peek(t, s, of.Buckets[0]).States; u[0].Used != 100 || u[1].Used != 1 {
		t.Errorf("%d and %d are used, want 100 and 1", u[0].Used, u[1].Used)
	}
}

// TestARateThatThoseBeforeChanged: a program of the version before changes the rate of a bucket,
// and does not know that a hold is remembered. What may have drained by then is not given back: it
// would be somebody else's.
//
// req: A1
func TestARateThatThoseBeforeChanged(t *testing.T) {
	t.Parallel()
	is, was, clock := besideBefore(t)
	leaky := func(rate int64) *store.Plan {
		return compile(t, "p", drawgate.Limit{
			Name: "b", Kind: drawgate.Bucket, Window: 100 * time.Second, Amount: rate, Burst: 1000,
		})
	}
	fast, slow := leaky(1000), leaky(10)
	for name, plans := range map[string][2]*store.Plan{"lowered": {fast, slow}, "raised": {slow, fast}} {
		of := held(takeOf(plans[0], name, 100), "id", time.Second)
		of.Grant = 7
		take(t, is, of)
		clock.advance(time.Second)
		take(t, is, takeOf(plans[0], name, 1))
		clock.advance(7 * time.Second)
		take(t, is, takeOf(plans[0], name, 1))
		take(t, was, takeOf(plans[1], name, 100)) // of somebody else
		of.Buckets = takeOf(plans[1], name).Buckets
		cancelEnded(t, is, of)
		if n := peek(t, is, of.Buckets[0]).States[0].Used; n < 100 {
			t.Errorf("%s: %d are used, and somebody has just used 100", name, n)
		}
	}
}

// TestDamagedHoldsThatEnded: where the field with the holds that have ended is damaged they are
// forgotten. The bucket can be used as before.
//
// req: E10
func TestDamagedHoldsThatEnded(t *testing.T) {
	t.Parallel()
	conn, clock, keys := client(t, redistest.Start(t)), newClock(), prefix()
	s := redisstore.NewWithClock(conn, &redisstore.Options{Prefix: keys}, clock.now)
	plan := compile(t, "p", drawgate.RollingLimit("r", 1e6, time.Hour),
		drawgate.CalendarLimit("d", 1e6, drawgate.Day, ""),
		drawgate.Limit{Name: "b", Kind: drawgate.Bucket, Amount: 1e6, Window: time.Hour})
	of := held(takeOf(plan, "k", 2, 2, 2), "id", time.Second)
	of.Grant = 7
	key := redisstore.KeyOf(keys, of.Buckets[0].Key)
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		take(t, s, of)
		clock.advance(2 * time.Second)
		take(t, s, takeOf(plan, "k", 1))
		p, err := conn.Do(t.Context(), conn.B().Hget().Key(key).Field("p").Build()).AsBytes()
		if err != nil {
			t.Fatal(err)
		}
		for range 1 + r.IntN(3) {
			if i := r.IntN(len(p)); r.IntN(2) == 0 {
				p = p[:i+1]
			} else {
				p[i] = byte(r.IntN(256))
			}
		}
		set := conn.B().Hset().Key(key).FieldValue().FieldValue("p", string(p)).Build()
		if err := conn.Do(t.Context(), set).Error(); err != nil {
			t.Fatal(err)
		}
		cancelEnded(t, s, of)
		if st := peek(t, s, of.Buckets[0]); st.Fail != nil {
			t.Fatalf("%q: %v", p, st.Fail)
		}
	}
}
