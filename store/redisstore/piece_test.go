package redisstore

import (
	"testing"

	"github.com/drawgate/drawgate/store"
)

// TestPieces: what is to stay with the next request is in the same batch, however large it gets,
// and a batch is small if its requests name many who wait behind them.
func TestPieces(t *testing.T) {
	t.Parallel()
	of := func(buckets ...int) (reqs []*request) { // a negative number stays with the next one
		for _, n := range buckets {
			reqs = append(reqs, &request{op: opTake, buckets: make([]store.BucketCost, max(n, -n)), stays: n < 0})
		}
		return reqs
	}
	naming := func(n int) []*request { // each so many
		reqs := of(1, 1, 1, 1, 1, 1, 1, 1)
		for _, r := range reqs {
			r.take = &store.Take{Ticket: &store.Ticket{Next: make([]store.Next, n)}}
		}
		return reqs
	}
	for _, c := range []struct {
		reqs []*request
		want int
	}{
		{of(1), 1},
		{of(64), 1},
		{of(8, 8, 8), 3},
		{of(8, 8, 8, 8), 3},
		{of(-8, 8, -8, 8), 2},
		{of(-20, 20), 2},
		{of(-20, 20, 1), 2},
		{of(1, -20, 20), 1},
		{naming(0), 8},
		{naming(31), 2},
		{naming(store.MaxNext), 1},
	} {
		if got := piece(c.reqs); got != c.want {
			t.Errorf("%d requests: the first %d go together, want %d", len(c.reqs), got, c.want)
		}
	}
}
