// Package ledger is the logic of package guard: what the store admitted to this process, what this
// process admits by each limit's fallback during an outage, and what must be delivered to the store
// afterwards.
//
// It is a pure state machine: events in, answers and deliveries out. It has no clock, goroutine,
// lock or I/O; the caller passes the time to each call. A [Ledger] is not safe for concurrent use.
//
// # Terms
//
// An entry is what is known about one bucket: a record of everything this process was admitted, and
// the items that the store does not know yet. Items to be delivered to the store are pending: a
// charge (units that were admitted here), a replay (a reservation that was given here, taken again
// at the store under its own grant), a renewal, a settlement or cancellation, a pause. While an
// item of a bucket is pending, the guard does not ask the store about that bucket.
//
// # Why reservations are replayed
//
// Charging the estimate of an open reservation instead would be simpler, but would break the
// promise even with one process: slots would come free while their holder still works, and units
// that are charged at the end would leave their window before they are used. So open reservations
// are replayed under their grant, whatever the store admitted to others meanwhile. That is one rule
// for all kinds of limits, and a grant makes it count once.
package ledger
