package gateway

import (
	"strconv"
	"testing"
	"time"
)

// TestRoll: in a day at most 100,000 keys of an issuer may be used; those that were stay usable,
// and the next day begins anew.
func TestRoll(t *testing.T) {
	t.Parallel()
	var r roll
	now := time.Date(2027, 1, 31, 12, 0, 0, 0, time.UTC)
	passed := 0
	const more = 1000
	for i := range maxNamed + more {
		if r.admit(strconv.Itoa(i), now) {
			passed++
		}
	}
	if passed < maxNamed || passed > maxNamed+1 || len(r.sums) != maxNamed {
		t.Errorf("%d of %d passed, and %d are kept, want %d", passed, maxNamed+more, len(r.sums), maxNamed)
	}
	if !r.admit("0", now.Add(time.Hour)) {
		t.Error("a key that was used today is refused")
	}
	if !r.admit("new", now.Add(12*time.Hour)) || len(r.sums) != 1 {
		t.Errorf("the next day keeps %d keys, want 1", len(r.sums))
	}
}
