package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// cancelEnded cancels a hold that has ended.
func cancelEnded(t *testing.T, s store.Store, of store.Take) {
	t.Helper()
	settle(t, s, store.Settlement{
		Op: store.OpCancel, ID: of.ID, Grant: of.Grant, Buckets: of.Buckets, Ended: true,
	})
}

// TestEntriesThatAreCountedAnew: the record forgets a limit of an old version of the policy, and the
// limit comes back. Its entries are numbered anew: what a hold left in an old one is not taken from
// a new one.
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
