package drawgate

import "github.com/drawgate/drawgate/store"

// Fallback says what a limit admits while the store is unavailable. Package guard carries it out; a
// limiter on a bare store reports [ErrStoreUnavailable] instead.
type Fallback = store.Fallback

const (
	// FallbackDefault means the policy's fallback; for a policy it means FallbackShare if the
	// number of instances is known, and FallbackClosed otherwise.
	FallbackDefault = store.FallbackDefault
	// FallbackClosed admits nothing, so the limit is never exceeded.
	FallbackClosed = store.FallbackClosed
	// FallbackShare admits this instance's share, the amount divided by the number of instances,
	// counting what the instance admitted before. A share below one unit is none.
	FallbackShare = store.FallbackShare
	// FallbackOpen does not apply the limit: there is no bound on what is admitted.
	FallbackOpen = store.FallbackOpen
)

// Start says what a process that does not know a bucket's usage may admit of its share of it while
// the store is unavailable. That is so if it has started since, or if it started so short a time
// before that it has not met the bucket. What the store has answered about the bucket is known.
type Start = store.Start

const (
	// StartDefault means the guard's: see the options of package guard.
	StartDefault = store.StartDefault
	// StartClosed admits nothing of what may have been used before the process started: the share
	// counts as used at that instant.
	StartClosed = store.StartClosed
	// StartCold admits a part of the share at once, the share divided by the number of instances
	// (at least by 2), and at least one unit. The rest counts as used when the process started.
	StartCold = store.StartCold
	// StartFull admits the whole share at once. It is for the only process that uses a store.
	StartFull = store.StartFull
)
