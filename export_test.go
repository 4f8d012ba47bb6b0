package drawgate

import (
	"time"

	"github.com/drawgate/drawgate/store"
)

// Actual is actual.
func (p *Plan) Actual(costs []Cost) (store.Amounts, error) { return p.actual(costs) }

// HoldEnd is holdEnd.
func (d *Decision) HoldEnd() time.Time { return d.holdEnd() }

// WakeLate makes every timer of those who wait late by d.
func (l *Limiter) WakeLate(d time.Duration) { l.queue.late = d }
