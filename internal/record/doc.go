// Package record holds one bucket's state and every change to it.
//
// It is the arithmetic of Drawgate: pure functions of (state, now, cost), with no clock, no
// goroutine, no lock and no I/O, so that the code that ships is also the code that runs in property
// tests and simulations. All instants are Unix microseconds, all amounts int64.
//
// Every kind of limit stores what is used, never what remains, and has one test: used + n <=
// effective. Nothing is stored for a limit that was never used, so an absent [Record] and an empty
// one mean the same.
//
//	bucket       used drains at amount per window; kept in 1/scale units, so that no fraction is lost
//	rolling      entries, each of which ends one window after its last take
//	calendar     one counter for the open window, one for what was already charged to the next
//	concurrency  the units of open holds
//
// Units that are held and do not age (charge at the end, leases, concurrency) are counted in
// [State.Held] and move to the limit's own bookkeeping when the hold is settled or ends.
package record
