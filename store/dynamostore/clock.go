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
// suspended; the wall clock shows that, and the interval is forgotten.
type clock struct {
	fixed func() instant // for tests: what it says; else nil

	mu    sync.Mutex
	began time.Time
	zero  int64 // our clock at began, in Unix µs
	known bool
	low   int64     // µs
	high  int64     // µs
	at    time.Time // when low and high were right
}

// instant is what the clock says: the service's clock is at Early or later, by at most Blur µs.
type instant struct{ early, blur int64 }

const (
	drift    = 2000           // one part in this many: clocks of machines differ by less
	maxBlur  = 2 * 1_000_000  // µs
	maxSkew  = 30 * 1_000_000 // µs
	maxSleep = 100 * 1_000    // µs: by how much wall and monotonic clock may differ since the last answer
	grain    = 10 * 1_000     // µs: blur is rounded up to it, so that few plans are made
)

func newClock() *clock {
	now := time.Now()
	return &clock{began: now, zero: now.UnixMicro()}
}

// local returns our clock at t, in Unix µs as of its start.
func (c *clock) local(t time.Time) int64 { return c.zero + t.Sub(c.began).Microseconds() }

// now returns the instant, or false if an answer of the service is needed first.
func (c *clock) now() (instant, bool) {
	if c.fixed != nil {
		return c.fixed(), true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := time.Now()
	if !c.known || slept(c.at, t) {
		return instant{}, false
	}
	age := t.Sub(c.at).Microseconds() / drift
	local := c.local(t)
	blur := (c.high-c.low+2*age)/grain*grain + grain
	if blur > maxBlur {
		return instant{}, false
	}
	return instant{early: local + c.low - age, blur: blur}, true
}

// slept reports whether the machine was suspended, or its wall clock set, between two instants.
func slept(from, to time.Time) bool {
	d := to.Round(0).Sub(from.Round(0)).Microseconds() - to.Sub(from).Microseconds()
	return d > maxSleep || d < -maxSleep
}

// learn narrows the interval by an answer. It returns an error if our wall clock is so wrong that
// the service would soon refuse our signatures.
func (c *clock) learn(sent, received, date time.Time) error {
	if c.fixed != nil || date.IsZero() {
		return nil
	}
	low := date.UnixMicro() - c.local(received)
	high := date.UnixMicro() + 1_000_000 - c.local(sent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known && !slept(c.at, received) {
		age := received.Sub(c.at).Microseconds()/drift + 1
		if l, h := max(low, c.low-age), min(high, c.high+age); l <= h {
			low, high = l, h
		}
	}
	c.known, c.low, c.high, c.at = true, low, high, received
	if wall := date.Sub(received.Round(0)); wall > maxSkew*time.Microsecond || wall < -(maxSkew+1_000_000)*time.Microsecond {
		c.known = false
		return fmt.Errorf("%w: this machine's clock is %v off: set it, for example by NTP", errSkew, (-wall).Round(time.Second))
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
