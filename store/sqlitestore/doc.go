// Package sqlitestore keeps buckets in a SQLite file: durable, exact, and shared by any number of
// processes on one machine.
//
//	s, err := sqlitestore.Open("/var/lib/drawgate/state.db", nil)
//	lim, err := drawgate.New(s, drawgate.PerMinute("api", 10), nil)
//
// # Transactions
//
// Calls that arrive during a transaction are collected and run as one batch in the next one (group
// commit), so that many callers share one sync of the disk. A decision is returned when its
// transaction is durable: with [Full], the default, what was granted stays granted even if the
// process is killed or power fails. A call whose context ends before its transaction begins takes
// nothing; one whose context ends later may have.
//
// [Store.Peek] writes nothing, and a refusal only the ticket of a caller who waits: see below.
//
// # Time
//
// The clock is the process's wall clock, but never runs backwards: if the wall clock is set back,
// the store's clock stands still until it has caught up.
//
// # Exactness
//
// A rolling limit without a precision is exact: what was taken at one instant is one row, and
// leaves the window on its own. Expired rows are deleted.
//
// # The line
//
// A refused take with a [store.Ticket] stands in the line of its buckets, which all processes
// share. Tickets are in a small file of their own, state.db.line, which is made when somebody
// waits, and is emptied or removed when nobody does. It is never synced, so a refusal does not wait
// for the disk. If it is lost, damaged or cannot be written, takes are decided as before, and those
// who wait may be overtaken. A backup does not need it. Programs of versions without it may use the
// same database: they overtake. A [Store.Reset] keeps the line.
//
// While somebody watches ([Store.Watch]) and waits, the store looks every 5 ms whether another
// process has written, and announces units that came free early.
//
// # History
//
// Every admitted take, settlement, cancellation, charge, refund and end of a hold is appended to a
// history ([Store.Read]), and kept for 35 days. No limit depends on it. It is plain SQL:
//
//	SELECT datetime(at/1000000, 'unixepoch'), op, name, units FROM history ORDER BY seq DESC LIMIT 20;
//
// Unused buckets are deleted within a few minutes, and old history once a day, in small steps while
// the store is idle, or between transactions if it never is. The freed space is reused; what
// exceeds an eighth of the file is returned to the file system. Files made by older versions do not
// shrink.
//
// # Several processes
//
// Any number of processes may open one file on a local disk (not on a network file system). Each
// keeps its buckets in memory and reads them again after another process has written. While another
// process writes, a caller waits for at most [Options.BusyTimeout].
//
// Each store holds a lock of the operating system on one of two empty files next to the database,
// state.db.owner and state.db.users. So [Repair] refuses a database that is open ([ErrInUse]), and
// [Store.SoleOwner] tells whether anybody else has it open. Once a store has found its
// database to be damaged it has such a lock on state.db.lost.owner or state.db.lost.users instead.
//
// New files have mode 0600, because they hold keys. Processes of other users can share a file after
// a chmod, done while nobody has it open. The -wal and -shm files have the mode of the database; a
// repaired file has the mode of the damaged one.
//
// Other code in this process must not open the file with package os: closing it would drop SQLite's
// locks (POSIX).
//
// # Failures
//
// A *[store.Error] says what is wrong and what to do. If the file is locked, full,
// read-only or on a failing disk, each call tries again, so the store recovers by itself. Open
// fails then, unless [Options.OpenLater] is set, which is for programs with a fallback. A file that
// is corrupt, or was deleted or replaced while it was open, stays unavailable ([ErrDamaged])
// until somebody repairs it ([Repair]) and opens it again, because continuing with an empty one
// would grant every quota again. A single bucket whose record is damaged fails alone; [Store.Reset]
// removes it.
//
// # The mark
//
// Next to a database state.db there is a small file, state.db.mark, with a number that is also in
// the database. It is made when the database is durable. It shows that a missing database
// was deleted, rather than never created: [Open] creates a new database only if both are missing.
// If there is a mark but no database, an empty file, or a database with another number, Open fails
// with [ErrDamaged]. [Repair] makes a database that fits the mark: with [RepairOptions.Hold]
// everything in it counts as used up, with [RepairOptions.Fresh] nothing does.
//
// The mark also has the number of transactions that the database had, written after each commit,
// without a sync. A database that has had fewer, because its -wal was lost or an older copy was put
// in its place, is refused as well, and [Repair] counts everything in it as used up. With [Normal]
// a loss of power may undo transactions; then the store logs a warning and continues.
//
// When you move a database, move its mark with it. A database that was moved alone gets a new mark
// at its new place, and at the old place none is made. A backup that was restored together with its
// mark cannot be noticed, and does not know what was used since, so restore it with Hold. A file
// without a mark, made by an older version, gets one when it is opened. If a mark cannot be
// written, the store works without it and logs a warning.
package sqlitestore
