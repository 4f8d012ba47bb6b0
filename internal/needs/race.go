//go:build race

package needs

// Race reports whether the race detector is at work, which slows a test down and allocates.
const Race = true
