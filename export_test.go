package drawgate

import "time"

// Actual is actual.
func (p *Plan) Actual(costs []Cost) (Amounts, error) { return p.actual(costs) }

// WakeLate makes every timer of those who wait late by d.
func (l *Limiter) WakeLate(d time.Duration) { l.queue.late = d }
