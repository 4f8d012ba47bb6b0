// Package pgstore keeps buckets in PostgreSQL (14 or newer), so that any number of processes share
// them.
//
// Each bucket is one row. A decision is made within one transaction of two round trips: the rows
// are locked in the order of their keys and read, together with the server's clock; what has
// changed is written and committed. What is refused writes nothing, but for the ticket of a take
// that may wait.
//
// # Calls that go together
//
// A row takes about a thousand commits a second, however it is written. So a store has at most one
// transaction under way for each bucket: calls that come meanwhile gather, and go as one. Takes of
// several buckets are one transaction, too: all or nothing is granted. A caller that leaves before
// its transaction begins takes its call out (the error matches [store.ErrNothingDone]); one that
// leaves later does not know what became of it.
//
// # Exactly once
//
// A commit whose answer was lost is looked up: each transaction leaves a mark of this store in the
// rows that it writes, and the row's lock tells when the transaction has ended. If it was not
// committed it is made again, for those who still wait. The outcome is unknown only if the server
// cannot be asked within the caller's time.
//
// # The clock
//
// Time is that of the server, read while the rows are locked. A bucket's time never runs back, also
// if the server's clock does, or another server takes its place.
//
// # Poolers
//
// PgBouncer may stand in front of the server, also in transaction mode: the store notices that
// prepared statements are not kept, and goes on without. Notifications need a connection of their
// own, past the pooler: the parameter listen of the URL names it.
package pgstore
