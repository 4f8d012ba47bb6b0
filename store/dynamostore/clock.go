package dynamostore

import (
	"fmt"
	"sync"
	"time"
)

// clock knows the service's clock from the Date of its answers, which is in whole seconds.
//
// An answer with Date D to a call that was sent at s and received at r, on our clock, says that the
// service's clock is between D - r and D + 1 s - s ahead of ours. Each answer narrows the interval;
// with time it widens, because clocks drift.
//
// Our clock is the monotonic one, which nobody sets. It stands still while some machines are
// suspended. The wall clock does not: if the two disagree, either we were suspended or somebody has
// set the wall clock, and the interval widens by as much as they disagree.
type clock struct {
	fixed func() instant // for tests: what it says; else nil
	real  func() reading
	zero  int64 // what local adds to the monotonic clock

	mu    sync.Mutex
	known bool
	low   int64   // µs
	high  int64   // µs
	at    reading // when low and high were right
}

// reading is what the two clocks of this machine say, in µs.
type reading struct {
	monotonic int64 // since some instant
	wall      int64 // Unix
}

// instant is what the clock says: the service's clock is at Early or later, by at most Blur µs.
type instant struct{ early, blur int64 }

const (
	drift   = 2000           // one part in this many: clocks of machines differ by less
	maxBlur = 2 * 1_000_000  // µs
	maxSkew = 30 * 1_000_000 // µs
	grain   = 10 * 1_000     // µs: blur is rounded up to it, so that few plans are made
)

func newClock() *clock {
	began := time.Now()
	return &clock{zero: began.UnixMicro(), real: func() reading {
		t := time.Now()
		return reading{monotonic: t.Sub(began).Microseconds(), wall: t.UnixMicro()}
	}}
}

// local returns our clock, in Unix µs as of its start.
func (c *clock) local(r reading) int64 { return c.zero + r.monotonic }

// now returns the instant, or false if an answer of the service is needed first.
func (c *clock) now() (instant, bool) {
	if c.fixed != nil {
		return c.fixed(), true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.real()
	if !c.known {
		return instant{}, false
	}
	age := wider(c.at, r)
	blur := (c.high-c.low+2*age)/grain*grain + grain
	if blur > maxBlur {
		return instant{}, false
	}
	return instant{early: c.local(r) + c.low - age, blur: blur}, true
}

// wider returns by how much more an estimate may be wrong after the time between two readings: by
// the clocks' drift, and by what the machine may have been suspended.
func wider(from, to reading) int64 {
	monotonic, wall := to.monotonic-from.monotonic, to.wall-from.wall
	return monotonic/drift + max(wall-monotonic, monotonic-wall)
}

// learn narrows the interval by an answer. It returns an error if our wall clock is so wrong that
// the service would soon refuse our signatures.
func (c *clock) learn(sent, received reading, date time.Time) error {
	if c.fixed != nil || date.IsZero() {
		return nil
	}
	age := wider(sent, received)
	low := date.UnixMicro() - c.local(received) - age
	high := date.UnixMicro() + 1_000_000 - c.local(sent) + age
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known {
		age := wider(c.at, received) + 1
		if l, h := max(low, c.low-age), min(high, c.high+age); l <= h {
			low, high = l, h
		}
	}
	c.known, c.low, c.high, c.at = true, low, high, received
	if ahead := received.wall - date.UnixMicro(); ahead < -maxSkew || ahead > maxSkew+1_000_000 {
		c.known = false
		return fmt.Errorf("%w: this machine's clock is %v off: set it, for example by NTP", errSkew,
			microseconds(ahead).Round(time.Second))
	}
	return nil
}

// late reports whether the service's clock, by the Date of an answer, was beyond what an instant
// allows: then the process was suspended or its clock set between reading the clock and sending,
// and what the call did is dated wrongly.
func (c *clock) late(at instant, date time.Time) bool {
	if c.fixed != nil {
		return false
	}
	if date.IsZero() {
		return c.over(at)
	}
	d := date.UnixMicro()
	return d > at.early+at.blur+lateAfter || d+1_000_000 < at.early
}

// over reports whether what was decided for an instant may be carried out too late by now.
func (c *clock) over(at instant) bool {
	now, ok := c.now()
	return !ok || now.early > at.early+at.blur+lateAfter
}

// problem says why the clock does not know the time although it has just had an answer.
func (c *clock) problem() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return fmt.Errorf("%w: its answers have no Date", errSkew)
	}
	return errSlow
}

// lateAfter is how long a call may take, in µs, from reading the clock to its execution.
const lateAfter = 1_000_000
