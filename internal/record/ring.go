package record

// Entry is a group of units that a rolling limit counts together: N units, of which the first take
// was counted at First and the last at Last. All of them count until Last plus the window.
type Entry struct{ First, Last, N int64 }

// Ring is a queue of entries in the order of First. The zero value is empty.
//
// The newest entry, which nearly every take changes, is stored in the ring itself.
type Ring struct {
	n, head uint32
	last    Entry   // the newest, if there is one
	due     int64   // every entry's Last is at or after it
	buf     []Entry // the others; len is a power of two, or 0
}

// Len returns the number of entries.
func (r *Ring) Len() int { return int(r.n) }

// At returns entry i, 0 being the oldest. The pointer is valid until the next Push or Pop.
func (r *Ring) At(i int) *Entry {
	if i == int(r.n)-1 {
		return &r.last
	}
	return &r.buf[(int(r.head)+i)&(len(r.buf)-1)]
}

// Push adds the newest entry.
func (r *Ring) Push(e Entry) {
	if r.n == 0 {
		r.due = e.Last
	} else {
		r.shelve()
	}
	r.n++
	r.last = e
}

// shelve moves the newest entry to the others.
func (r *Ring) shelve() {
	older := int(r.n) - 1
	if older == len(r.buf) {
		buf := make([]Entry, max(4, 2*older))
		for i := range older {
			buf[i] = *r.At(i)
		}
		r.buf, r.head = buf, 0
	}
	r.buf[(int(r.head)+older)&(len(r.buf)-1)] = r.last
}

// Pop removes the oldest entry. A large ring releases its memory when it becomes empty.
func (r *Ring) Pop() {
	r.n--
	if r.n != 0 {
		r.head = (r.head + 1) & uint32(len(r.buf)-1)
	} else if len(r.buf) > 1024 {
		*r = Ring{}
	}
}

// Find returns the entry whose First is first, or nil.
func (r *Ring) Find(first int64) *Entry {
	lo, hi := 0, r.Len()
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if r.At(mid).First < first {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < r.Len() && r.At(lo).First == first {
		return r.At(lo)
	}
	return nil
}
