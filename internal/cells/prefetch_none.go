//go:build !amd64 && !arm64

package cells

func prefetch(uint64) {}
