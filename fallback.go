package drawgate

// Fallback says what a limit admits while the store is unavailable. Package guard carries it out; a
// limiter on a bare store reports [ErrStoreUnavailable] instead.
type Fallback uint8

const (
	// FallbackDefault is the policy's; for a policy it is FallbackShare where the number of
	// instances is known, and FallbackClosed otherwise.
	FallbackDefault Fallback = iota
	// FallbackClosed admits nothing: never over the limit.
	FallbackClosed
	// FallbackShare admits this instance's share, the amount divided by the number of instances,
	// counting what the instance admitted before. A share below one unit is none.
	FallbackShare
	// FallbackOpen lets the limit step aside: what is admitted has no bound.
	FallbackOpen
)

// String returns the name used in configuration files; "" for FallbackDefault.
func (f Fallback) String() string { return [...]string{"", "closed", "share", "open"}[min(f, 3)] }
