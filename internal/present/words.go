package present

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
)

// Describe describes a limit in words: "10 requests per rolling 1m".
func Describe(l *drawgate.Limit) string {
	switch l.Kind {
	case drawgate.Bucket:
		return fmt.Sprintf("%s per %s, at most %d in a burst", Units(l.Amount, Unit(l)), Duration(l.Window),
			cmp.Or(l.Burst, l.Amount))
	case drawgate.Rolling:
		return fmt.Sprintf("%s per rolling %s", Units(l.Amount, Unit(l)), Duration(l.Window))
	case drawgate.Calendar:
		if l.Every == drawgate.Total {
			return fmt.Sprintf("%s in all", Units(l.Amount, Unit(l)))
		}
		return fmt.Sprintf("%s per calendar %s in %s", Units(l.Amount, Unit(l)), l.Every, cmp.Or(l.Zone, "UTC"))
	}
	return fmt.Sprintf("%s held at once", Units(l.Amount, Unit(l)))
}

// Units formats a number of units: "10 requests", "1 request". Unknown names of units stay
// unchanged.
func Units(n int64, unit string) string {
	if known := unit == drawgate.UnitRequests || strings.HasSuffix(unit, "tokens"); n == 1 && known {
		unit = strings.TrimSuffix(unit, "s")
	}
	return fmt.Sprintf("%d %s", n, unit)
}

// Duration formats a duration for people, with at most two parts, rounded up: "450ms", "12.3s",
// "3h5m", "6d4h".
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	up := func(unit time.Duration) time.Duration { return (d + unit - 1).Truncate(unit) }
	switch {
	case d >= drawgate.Never/2:
		return "more than a century"
	case d < time.Second:
		return fmt.Sprintf("%dms", up(time.Millisecond).Milliseconds())
	case d < time.Minute-100*time.Millisecond:
		return fmt.Sprintf("%gs", up(100*time.Millisecond).Seconds())
	case d <= time.Hour-time.Second:
		return parts(up(time.Second), time.Minute, "m", time.Second, "s")
	case d <= day-time.Minute:
		return parts(up(time.Minute), time.Hour, "h", time.Minute, "m")
	}
	return parts(up(time.Hour), day, "d", time.Hour, "h")
}

func parts(d, large time.Duration, l string, small time.Duration, s string) string {
	text := ""
	if d >= large {
		text = fmt.Sprintf("%d%s", d/large, l)
	}
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf("%d%s", rest, s)
	}
	return text
}

// Clock formats an instant for people, in UTC.
func Clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// Until says how far away an instant is, and when it is. A prepaid budget never comes back.
func Until(t, now time.Time) string {
	switch {
	case !t.After(now):
		return "now"
	case t.Sub(now) >= drawgate.Never/2:
		return "never"
	}
	return fmt.Sprintf("in %s (%s)", Duration(t.Sub(now)), Clock(t))
}

// Count formats a number of things, whose plural ends in s: "1 event", "2 events".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
