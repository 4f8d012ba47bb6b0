// Package lease decides takes of hot buckets in this process, with units that it took from the
// store ahead. It is a store in front of a store:
//
//	s, err := redisstore.Open("redis://localhost", nil)
//	g := guard.New(s, &guard.Options{Instances: 3})
//	l := lease.New(g.Full(), nil)
//	lim, err := drawgate.New(l.Full(), drawgate.Policy{Name: "api", Leased: true, Limits: …}, nil)
//
// Only policies that are leased (see [store.Policy]) are decided here, and of these only plain
// takes: without a hold, and not granted ahead. All others go straight to the store. Both mix: a
// lease is a reservation in the store, so nothing that this package does can exceed a limit.
//
// # What a lease is
//
// A lease is a reservation with [store.Take.Lease], of one lease life: see [store.Plan.LeaseLife].
// Its units count in the store from when they are taken, and do not age while the lease is open.
// The process spends them without asking, until its own deadline: one life after it *sent* the
// take, less a margin for clocks that run at different speeds, and never beyond the edge of a
// calendar window. Then it closes the lease, and afterwards tells the store what was spent, which
// counts from that instant. A lease of which the store hears nothing more counts as used.
//
// These rules keep the promise, and each has a test that fails without it:
//
//   - the deadline is reckoned from before the take was sent, by a clock that does not stand still,
//     and with a margin: it always comes before the store's;
//   - a unit is taken off the lease first, and the clock is read afterwards;
//   - units are not carried over the edge of a calendar window;
//   - a lease is closed before what it did not spend is given back;
//   - an answer that comes late, or that the store did not give itself, is no lease: it is given
//     back, and its units are never spent;
//   - of a take whose answer was lost nobody knows what it got: it is cancelled by its grant;
//   - what was asked before a pause or a reset is no lease after it.
//
// # How large it is
//
// A lease is asked for before the current one is used up, and is as large as what the process spent
// and refused lately needs for most of a life. It gets smaller as the limit nears. What is left at
// its deadline is given back. After a refusal takes are refused here for the time in which a
// hundred decisions are made, for one life at most. So a bucket that is asked for often costs one
// call of the store for a hundred decisions or more, refused or not. A bucket that is asked for
// seldom has no lease: its takes go straight to the store, and it needs no memory here.
//
// # What answers say
//
// Remaining is approximate: what the store said last, and what is left of the lease. A refusal's
// RetryAfter is when this process asks the store again, or when the store said that units come
// back, whichever is later. Units that other processes have leased and do not spend may be missing,
// for one lease life at most.
package lease
