package queue

import "time"

// Clock says how far another clock is ahead of this process's, as far as answers tell. The zero
// value knows nothing.
type Clock struct {
	ahead time.Duration // at most
	known bool
}

// Add notes that it was at by the other clock at some instant between sent and received. The least
// bound is kept: that of the quickest question. An answer that contradicts it shows that one of the
// clocks was set, or stood still: then the bound rises.
func (c *Clock) Add(sent, at, received time.Duration) {
	if !c.known || at-sent < c.ahead || c.ahead < at-received {
		c.ahead, c.known = at-sent, true
	}
}

// Latest returns what the other clock shows, at the latest, when this one shows at.
func (c *Clock) Latest(at time.Duration) (_ time.Duration, known bool) { return at + c.ahead, c.known }
