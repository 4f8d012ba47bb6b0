// Package storetest is the contract that every [drawgate.Store] keeps.
//
// A store's own test hands [Run] a [Harness] and gets one subtest per promise; [Scripts] compares
// the store with a reference on random sequences of operations; [Bench] measures it.
//
//	func TestStore(t *testing.T) { // the clock is the bubble's, so that sleeping moves it
//		storetest.Run(t, storetest.Harness{
//			New:     func(t *testing.T) drawgate.Store { return memstore.New(nil) },
//			Advance: func(_ drawgate.Store, d time.Duration) { time.Sleep(d) },
//			Wrap:    synctest.Test,
//		})
//	}
//
// Only takes that a limiter would send are sent: amounts that can ever fit, buckets of different
// keys, holds where there is an id.
package storetest

import (
	"testing"
	"time"

	"github.com/drawgate/drawgate"
)

// Harness is what a store provides to be tested. Its functions are called from several subtests at
// once.
type Harness struct {
	// New returns an empty store. It is closed, and what it left behind removed, by t.Cleanup:
	// inside Wrap, if that is set.
	New func(t *testing.T) drawgate.Store

	// Advance moves the clock of one store, which otherwise stands still, forwards by whole
	// microseconds. It may start anywhere. If Advance is nil the clock is taken to be real: only
	// the cases that need no other instant run, and one that waits for a second.
	Advance func(s drawgate.Store, d time.Duration)

	// Wrap runs a case: testing/synctest.Test for stores in this process. nil calls it, in parallel
	// to the others.
	Wrap func(t *testing.T, f func(t *testing.T))

	// Slow leaves out the case that opens as many reservations as may be: for models, which look at
	// all of them at each step.
	Slow bool

	// Keeps says that the store keeps what every take and settlement found, a refusal too, as a
	// model does and a store need not. In [Scripts] between two such stores the versions of a
	// policy take turns as they like.
	Keeps bool

	// Second returns another client of the same buckets and the same clock, as another process
	// would have. nil if the store has none.
	Second func(t *testing.T, s drawgate.Store) drawgate.Store
}
