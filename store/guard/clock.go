package guard

import (
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/internal/ledger"
	"github.com/drawgate/drawgate/store"
)

// clock is the process's clock, adjusted to the store's.
type clock struct {
	epoch  time.Time
	base   int64        // epoch in Unix µs
	offset atomic.Int64 // µs by which the store's clock is ahead
}

func (c *clock) init() {
	c.epoch = time.Now()
	c.base = c.epoch.UnixMicro()
}

func (c *clock) now() ledger.Now {
	own := int64(time.Since(c.epoch)/time.Microsecond) + 1
	return ledger.Now{Own: own, Store: c.base + own - 1 + c.offset.Load()}
}

// learn adjusts the clock to an answer of the store. It is never ahead of the store's clock, and
// behind by at most one round trip.
func (c *clock) learn(d *store.Verdict) {
	const near = 10_000 // µs
	off := d.At().UnixMicro() - c.base - int64(time.Since(c.epoch)/time.Microsecond)
	if diff := off - c.offset.Load(); diff > near || diff < 0 {
		c.offset.Store(off)
	}
}
