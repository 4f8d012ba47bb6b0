package calendar

import (
	"math"
	"time"
)

// Lengths in microseconds.
const (
	minute = int64(time.Minute / time.Microsecond)
	hour   = 60 * minute
	day    = 24 * hour
	week   = 7 * day
)

// longest holds, for each unit, its greatest length on a clock that does not jump.
var longest = [End]int64{Minute: minute, Hour: hour, Day: day, Week: week, Month: 31 * day}

// The offsets from UTC that a time zone file should hold: more than -25 hours and less than 26
// hours. Those of the IANA database do. Two local clocks of one zone are thus less than
// offsetSpread apart, which bounds how far a jump can reach.
//
// Source: RFC 9636, section 3.2, utoff. It only recommends them (SHOULD); outside of them, windows
// of dates may be wrong.
const (
	minOffset    = -25 * hour
	maxOffset    = 26 * hour
	offsetSpread = maxOffset - minOffset
)

// Window returns the half-open window [start, end) that contains instant t; all are Unix
// microseconds.
//
// The package comment defines windows. The same instants t of one window give the same answer,
// Window(end) starts at end, and Window(start-1) ends at start. t is meant to be in the years 1 to
// 9999. r must be valid ([Rule.Validate]); an unknown unit panics. Window does not allocate.
func (r Rule) Window(t int64) (start, end int64) {
	switch {
	case r.Zone == nil || r.Zone == time.UTC || r.Unit == Total:
		return r.span(t)
	case r.Unit.even():
		return r.evenWindow(t)
	}
	// The common case. The local clock has run evenly since at least offsetSpread before the start
	// and past the end, so no other reading of it can have reached either of them before: what a
	// clock shows less than offsetSpread late, it showed in that stretch.
	offset, until := offsetAt(r.Zone, t-offsetSpread-longest[r.Unit])
	start, end = r.span(t + offset)
	start, end = start-offset, end-offset
	if end < until {
		return start, end
	}
	clockStart, clockEnd := r.span(highestClock(r.Zone, t))
	return firstReached(r.Zone, clockStart), firstReached(r.Zone, clockEnd)
}

// evenWindow is Window for units that are counted evenly.
//
// It looks for transitions from one end of [time.Time.ZoneBounds] to the next, on both sides of t.
// The start of the bounds would tell of the last one before t, but not always: in the year in which
// a zone's table ends, it may lie before the table's last transition.
func (r Rule) evenWindow(t int64) (start, end int64) {
	length := longest[r.Unit]
	cut := t - length // the window starts after this, and not before the last transition that cuts
	offset, until := offsetAt(r.Zone, cut)
	for until <= t {
		from, before := until, offset
		offset, until = offsetAt(r.Zone, from)
		if (offset-before)%length != 0 {
			cut = from
		}
	}
	start, end = r.span(t + offset)
	start, end = max(start-offset, cut), end-offset
	for until < end {
		after, next := offsetAt(r.Zone, until)
		if (after-offset)%length != 0 {
			return start, until
		}
		until = next
	}
	return start, end
}

// highestClock returns the highest reading that the local clock of zone has shown at or before t.
// What it showed more than offsetSpread before t it has passed again by t.
func highestClock(zone *time.Location, t int64) int64 {
	highest := int64(math.MinInt64)
	for from := t - offsetSpread; from <= t; {
		offset, until := offsetAt(zone, from)
		highest = max(highest, min(t, until-1)+offset)
		from = until
	}
	return highest
}

// firstReached returns the first instant at which the local clock of zone shows clock or anything
// later.
func firstReached(zone *time.Location, clock int64) int64 {
	for from := clock - maxOffset; ; {
		offset, until := offsetAt(zone, from)
		if at := max(from, clock-offset); at < until {
			return at
		}
		from = until
	}
}

// offsetAt returns the offset from UTC of zone's local clock at t, and an instant after t until
// which it holds. It may hold longer.
func offsetAt(zone *time.Location, t int64) (offset, until int64) {
	at := time.UnixMicro(t).In(zone)
	_, seconds := at.Zone()
	offset = int64(seconds) * int64(time.Second/time.Microsecond)
	_, end := at.ZoneBounds()
	if end.IsZero() {
		return offset, math.MaxInt64
	}
	until = end.UnixMicro()
	if until <= t {
		// Past the zone's table, package time ends the bounds with the UTC year, which it takes for
		// 365 days long: on the last day of a leap year the end is in the past. Nothing changes on
		// the rest of that day.
		_, until = fixedSpan(t, day, 0)
	}
	return offset, until
}

// span returns the unit that contains the reading clock of a local clock: [start, end) in readings
// of that clock, which are microseconds since its 1970-01-01 00:00, as if it were UTC.
func (r Rule) span(clock int64) (start, end int64) {
	switch r.Unit {
	case Minute:
		return fixedSpan(clock, minute, 0)
	case Hour:
		return fixedSpan(clock, hour, 0)
	case Day:
		return fixedSpan(clock, day, 0)
	case Week:
		return fixedSpan(clock, week, -3*day) // 1970-01-01 was a Thursday
	case Month:
		return r.monthSpan(clock)
	case Total:
		return fixedSpan(clock, totalLength, 0)
	}
	panic("calendar: invalid rule: unknown unit") //nolint:forbidigo // Validate was not called or not heeded
}

// fixedSpan returns the multiple of length, counted from origin, that contains clock.
func fixedSpan(clock, length, origin int64) (start, end int64) {
	since := (clock - origin) % length
	if since < 0 {
		since += length
	}
	return clock - since, clock - since + length
}

// monthSpan is span for months. Its dates are of a plain calendar without a zone, for which
// time.UTC stands.
func (r Rule) monthSpan(clock int64) (start, end int64) {
	year, month, _ := time.UnixMicro(clock).UTC().Date()
	if start = r.monthStart(year, month); clock < start {
		return r.monthStart(year, month-1), start
	}
	return start, r.monthStart(year, month+1)
}

// monthStart returns the start of the anchored month that starts in the given calendar month; month
// may be 0 or 13.
func (r Rule) monthStart(year int, month time.Month) int64 {
	first := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	start := first + int64(max(r.Anchor, 1)-1)*day
	if r.Anchor <= 28 { // every month has these days
		return start
	}
	next := time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	return min(start, next-day)
}
