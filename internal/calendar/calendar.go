// Package calendar finds the windows of calendar limits: the minute, hour, day, week or month of a
// named time zone that an instant lies in.
//
// Everything is a pure function of its arguments: no clock, no I/O (but for [LoadZone], which reads
// the time zone database) and no state. Instants are Unix microseconds; leap seconds do not exist,
// as everywhere in Unix time.
//
// # What a window is
//
// A zone's local clock shows, at each instant, UTC plus the offset then in force. It runs forward
// with time, except that at a transition (daylight saving begins or ends, a country changes its
// zone or its side of the date line) it jumps, forward or back.
//
// By either of the rules below, windows are half-open, follow each other without gap or overlap,
// and their starts strictly increase.
//
// # Days, weeks and months
//
// These are dates: each has one window, however long it lasts.
//
// A unit k (a certain day, week or month) is reached at the first instant at which the local clock
// shows its start or anything later. The unit in force at instant t is the latest one that has been
// reached at or before t: a running maximum, which never goes back. A window is the longest stretch
// of time with the same unit in force. It follows:
//
//   - Where the clock jumps over a unit's start, the window starts at the jump: a day without
//     midnight starts at 01:00.
//   - A unit that the clock jumps over entirely has no window: Samoa had no 30 December 2011.
//   - Where the clock falls back over a unit's start, the unit already in force stays, and its
//     window is the longer for it: the window is neither closed and opened again nor opened twice.
//     Days of 23, 24.5, 25 or (at the date line) 47 hours are one window each.
//
// # Minutes and hours
//
// These are lengths of time, counted evenly: no window is longer than its unit.
//
// A window starts wherever the local clock shows a full minute or hour, and at every transition by
// anything but whole minutes or hours. It lasts until the next such instant. It follows:
//
//   - In a stretch of constant offset, windows are aligned to the local clock: hours start at a
//     quarter past in UTC for Kathmandu.
//   - A transition by whole units changes no window, wherever it lies. Where the clock falls back
//     from 02:00 to 01:00, the repeated hour is a window of its own, and so is each of its minutes;
//     where it jumps from 02:00 to 03:00, the window of 03:00 follows that of 01:00.
//   - Any other transition ends a window and starts the next, and one of them or both are short.
//     Where Lord Howe Island falls back from 02:00 to 01:30, the window of 01:00 is followed by one
//     of half an hour. Only before 1973 did offsets with seconds cut minutes short.
package calendar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Unit is the length of a window on the local clock. The zero Unit is not valid.
type Unit uint8

// The units. A Week starts on Monday (ISO 8601); a Month is a real one, of 28 to 31 days.
const (
	Minute Unit = iota + 1
	Hour
	Day
	Week
	Month

	End // one more than the last unit, for those that go through all of them
)

// Total is no unit of a calendar: its window has begun in 1970 and does not end, for what is used
// once and never comes back. (It ends in 2223, because instants have an end.)
const Total = End

// totalLength is the length of the window of Total, in µs. The window after it begins within 2^53
// µs of 1970, and it is longer than half of the longest time.Duration for as long as that matters:
// a wait until its end counts as one that never ends.
const totalLength = 8_000_000_000_000_000

// Longest is longer than any window that ends, in µs, whatever its zone's clock does: it has two
// days to spare.
var Longest = slices.Max(longest[:]) + 2*day

var unitNames = [...]string{
	Minute: "minute", Hour: "hour", Day: "day", Week: "week", Month: "month", Total: "total",
}

// String returns "minute", "hour", "day", "week", "month" or "total"; for anything else "Unit(n)".
func (u Unit) String() string {
	if !u.valid() {
		return fmt.Sprintf("Unit(%d)", uint8(u))
	}
	return unitNames[u]
}

func (u Unit) valid() bool { return Minute <= u && u <= Total }

// Length returns the greatest length of a window of u on a clock that does not jump, in µs.
func (u Unit) Length() int64 {
	if u == Total {
		return totalLength
	}
	return longest[u]
}

// even reports whether windows of u are counted evenly; others are dates.
func (u Unit) even() bool { return u == Minute || u == Hour }

// Rule says how time is cut into windows. Rules are values: copy them, and use them from several
// goroutines at once.
type Rule struct {
	Unit Unit
	// Zone is the time zone of the local clock; nil means UTC. Take it from [LoadZone].
	Zone *time.Location
	// Anchor is the day of the month on which a Month starts, 1 to 31; 0 means 1. In a month that
	// has no such day it is the last day: with 31, April starts on its 30th and February on its
	// 28th or 29th. Other units have no anchor.
	Anchor int
}

// Validate reports the first thing that is wrong with r.
func (r Rule) Validate() error {
	switch {
	case !r.Unit.valid():
		return fmt.Errorf("calendar: unknown unit %v (want %s)", r.Unit, strings.Join(unitNames[Minute:], ", "))
	case r.Anchor < 0 || r.Anchor > 31:
		return fmt.Errorf("calendar: anchor=%d is not a day of the month (want 1 to 31)", r.Anchor)
	case r.Anchor != 0 && r.Unit != Month:
		return fmt.Errorf("calendar: anchor=%d with unit %v (only months have an anchor)", r.Anchor, r.Unit)
	case r.Unit == Total && r.Zone != nil && r.Zone != time.UTC:
		return fmt.Errorf("calendar: zone %s with unit %v (what never ends has no zone)", r.Zone, r.Unit)
	case r.Zone == time.Local:
		return errors.New("calendar: zone Local: " + whyNotLocal)
	}
	return nil
}

const whyNotLocal = "what it means is up to the machine (name the zone, such as \"Europe/Paris\")"

// LoadZone returns the time zone with the given name in the IANA time zone database, such as
// "America/New_York". "" and "UTC" are [time.UTC]. Names whose meaning the machine decides
// ("Local", "localtime", "posixrules") are refused, and so are the "right/" zones, whose clocks
// count leap seconds.
//
// The database is found as [time.LoadLocation] describes. This package does not embed one: a
// command imports time/tzdata.
func LoadZone(name string) (*time.Location, error) {
	switch {
	case name == "" || name == "UTC":
		return time.UTC, nil
	case name == "Local" || name == "localtime" || name == "posixrules":
		return nil, fmt.Errorf("calendar: load zone %q: %s", name, whyNotLocal)
	case strings.HasPrefix(name, "right/"):
		return nil, fmt.Errorf("calendar: load zone %q: its clock counts leap seconds (want %q)", name,
			strings.TrimPrefix(name, "right/"))
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("calendar: load zone %q (want a name such as \"Europe/Paris\"): %w", name, err)
	}
	return zone, nil
}
