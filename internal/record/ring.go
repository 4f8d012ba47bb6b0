package record

// Entry is what a rolling limit counts together: N units whose first take was counted at First and whose last at Last.
// All of it counts until Last plus the window.
type Entry struct{ First, Last, N int64 }

// Ring is a queue of entries in the order of First. The zero value is empty.
type Ring struct {
	buf  []Entry // len is a power of two, or 0
	head int
	n    int
}

// Len returns the number of entries.
func (r *Ring) Len() int { return r.n }

// At returns entry i, 0 being the oldest. The pointer is valid until the next Push.
func (r *Ring) At(i int) *Entry { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

// newest returns the newest entry of a ring that is not empty.
func (r *Ring) newest() *Entry { return &r.buf[(r.head+r.n-1)&(len(r.buf)-1)] }

// Push adds the newest entry.
func (r *Ring) Push(e Entry) {
	if r.n == len(r.buf) {
		buf := make([]Entry, max(4, 2*len(r.buf)))
		for i := range r.n {
			buf[i] = *r.At(i)
		}
		r.buf, r.head = buf, 0
	}
	r.n++
	*r.At(r.n - 1) = e
}

// Pop removes the oldest entry. A ring that has become empty gives its memory back once it is large.
func (r *Ring) Pop() {
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	if r.n == 0 && len(r.buf) > 1024 {
		*r = Ring{}
	}
}

// Find returns the entry whose First is first, or nil.
func (r *Ring) Find(first int64) *Entry {
	lo, hi := 0, r.n
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if r.At(mid).First < first {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < r.n && r.At(lo).First == first {
		return r.At(lo)
	}
	return nil
}
