// Package guard stands before a store and answers in its place while it is away: always in time, by the rule that each limit names, and marked.
//
//	s, err := redisstore.Open("redis://localhost", nil)
//	g := guard.New(s, &guard.Options{Instances: 3})
//	lim, err := drawgate.New(g.Full(), drawgate.PerMinute("api", 60), nil)
//
// # Away
//
// A store is away if it did not answer in time, could not be reached, or said that it cannot decide. Whatever the kind of failure is, it is no refusal:
// the first take that meets it is answered here already. After three failures in a row no caller goes to the store any more; it is tried in the background,
// after pauses of 0.1 s that grow to 1 s, until it can be written again. So it takes part again within two seconds. Mistakes of callers, a closed store
// and a caller that gives up are no failures.
//
// # What is admitted meanwhile
//
// Each limit's [drawgate.Fallback] says it: nothing (closed), this process's share (share), or everything (open). Shares are counted by limits of the same
// kinds, which have recorded all along what this process was admitted. So a share that was used before the store went away is used. A process
// does not know what a former one was admitted: what it cannot know counts as used when it starts, see [Options.StartFull].
// A take is admitted by all of its limits, in all of its buckets, or not at all, as ever. [Bound] says what that can cost.
//
// A decision that was made here has Fallback set. One that is refused has the reason [drawgate.Limited] if a share is used up, and
// [drawgate.Away] if a limit admits nothing, or nothing of that size, without the store.
//
// # When the store is back
//
// What was admitted here is told to the store before it decides about the same bucket again: units as a charge, in calendar windows that are still open
// and otherwise at the instant of the return, reservations that are still open as reservations. A charge has no id. If its answer is lost it is sent again,
// and may count twice: never too little.
//
// # Reservations
//
// One that was given here is settled, cancelled and renewed here, and by the store once it knows it. A settlement or cancellation of one that the
// store gave is kept, and delivered when the store is back: it has an id, so it counts once. A renewal of such a one is a [drawgate.StoreError]: nobody but
// the store can promise more time. What this process keeps is lost with it: then holds end by themselves, and count as used.
package guard
