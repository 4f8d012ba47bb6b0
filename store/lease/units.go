package lease

import (
	"sync/atomic"

	"github.com/drawgate/drawgate/store"
)

// closed is what is left of a lease that was closed.
const closed = -1

// units is what is left of one lease. Any number of goroutines spend it; one of them closes it. All
// instants are in ns of the process's clock.
type units struct {
	left  [store.MaxLimits]atomic.Int64 // per limit; closed once it is closed
	limit int                           // number of limits

	id       string
	grant    store.Grant
	granted  store.Amounts
	low      store.Amounts // if less is left, it is time to ask for the next one
	deadline int64         // nothing is spent later
	end      int64         // the hold ends in the store, no earlier than this
	jump     int64         // by how much the wall clock was ahead of the process's clock when it was asked for
	refresh  int64         // from then on it is time to ask for the next one

	answer  store.Answer // what the verdict said of the bucket
	at      int64        // when the verdict came
	stamp   int64        // the verdict's Now, in Unix µs
	partial bool         // less was granted than was asked for: the limit is near
}

func newUnits(granted store.Amounts, limits int) *units {
	u := &units{granted: granted, limit: limits}
	for j := range limits {
		u.left[j].Store(granted[j])
	}
	return u
}

// spend takes n units off, of all limits or none. It reports whether it did, and whether it is time
// to ask for the next lease. It does not look at the clock: that must be done afterwards.
func (u *units) spend(n *store.Amounts) (ok, low bool) {
	for j := range u.limit {
		if n[j] == 0 {
			continue
		}
		left, ok := take(&u.left[j], n[j])
		if !ok {
			u.undo(n, j)
			return false, true
		}
		low = low || left < u.low[j]
	}
	return true, low
}

// take takes n off, unless less is left.
func take(v *atomic.Int64, n int64) (left int64, ok bool) {
	for {
		left := v.Load()
		if left < n {
			return 0, false
		}
		if v.CompareAndSwap(left, left-n) {
			return left - n, true
		}
	}
}

// undo puts back what was taken off the first limits. If the lease was closed meanwhile, they count
// as spent.
func (u *units) undo(n *store.Amounts, limits int) {
	for j := range limits {
		for left := u.left[j].Load(); n[j] > 0 && left != closed; left = u.left[j].Load() {
			if u.left[j].CompareAndSwap(left, left+n[j]) {
				break
			}
		}
	}
}

// close lets nothing more be spent, and returns what was. It is called once.
func (u *units) close() (spent store.Amounts) {
	for j := range u.limit {
		spent[j] = u.granted[j] - u.left[j].Swap(closed)
	}
	return spent
}

// rest returns what is left of limit j.
func (u *units) rest(j int) int64 { return max(0, u.left[j].Load()) }
