// Package sqlitestore keeps buckets in a SQLite file: durable, exact, for any number of processes
// of one machine.
//
//	s, err := sqlitestore.Open("/var/lib/drawgate/state.db", nil)
//	lim, err := drawgate.New(s, drawgate.PerMinute("api", 10), nil)
//
// # Transactions
//
// What callers ask while a transaction is under way gathers and goes as one batch in the next one
// (group commit), so that many callers share one sync of the disk. A decision is given when its
// transaction is durable: with [Full], the default, what was granted stays granted whatever is
// killed or unplugged. A call whose context ends before its transaction began takes nothing; one
// whose context ends later may have.
//
// Refusals and [Store.Peek] write nothing.
//
// # Time
//
// The clock is the process's wall clock, which for the store never runs backwards: set back, it
// stands still until it has caught up.
//
// # Exactness
//
// A rolling limit without a precision is exact here: what was taken at one instant is a row, and
// leaves the window on its own. Rows are deleted when they are over.
//
// # History
//
// Every admitted take, settlement, cancellation, charge, refund and end of a hold is appended to a
// history ([Store.Read]), and kept for 35 days. Nothing that counts depends on it. It is plain SQL:
//
//	SELECT datetime(at/1000000, 'unixepoch'), op, name, units FROM history ORDER BY seq DESC LIMIT 20;
//
// Buckets of which nothing is used any more are deleted within some minutes, and once a day old
// history, in small steps while nobody asks anything; where somebody always does, between
// transactions. What that leaves free is used again. What is more than an eighth of the file is
// given back to the file system. Files that were made before this version do not shrink.
//
// # Several processes
//
// Any number of processes may open one file on a local disk (not on a network file system). Each
// keeps the records of its buckets in memory and reads them again after another process has
// written. While another process writes, each caller waits for at most [Options.BusyTimeout].
//
// New files are made with mode 0600, since they hold keys: processes of other users that share one
// need chmod, while nobody has it open. The -wal and -shm beside it have the mode of the file; a
// repaired file has that of the damaged one.
//
// Programs other than this must not open the file in this process with package os: closing it would
// drop SQLite's locks (POSIX).
//
// # When it fails
//
// A *[drawgate.StoreError] says what is wrong and what to do. A file that is locked, full,
// read-only or on a failing disk is tried again with each call, so the store comes back by itself.
// A file that is corrupt, or was deleted or replaced while it was open, stays away ([ErrDamaged])
// until somebody has put it right ([Repair]) and opens it again, because going on with an empty one
// would mint a full quota. A single bucket whose record is damaged fails alone; [Store.Reset]
// forgets it.
//
// # The mark
//
// Beside a database state.db lies a small file, state.db.mark, with a number that the database has
// as well. It is written once, when the database is durable. So a database that was deleted is told
// from one that never was: [Open] makes a new one only where there is neither. Where there is a
// mark, and no database, an empty file, or a database with another number, Open fails with
// [ErrDamaged]. [Repair] makes one that fits the mark: with [RepairOptions.Hold] everything counts
// as used up in it, with [RepairOptions.Fresh] nothing does.
//
// A database that is moved takes its mark along: the file and the mark are moved together. One that
// was moved alone gets a mark at its new place, and where it was none is made. A backup has the
// same number: it fits the mark, and does not know what was used since, so it is to be held. A file
// without a mark, as older versions made them, gets one when it is opened. Where a mark cannot be
// written, the store works without it, and the log says so.
package sqlitestore
