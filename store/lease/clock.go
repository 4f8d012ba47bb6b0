package lease

import "time"

// clock is the process's clock. The monotonic clock stands still while the machine is suspended,
// and the wall clock does not: a lease is dropped if the latter has gained on the former since it
// was asked for. That also drops leases when the wall clock is set, which costs at most their
// units. It costs no system call, as CLOCK_BOOTTIME would for every decision.
type clock struct{ epoch time.Time }

func newClock() clock { return clock{time.Now()} }

func (c clock) now() moment {
	t := time.Now()
	at := int64(t.Sub(c.epoch))
	return moment{at: at + 1, jump: t.UnixNano() - c.epoch.UnixNano() - at}
}
