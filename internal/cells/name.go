package cells

import (
	"hash/maphash"
	"strings"
)

// inCell is the most bytes of a name that a cell holds itself, so that a cell fills a cache line:
// UUIDs and IPv6 addresses fit.
const inCell = 39

// nameCopy is a copy of a bucket's name. The caller's string is not kept, because it may be part of
// something large, such as all headers of a request.
//
// A short name is in the cell itself: comparing it touches no memory that the decision does not
// need anyway.
type nameCopy struct {
	long  *string // nil if it is short
	size  uint8
	short [inCell]byte
}

func copyName(name string) (n nameCopy) {
	if len(name) > inCell {
		long := strings.Clone(name)
		n.long = &long
		return n
	}
	n.size = uint8(copy(n.short[:], name))
	return n
}

func (n *nameCopy) is(name string) bool {
	if n.long != nil {
		return *n.long == name
	}
	return string(n.short[:n.size]) == name // compared without an allocation
}

func (n *nameCopy) hash(seed maphash.Seed) uint64 {
	if n.long != nil {
		return maphash.String(seed, *n.long)
	}
	return maphash.Bytes(seed, n.short[:n.size])
}

func (n *nameCopy) String() string {
	if n.long != nil {
		return *n.long
	}
	return string(n.short[:n.size])
}
