package drawgate

import "github.com/drawgate/drawgate/store"

// Fallback says what a limit admits while the store is unavailable. An instance's share is the
// amount divided by the number of instances. Package guard carries it out; on a bare store a
// limiter reports [ErrStoreUnavailable].
type Fallback = store.Fallback

const (
	FallbackDefault = store.FallbackDefault // the policy's; of a policy: share if instances are known, or closed
	FallbackClosed  = store.FallbackClosed  // nothing, so the limit is never exceeded
	FallbackShare   = store.FallbackShare   // this instance's share, less what it admitted before; below one unit none
	FallbackOpen    = store.FallbackOpen    // the limit does not apply: there is no bound on what is admitted
)

// Start says what a process that does not know a bucket's usage, because it has started since or
// had not met the bucket before, may admit of its share of it while the store is unavailable.
type Start = store.Start

const (
	StartDefault = store.StartDefault // the guard's: see the options of package guard
	StartClosed  = store.StartClosed  // nothing that may have been used before: the share counts as used
	StartCold    = store.StartCold    // share/instances (at most half), at least a unit; the rest counts as used
	StartFull    = store.StartFull    // the whole share, at once: for the only process that uses a store
)
