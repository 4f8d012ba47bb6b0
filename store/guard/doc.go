// Package guard wraps a store with a circuit breaker and answers locally, by each limit's Fallback,
// while the store is unavailable: in time, and marked.
//
//	s, err := redisstore.Open("redis://localhost", nil)
//	g := guard.New(s, &guard.Options{Instances: 3})
//	lim, err := drawgate.New(g.Full(), drawgate.PerMinute("api", 60), nil)
//
// # Unavailable
//
// A store is unavailable if it did not answer in time, could not be reached, or said that it cannot
// decide. That is no refusal, whatever the failure is: the first take that meets it is decided here
// already. After three failures in a row no caller is sent to the store. The guard tries it in the
// background, after pauses of 0.1 s that grow to 1 s, until it can be written again. So the store
// decides again within two seconds. Mistakes of callers, a closed store and a caller that gives up
// are no failures.
//
// # What is admitted meanwhile
//
// Each limit's [drawgate.Fallback] says it: nothing (closed), this process's share (share), or
// everything (open). Shares are counted by limits of the same kinds, which have recorded all along
// what this process was admitted. So a share that was used before the store became unavailable is
// used. A process does not know what the processes before it were admitted: what it cannot know
// counts as used when it starts, see [Options.StartFull]. A take is admitted by all of its limits,
// in all of its buckets, or not at all. [Bound] says what that can cost.
//
// A decision that was made here has Fallback set. A refusal has the reason [drawgate.Limited] if a
// share is used up, [drawgate.Paused] if a bucket is paused, and [drawgate.Away] if a limit admits
// nothing, or nothing of that size, without the store.
//
// # When the store is back
//
// The store is told what was admitted here before it decides about the same bucket again: units as
// a charge, in calendar windows that are still open and otherwise at the instant of the return;
// reservations that are still open as reservations, under their own grants; pauses. A charge has no
// id. If its answer is lost it is sent again, and may count twice: never too little.
//
// # Reservations
//
// One that was given here is settled, cancelled and renewed here, and by the store once it knows
// it. A settlement or cancellation of one that the store gave is kept, and delivered when the store
// is back: it names a grant, so it counts once. A renewal of such a one is a [drawgate.StoreError]:
// nobody but the store can promise more time. A take with an id that may have been carried out, and
// that nobody uses, is cancelled in the background.
//
// What this process keeps is lost with it: then holds end by themselves, and count as used.
//
// The state is a pure state machine, in internal/ledger; one lock guards it, and is never held
// while the store is asked.
package guard
