//go:build amd64 || arm64

package cells

// prefetch asks for the memory at an address, without waiting for it. Any address is allowed.
func prefetch(address uint64)
