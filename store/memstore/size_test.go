package memstore_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

// sizes are the buckets whose memory is told in docs/configuration.md: the bytes of one are at most
// most.
var sizes = []struct {
	name   string
	limits []drawgate.Limit
	key    int  // bytes
	takes  int  // of each bucket, far enough apart to be entries of their own
	hold   bool // a reservation is open
	part   int  // of as many buckets as there are: one such is large
	most   int64
}{
	{
		name: "one bucket limit", limits: []drawgate.Limit{bucketLimit(200, 24*time.Hour)}, key: 16, takes: 1, part: 1,
		most: 130,
	},
	{
		name: "one bucket limit, a key of 200 bytes", limits: []drawgate.Limit{bucketLimit(200, 24*time.Hour)},
		key:   200,
		takes: 1, part: 1, most: 350,
	},
	{
		name: "one rolling limit, used once", limits: []drawgate.Limit{rollingLimit(200, 10*time.Hour)}, key: 16,
		takes: 1,
		part:  1, most: 700,
	},
	{
		name: "one rolling limit, used 10 times", limits: []drawgate.Limit{rollingLimit(200, 10*time.Hour)}, key: 16,
		takes: 10, part: 10, most: 1200,
	},
	{
		name: "one rolling limit, used 100 times", limits: []drawgate.Limit{rollingLimit(200, 10*time.Hour)}, key: 16,
		takes: 100, part: 40, most: 5000,
	},
	{name: "one calendar limit", limits: []drawgate.Limit{dayLimit(200)}, key: 16, takes: 1, part: 1, most: 700},
	{name: "three limits, used once", limits: []drawgate.Limit{
		bucketLimit(200, 24*time.Hour),
		rollingLimit(200, 10*time.Hour), dayLimit(200),
	}, key: 16, takes: 1, part: 1, most: 1200},
	{
		name: "one bucket limit, one open reservation", limits: []drawgate.Limit{bucketLimit(200, 24*time.Hour)},
		key:   16,
		takes: 1, hold: true, part: 10, most: 2000,
	},
}

func dayLimit(n int64) drawgate.Limit {
	return drawgate.Limit{Name: "day", Kind: drawgate.Calendar, Amount: n, Every: drawgate.Day}
}

// TestSizeOfABucket: buckets of each kind take no more than the documentation says, and nothing
// once they have expired. It logs the figures; with DRAWGATE_LONG=1 of 200,000 buckets, as in
// docs/results/memory.txt. The heap is counted after a collection, so that no other test may run.
func TestSizeOfABucket(t *testing.T) { //nolint:paralleltest // it counts the memory of the process
	needs.NoRace(t)
	all := needs.Rounds(4_000, 20_000, 200_000)
	for _, c := range sizes {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := max(all/c.part, 300) // the store does not look for unused ones among fewer than 256
				plan := compile(t, "p", c.limits...)
				empty := heap()
				s := memstore.New(nil)
				defer s.Close()
				cl := client{s, plan, t}
				for range c.takes {
					for i := range n {
						name := fmt.Sprintf("%0*d", c.key, i)
						d, err := cl.local(name, 1)
						if c.hold {
							d, err = cl.take(store.Take{ID: "job", Hold: 10 * time.Hour, Buckets: cl.costs(name, 1)})
						}
						if err != nil || !d.Allowed {
							t.Fatal(d.Allowed, err)
						}
					}
					time.Sleep(5 * time.Minute) // apart, at the default precision
				}
				full := heap()
				if size := (full - empty) / int64(n); size > c.most {
					t.Errorf("%d bytes a bucket, more than %d", size, c.most)
				} else {
					t.Logf("%8d buckets: %5d bytes each, %5d MB", n, size, (full-empty)>>20)
				}
				for i := 0; c.hold && i < n; i++ {
					if !cl.settle(store.OpCancel, "job", fmt.Sprintf("%0*d", c.key, i), 0) {
						t.Fatalf("reservation %d is gone", i)
					}
				}
				time.Sleep(48 * time.Hour) // all have expired
				synctest.Wait()
				left := heap() - empty
				if left > int64(all)*10 {
					t.Errorf("%d bytes are left of %d", left, full-empty)
				}
				t.Logf("%8d bytes are left when they have expired", left)
				runtime.KeepAlive(s)
			})
		})
	}
}
