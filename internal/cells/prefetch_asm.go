//go:build amd64 || arm64

package cells

// prefetch asks for the memory at an address, and does not wait for it. Any address will do.
func prefetch(address uint64)
