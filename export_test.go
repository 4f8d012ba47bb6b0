package drawgate

import "time"

// WakeLate makes every timer of those who wait late by d.
func (l *Limiter) WakeLate(d time.Duration) { l.queue.late = d }
