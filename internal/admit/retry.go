package admit

import (
	"time"

	"github.com/drawgate/drawgate"
)

// slotRetry is when a take that only a concurrency limit refuses may be tried again. It is unknown
// when slots come free: their holders give them back early, or renew their holds.
const slotRetry = time.Second

// RetryAfter returns after how long the same take would pass if nothing else happened; at least a
// millisecond. It is false if the take is allowed, or can never pass.
func RetryAfter(d *drawgate.Decision) (time.Duration, bool) {
	if d.Allowed || d.RetryAfter >= drawgate.Never/2 { // more than a century: a prepaid budget
		return 0, false
	}
	wait, slots := time.Duration(0), false
	for r := range d.Limits() {
		switch {
		case !r.Refused():
		case r.Limit.Kind == drawgate.Concurrency:
			slots = true
		default:
			wait = max(wait, r.RetryAfter)
		}
	}
	if slots && d.Reason != drawgate.Paused {
		return max(wait, slotRetry), true
	}
	return max(d.RetryAfter, time.Millisecond), true
}

// Seconds returns a duration in seconds, rounded up; 0 for one that is negative.
func Seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}
