// Package storetest is the contract of every [store.Store], as a test suite.
//
// A store's own test passes a [Harness] to [Run] and gets one subtest per promise; [Scripts]
// compares the store with a reference on random sequences of operations; [Bench] measures it.
//
//	func TestStore(t *testing.T) { // the clock is the bubble's, so that sleeping moves it
//		storetest.Run(t, storetest.Harness{
//			New:     func(t *testing.T) store.Store { return memstore.New(nil) },
//			Advance: func(_ store.Store, d time.Duration) { time.Sleep(d) },
//			Wrap:    synctest.Test,
//		})
//	}
//
// The suite sends only takes that a limiter would send: amounts that can ever fit, buckets with
// different keys, holds together with an ID.
package storetest

import (
	"testing"
	"time"

	"github.com/drawgate/drawgate/store"
)

// Harness is what a store's test provides. Several subtests call its functions at once.
type Harness struct {
	// New returns an empty store. t.Cleanup must close it and remove what it leaves behind; if Wrap
	// is set, that happens inside Wrap.
	New func(t *testing.T) store.Store

	// Advance moves the clock of one store forwards by whole microseconds. Otherwise that clock
	// stands still; it may start anywhere. If Advance is nil the clock must be real: then only the
	// cases run that need no other instant, and one that waits for a second.
	Advance func(s store.Store, d time.Duration)

	// Wrap runs a case: testing/synctest.Test for stores in this process. If it is nil, cases run
	// directly and in parallel.
	Wrap func(t *testing.T, f func(t *testing.T))

	// Without names the cases that are left out, each with the reason. If a store has several
	// harnesses, a test of its own can show with [Cases] that every case runs with one of them.
	Without map[string]string

	// Room is how many open reservations a bucket has room for at least, if the store limits the
	// size of a bucket. 0 means [store.MaxOpen], which is also the most that a store may open.
	Room int

	// Keeps says that the store remembers every take and settlement, including refusals, as a model
	// does and a store need not. In [Scripts] between two such stores, the versions of a policy
	// alternate freely.
	Keeps bool

	// Slow says that a call takes a millisecond or more: there are a fifth as many random
	// histories and keys.
	Slow bool

	// Second returns another client of the same buckets and the same clock, as another process
	// would have. It is nil if the store has none.
	Second func(t *testing.T, s store.Store) store.Store

	// Apart returns two more clients of the same buckets as s, such as two processes have whose
	// clocks differ by as much as the store allows. Both clocks move with that of s. It is nil if
	// the store asks one clock only.
	Apart func(t *testing.T, s store.Store) (behind, right store.Store)
}
