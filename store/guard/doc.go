// Package guard wraps a store with a circuit breaker and answers locally, by each limit's Fallback,
// while the store is unavailable. Answers come in time, and say that they were made locally.
//
//	s, err := redisstore.Open("redis://localhost", nil)
//	g := guard.New(s, &guard.Options{Instances: 3})
//	lim, err := drawgate.New(g.Full(), drawgate.PerMinute("api", 60), nil)
//
// # When the store counts as unavailable
//
// A store is unavailable if it does not answer in time, cannot be reached, or says that it cannot
// decide. A failure is never a refusal: the guard decides the take that met it, from the first
// failure on. After three failures in a row the breaker opens and callers are no longer sent to the
// store. The guard then tries the store in the background, after pauses of 0.1 s that grow to 1 s,
// until it can be written again. So the store decides again within two seconds. Mistakes of
// callers, a closed store and a caller that gives up are not failures.
//
// # What is admitted during an outage
//
// Each limit's [drawgate.Fallback] decides: nothing (closed), this process's share (share), or
// everything (open). Shares are counted by limits of the same kinds, which record what this process
// was admitted even while the store works, so a share that was used before the outage stays used. A
// process does not know what earlier processes admitted; unless a policy says otherwise, it assumes
// that they used the share at the moment when it started: see [drawgate.Start]. A take is admitted
// by all of its limits, in all of its buckets, or not at all. [Bound] returns the worst case.
//
// A decision made by the guard has Fallback set. A refusal has the reason [drawgate.Limited] if a
// share is used up, [drawgate.Paused] if a bucket is paused, and [drawgate.Unavailable] if a limit
// admits nothing, or nothing of that size, without the store.
//
// # When the store is back
//
// Before the store decides about a bucket again, it receives what the guard admitted during the
// outage: units as a charge, in calendar windows that are still open and otherwise at the time of
// delivery; open reservations as reservations, under their own grants; pauses. If the answer to a
// charge is lost it is sent again. On Redis it counts once, because what the guard sends has a
// grant there; elsewhere, and with [Options.NoRecovery], it may count twice, but never too little.
//
// If the store carried out a take and lost its answer, and was away until the hold had ended, it
// counts there as used. Stores that remember such holds, as all of ours for an hour, give that back
// when the guard has charged what was used; others count it twice, never too little. See
// [State.Miscounted].
//
// # Reservations
//
// A reservation that the guard gave is settled, cancelled and renewed by the guard, and by the
// store once the store has it. A settlement or cancellation of a reservation that the store gave is
// kept and delivered when the store is back: it names a grant, so it counts once. A renewal of such
// a reservation fails with a [store.Error], because only the store can extend it. A take
// with an ID that may have reached the store, and that nobody uses, is cancelled in the background.
//
// Pending items are lost with the process. Holds then end by themselves, and count as used.
//
// The logic is a pure state machine, in internal/ledger. One lock guards it, and is never held
// while the store is called.
package guard
