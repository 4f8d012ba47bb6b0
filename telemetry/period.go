package telemetry

import (
	"fmt"
	"time"

	"github.com/drawgate/drawgate"
)

// Period names a limit's window as the label "period" does: "second", "minute", "hour", "day",
// "week" or "month" for a calendar limit of that length and for a window of 1s, 1m, 1h, 24h, 7 days
// or 30 days; otherwise the window's length, such as "10s", "90m" or "36h"; "total" for what never
// ends; and "open" for a concurrency limit, which counts what is open at once.
func Period(l *drawgate.Limit) string {
	switch l.Kind {
	case drawgate.Calendar:
		return l.Every.String()
	case drawgate.Concurrency:
		return "open"
	}
	const day = 24 * time.Hour
	switch l.Window {
	case time.Second:
		return "second"
	case time.Minute:
		return "minute"
	case time.Hour:
		return "hour"
	case day:
		return "day"
	case 7 * day:
		return "week"
	case 30 * day:
		return "month"
	}
	return length(l.Window)
}

// length writes a window in the largest unit that divides it.
func length(d time.Duration) string {
	for _, u := range [...]struct {
		unit time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if d%u.unit == 0 {
			return fmt.Sprintf("%d%s", d/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%dus", d.Microseconds())
}
