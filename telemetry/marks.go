package telemetry

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/drawgate/drawgate"
)

// Marks remember which milestones of which buckets were reached, in a hash table of fixed size.
// Each limit of a bucket hashes to a home of a few places. When all of them are taken, the oldest
// mark is replaced, and its bucket may report the same milestone again.
const (
	homes    = 4096 // a power of two
	places   = 8    // of a home
	stripes  = 64   // locks
	rearm    = 10   // usage must fall this many per cent below a milestone before it can be reached again
	interest = 50 - rearm
)

// marks is safe for concurrent use and allocates once.
type marks struct {
	seed  maphash.Seed
	some  atomic.Int64 // marks in the table
	table []home
	locks [stripes]sync.Mutex // of the homes
}

type home [places]mark

// mark is what is remembered of one limit of one bucket. Times are Unix microseconds.
type mark struct {
	hash  uint64 // 0: the place is free
	since int64  // when a milestone was reached last
	end   int64  // of the window, for a calendar limit
	level int8   // milestones that are reached
	low   int8   // the least usage since, in per cent
}

func newMarks() *marks { return &marks{seed: maphash.MakeSeed(), table: make([]home, homes)} }

// look is one look at a limit of a bucket.
type look struct {
	key   *drawgate.Key
	limit int   // position in the policy
	used  int64 // in per cent of what may be used
	at    int64 // Unix microseconds
	end   int64 // of the window, for a calendar limit; otherwise 0
	quiet int64 // at least this long between two reports of one milestone, in µs
}

// reach returns which milestones this look reaches for the first time: those at positions [from,
// to).
func (s *marks) reach(l *look) (from, to int) {
	if l.used < interest && s.some.Load() == 0 {
		return 0, 0
	}
	hash := s.hash(l)
	h := &s.table[hash%homes]
	mu := &s.locks[hash%stripes]
	mu.Lock()
	defer mu.Unlock()
	k := h.find(hash)
	if k == nil {
		if l.used < milestones[0] {
			return 0, 0
		}
		if k = h.oldest(); k.hash == 0 {
			s.some.Add(1)
		}
		*k = mark{hash: hash, end: l.end}
	}
	k.settle(l)
	from, to = int(k.level), reached(l.used)
	if to > from {
		k.level, k.since, k.low = int8(to), l.at, int8(min(l.used, 100))
		return from, to
	}
	if k.level == 0 && l.used < interest {
		*k = mark{}
		s.some.Add(-1)
	}
	return 0, 0
}

// would reports whether reach would return milestones for this look. It changes nothing.
func (s *marks) would(l *look) bool {
	hash := s.hash(l)
	mu := &s.locks[hash%stripes]
	mu.Lock()
	defer mu.Unlock()
	var k mark
	if found := s.table[hash%homes].find(hash); found != nil {
		k = *found
	}
	k.settle(l)
	return reached(l.used) > int(k.level)
}

// hash returns the hash of a limit of a bucket, which is never 0.
func (s *marks) hash(l *look) uint64 {
	// any odd number: the limits of a bucket are apart
	return max(1, maphash.Comparable(s.seed, *l.key)+uint64(l.limit+1)*0x9E3779B97F4A7C15)
}

// find returns the mark with that hash, and nil if there is none.
func (h *home) find(hash uint64) *mark {
	for i := range h {
		if h[i].hash == hash {
			return &h[i]
		}
	}
	return nil
}

// oldest returns a free place, or else that of the oldest mark.
func (h *home) oldest() *mark {
	o := &h[0]
	for i := range h {
		if h[i].hash == 0 {
			return &h[i]
		}
		if h[i].since < o.since {
			o = &h[i]
		}
	}
	return o
}

// settle takes back the milestones that may be reached again. In a new window of a calendar limit
// these are all of them. Otherwise they are those that usage has fallen well below, if none was
// reported for long enough.
func (k *mark) settle(l *look) {
	if l.end > k.end {
		k.level, k.end = 0, l.end
		return
	}
	if l.end != 0 {
		return
	}
	k.low = int8(min(int64(k.low), l.used))
	if l.at-k.since < l.quiet {
		return
	}
	for k.level > 0 && int64(k.low) < milestones[k.level-1]-rearm {
		k.level--
	}
}

// reached returns how many milestones a usage has reached.
func reached(used int64) (n int) {
	for n < len(milestones) && used >= milestones[n] {
		n++
	}
	return n
}
