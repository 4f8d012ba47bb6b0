// Package store is the contract between package drawgate and its stores, and what you need to write
// your own [Store] over any technology that can change some bytes per bucket in one transaction.
// Programs that only use a store do not need it.
//
// A store keeps one [Record] per [Key], as bytes. For a take it reads the records of the
// take's buckets, calls [Decide], and writes back those that [Record.Changed] names, all within one
// transaction; [Apply] does the same for a settlement, and [Describe] looks at one bucket and
// writes nothing. What a limit admits, what a reservation holds and what is answered is decided by
// these functions: a store only keeps bytes, and prevents concurrent changes during the
// transaction.
//
// The code below decides one take. A batch may name one bucket twice; it must then use the same
// Record for both.
//
//	tx := db.Begin()
//	recs := make([]*store.Record, len(t.Buckets))
//	for i, b := range t.Buckets {
//		recs[i], err = store.Decode(tx.Get(b.Key)) // no bytes: an unused bucket
//	}
//	verdict := store.Decide(t, recs, now)
//	for i, b := range t.Buckets {
//		if recs[i].Changed() {
//			tx.Put(b.Key, recs[i].Append(nil))
//		}
//	}
//	err = tx.Commit()
//
// Return the verdict only after the transaction is durable. If the transaction failed, the
// answer is an [Error], with [ErrNothingDone] if that is certain.
//
// What else a store must do is the contract of [Store], which package storetest checks.
// In the repository, examples/boltstore is such a store on a bbolt file, in about 300 lines, with
// the suite as its test and a README that explains it step by step.
//
// To be faster, the stores of this module store parts of a record separately, or decide in a
// script; they reach the same verdicts.
package store

import (
	"context"
	"time"
)

// Store is where buckets live. It is safe for concurrent use. Package storetest is the definition
// of what an implementation must do.
//
// A batch may be answered in part: each element has an error of its own. The method's error is
// that of each element. It says that nothing was done if it matches [ErrNothingDone] or
// [ErrClosed], or is the error of a context that had ended before; otherwise the outcome is unknown
// (a reply was lost), and units may be spent. What fails is an [Error], but for these two and the
// errors of a take that was decided, such as [ErrIDOpen]. Neither arguments nor results are kept.
type Store interface {
	// Take decides each take of the batch in one atomic step, in order. If ctx has ended before a
	// step begins, nothing is done. len(out) == len(batch). A take that fits, but would open more
	// reservations in a bucket than allowed, fails with ErrTooManyOpen.
	Take(ctx context.Context, batch []Take, out []Verdict) error
	// Settle carries out each settlement in one atomic step, in order. len(out) == len(batch). For
	// an OpRefund the history and the outcome say how much was really given back.
	Settle(ctx context.Context, batch []Settlement, out []Outcome) error
	// Peek describes buckets, each separately: what a take of N at this priority would get. It
	// spends nothing. len(out) == len(buckets).
	Peek(ctx context.Context, buckets []BucketCost, priority int8, out []State) error
	// Close ends the store; calls under way are finished, later ones fail with ErrClosed, as the
	// method's error.
	Close() error
}

// OwnPolicies is how the names of policies begin that this module makes for itself. No
// configuration may have one.
const OwnPolicies = "drawgate:"

// Optional features of a store. A limiter checks for each of them once.
type (
	// Resetter forgets everything about buckets, open reservations included: their ids are gone.
	// Each bucket is a step of its own, and one that is not there is no error. If ctx ends in
	// between, those before are reset.
	Resetter interface {
		Reset(ctx context.Context, keys []Key) error
	}
	// Lister lists the keys of buckets of a tenant and a policy that are in use, in no particular
	// order, until yield returns false. The tenant "" is one like others. A bucket is in use if it
	// would behave differently without its record. yield must not call the store.
	Lister interface {
		List(ctx context.Context, tenant, policy string, yield func(Key) bool) error
	}
	// Indexer finds the buckets of policies that this module makes for itself, whose names begin
	// with [OwnPolicies], without a look at all others. Index notes buckets, which are kept noted
	// for at least keep. A [Lister] that is an Indexer lists of such a policy the buckets that were
	// noted, in use or not, and no others. A store whose List is quick need not be one.
	Indexer interface {
		Index(ctx context.Context, keep time.Duration, keys []Key) error
	}
	// Journal keeps a history of what was admitted, but for policies of our own. Read yields the
	// events that match, the oldest first, until yield returns false.
	Journal interface {
		Read(ctx context.Context, want EventQuery, yield func(Event) bool) error
	}
	// Pinger checks that the store can decide.
	Pinger interface {
		Ping(ctx context.Context) error
	}
	// Timed says how long a take that does not wait may need, all attempts of the store included.
	// Limiters and guards are set to a time or, if it is 0, use what the store returns. The store
	// returns what it is given otherwise, and logs a warning if that is too short.
	Timed interface {
		TakeTime(set time.Duration) time.Duration
	}
	// Watcher reports when units of a bucket become free early, by sending its key on the channel.
	// The store never blocks on the channel, so some keys may be missed.
	Watcher interface {
		Watch(keys chan<- Key) (stop func())
	}
	// Liner keeps a line of each bucket, of the tickets of those who wait in all processes: see
	// [Ticket]. Withdraw removes the ticket of a waiter that waits no more from these buckets. One
	// that is not there is no error. KeepsLine reports whether this store does so now.
	Liner interface {
		Withdraw(ctx context.Context, number uint64, keys []Key) error
		KeepsLine() bool
	}
)
