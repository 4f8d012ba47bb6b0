package drawgate

// Fallback says what a limit admits while the store is unavailable. Package guard carries it out; a
// limiter on a bare store reports [ErrStoreUnavailable] instead.
type Fallback uint8

const (
	// FallbackDefault means the policy's fallback; for a policy it means FallbackShare if the
	// number of instances is known, and FallbackClosed otherwise.
	FallbackDefault Fallback = iota
	// FallbackClosed admits nothing, so the limit is never exceeded.
	FallbackClosed
	// FallbackShare admits this instance's share, the amount divided by the number of instances,
	// counting what the instance admitted before. A share below one unit is none.
	FallbackShare
	// FallbackOpen does not apply the limit: there is no bound on what is admitted.
	FallbackOpen
)

// String returns the name used in configuration files; "" for FallbackDefault.
func (f Fallback) String() string { return [...]string{"", "closed", "share", "open"}[min(f, 3)] }
