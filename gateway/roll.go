package gateway

import (
	"hash/maphash"
	"sync"
	"time"
)

// maxNamed is how many different keys an issuer's tokens may name in a day: as many as a file can
// have. Each of them has buckets, and memory for what it spends. An issuer at which everybody can
// sign up must not let these grow without end.
const maxNamed = 100_000

// roll counts the names of keys that an issuer's tokens had today (UTC). It keeps a sum of each,
// not the name. Two names with the same sum count once, which lets one more pass. The zero value is
// ready to use.
type roll struct {
	mu   sync.Mutex
	day  int64               // guarded by mu: since 1970
	seed maphash.Seed        // guarded by mu: of the day
	sums map[uint64]struct{} // guarded by mu
}

// admit reports whether a key may be used: it was today, or there is room for one more.
func (r *roll) admit(name string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if day := now.Unix() / (24 * 60 * 60); r.sums == nil || day != r.day {
		r.day, r.seed, r.sums = day, maphash.MakeSeed(), map[uint64]struct{}{}
	}
	sum := maphash.String(r.seed, name)
	if _, known := r.sums[sum]; known {
		return true
	}
	if len(r.sums) >= maxNamed {
		return false
	}
	r.sums[sum] = struct{}{}
	return true
}
