package calendar

import (
	"strings"
	"testing"
	"time"
)

// A chain is a run of consecutive window edges of one rule, as UTC times like "2018-11-04T03:00".
type chain struct {
	name   string
	zone   string
	unit   Unit
	anchor int
	edges  string
}

func (c chain) run(t *testing.T) {
	t.Parallel()
	rule := Rule{Unit: c.unit, Zone: mustLoad(t, c.zone), Anchor: c.anchor}
	if err := rule.Validate(); err != nil {
		t.Fatal(err)
	}
	edges := strings.Fields(c.edges)
	for i := range len(edges) - 1 {
		start, end := parse(t, edges[i]), parse(t, edges[i+1])
		const samples = 24
		for n := range samples + 1 {
			at := min(start+(end-start)/samples*int64(n), end-1)
			if gotStart, gotEnd := rule.Window(at); gotStart != start || gotEnd != end {
				t.Errorf("Window(%s) = [%s, %s), want [%s, %s)", utc(at), utc(gotStart), utc(gotEnd), utc(start),
					utc(end))
			}
		}
	}
}

func runChains(t *testing.T, chains []chain) {
	t.Helper()
	t.Parallel()
	for _, c := range chains {
		t.Run(c.name, c.run)
	}
}

func mustLoad(tb testing.TB, name string) *time.Location {
	tb.Helper()
	zone, err := LoadZone(name)
	if err != nil {
		tb.Fatal(err)
	}
	return zone
}

func parse(tb testing.TB, s string) int64 {
	tb.Helper()
	at, err := time.Parse("2006-01-02T15:04", s)
	if err != nil {
		at, err = time.Parse("2006-01-02T15:04:05", s)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return at.UnixMicro()
}

func utc(t int64) string { return time.UnixMicro(t).UTC().Format(time.RFC3339Nano) }

func TestPlainWindowsInUTC(t *testing.T) {
	runChains(t, []chain{
		{"minute", "UTC", Minute, 0, "2026-02-28T23:58 2026-02-28T23:59 2026-03-01T00:00 2026-03-01T00:01"},
		{"hour", "UTC", Hour, 0, "2026-02-28T23:00 2026-03-01T00:00 2026-03-01T01:00"},
		{"day", "UTC", Day, 0, "2026-02-28T00:00 2026-03-01T00:00 2026-03-02T00:00"},
		{"before 1970", "UTC", Hour, 0, "1969-12-31T22:00 1969-12-31T23:00 1970-01-01T00:00 1970-01-01T01:00"},
		{"1900", "UTC", Day, 0, "1899-12-31T00:00 1900-01-01T00:00 1900-01-02T00:00"},
		{"nil zone", "", Day, 0, "2200-02-28T00:00 2200-03-01T00:00"},
		{"a named zone equal to UTC", "Etc/UTC", Day, 0, "2026-02-28T00:00 2026-03-01T00:00"},
	})
}

func TestWeeksStartOnMonday(t *testing.T) {
	runChains(t, []chain{
		{
			"around the epoch, which was a Thursday", "UTC", Week, 0,
			"1969-12-22T00:00 1969-12-29T00:00 1970-01-05T00:00 1970-01-12T00:00",
		},
		{"across a year", "UTC", Week, 0, "2026-12-28T00:00 2027-01-04T00:00"},
		{"one hour less: spring", "America/New_York", Week, 0, "2026-03-02T05:00 2026-03-09T04:00 2026-03-16T04:00"},
		{"one hour more: autumn", "America/New_York", Week, 0, "2026-10-26T04:00 2026-11-02T05:00"},
		{
			"six days: Samoa skipped Friday 2011-12-30", "Pacific/Apia", Week, 0,
			"2011-12-26T10:00 2012-01-01T10:00 2012-01-08T10:00",
		},
	})
	start, end := Rule{Unit: Week, Zone: mustLoad(t, "Asia/Tokyo")}.Window(parse(t, "2026-05-06T12:00"))
	if first := time.UnixMicro(start).In(mustLoad(t, "Asia/Tokyo")); first.Weekday() != time.Monday ||
		end-start != 7*24*3600e6 {
		t.Errorf("got a week of %dµs that starts on %v", end-start, first)
	}
}

func TestMonthsAreRealMonths(t *testing.T) {
	runChains(t, []chain{
		{
			"a year", "UTC", Month, 0,
			"2025-12-01T00:00 2026-01-01T00:00 2026-02-01T00:00 2026-03-01T00:00 2026-04-01T00:00 2026-05-01T00:00 " +
				"2026-06-01T00:00 2026-07-01T00:00 2026-08-01T00:00 2026-09-01T00:00 2026-10-01T00:00 2026-11-01T00:00 2026-12-01T00:00 2027-01-01T00:00",
		},
		{"leap February", "UTC", Month, 0, "2024-02-01T00:00 2024-03-01T00:00"},
		{"the epoch", "UTC", Month, 0, "1969-12-01T00:00 1970-01-01T00:00 1970-02-01T00:00"},
		{"with daylight saving", "America/New_York", Month, 0, "2026-02-01T05:00 2026-03-01T05:00 2026-04-01T04:00"},
		{
			"starts without a midnight", "America/Asuncion", Month, 0,
			"2017-09-01T04:00 2017-10-01T04:00 2017-11-01T03:00",
		},
		{"starts with two midnights", "America/Havana", Month, 0, "2020-10-01T04:00 2020-11-01T04:00 2020-12-01T05:00"},
	})
}

func TestMonthAnchors(t *testing.T) {
	runChains(t, []chain{
		{"1 is the default", "UTC", Month, 1, "2026-01-01T00:00 2026-02-01T00:00 2026-03-01T00:00"},
		{"15", "UTC", Month, 15, "2025-12-15T00:00 2026-01-15T00:00 2026-02-15T00:00 2026-03-15T00:00"},
		{"28 exists in every month", "UTC", Month, 28, "2026-01-28T00:00 2026-02-28T00:00 2026-03-28T00:00"},
		{"29 in a common year", "UTC", Month, 29, "2026-01-29T00:00 2026-02-28T00:00 2026-03-29T00:00"},
		{"30 in a leap year", "UTC", Month, 30, "2024-01-30T00:00 2024-02-29T00:00 2024-03-30T00:00"},
		{
			"31 in a common year", "UTC", Month, 31,
			"2025-12-31T00:00 2026-01-31T00:00 2026-02-28T00:00 2026-03-31T00:00 2026-04-30T00:00 " +
				"2026-05-31T00:00 2026-06-30T00:00 2026-07-31T00:00 2026-08-31T00:00 2026-09-30T00:00 2026-10-31T00:00 2026-11-30T00:00 2026-12-31T00:00",
		},
		{"31 in a leap year", "UTC", Month, 31, "2024-01-31T00:00 2024-02-29T00:00 2024-03-31T00:00 2024-04-30T00:00"},
		{"2000 was a leap year", "UTC", Month, 31, "2000-01-31T00:00 2000-02-29T00:00 2000-03-31T00:00"},
		{"2100 is not", "UTC", Month, 31, "2100-01-31T00:00 2100-02-28T00:00 2100-03-31T00:00"},
		{"a day without midnight", "America/Sao_Paulo", Month, 4, "2018-10-04T03:00 2018-11-04T03:00 2018-12-04T02:00"},
		{"a day that was skipped", "Pacific/Apia", Month, 30, "2011-11-30T10:00 2011-12-30T10:00 2012-01-29T10:00"},
		{"the last day, local", "Asia/Kathmandu", Month, 31, "2026-01-30T18:15 2026-02-27T18:15 2026-03-30T18:15"},
	})
}

func TestMidnightThatDoesNotExist(t *testing.T) {
	runChains(t, []chain{
		{
			"Sao Paulo 2018-11-04", "America/Sao_Paulo", Day, 0,
			"2018-11-03T03:00 2018-11-04T03:00 2018-11-05T02:00 2018-11-06T02:00",
		},
		{
			"Havana 2024-03-10", "America/Havana", Day, 0,
			"2024-03-09T05:00 2024-03-10T05:00 2024-03-11T04:00 2024-03-12T04:00",
		},
		{
			"Santiago 2024-09-08", "America/Santiago", Day, 0,
			"2024-09-07T04:00 2024-09-08T04:00 2024-09-09T03:00 2024-09-10T03:00",
		},
		{
			"Beirut 2024-03-31", "Asia/Beirut", Day, 0,
			"2024-03-29T22:00 2024-03-30T22:00 2024-03-31T21:00 2024-04-01T21:00",
		},
		{
			"Cairo 2024-04-26", "Africa/Cairo", Day, 0,
			"2024-04-24T22:00 2024-04-25T22:00 2024-04-26T21:00 2024-04-27T21:00",
		},
		{
			"Pyongyang 2018-05-04: 23:30 was midnight", "Asia/Pyongyang", Day, 0,
			"2018-05-03T15:30 2018-05-04T15:00 2018-05-05T15:00",
		},
	})
}

func TestClockThatFallsBackOverMidnight(t *testing.T) {
	runChains(t, []chain{
		{
			"Sao Paulo 2019-02-16: 23:xx twice", "America/Sao_Paulo", Day, 0,
			"2019-02-16T02:00 2019-02-17T03:00 2019-02-18T03:00",
		},
		{
			"Santiago 2024-04-06: 23:xx twice", "America/Santiago", Day, 0,
			"2024-04-06T03:00 2024-04-07T04:00 2024-04-08T04:00",
		},
		{"Beirut 2024-10-26: 23:xx twice", "Asia/Beirut", Day, 0, "2024-10-25T21:00 2024-10-26T22:00 2024-10-27T22:00"},
		{"Cairo 2024-10-31: 23:xx twice", "Africa/Cairo", Day, 0, "2024-10-30T21:00 2024-10-31T22:00 2024-11-01T22:00"},
		{
			"Cairo 2024-10-31: the month is not closed early", "Africa/Cairo", Month, 0,
			"2024-09-30T21:00 2024-10-31T22:00 2024-11-30T22:00",
		},
		{
			"Havana 2024-11-03: midnight twice", "America/Havana", Day, 0,
			"2024-11-02T04:00 2024-11-03T04:00 2024-11-04T05:00",
		},
		{
			"St John's 2006-10-29: back at 00:01", "America/St_Johns", Day, 0,
			"2006-10-28T02:30 2006-10-29T02:30 2006-10-30T03:30",
		},
		{
			"St John's 2007-03-11: ahead at 00:01", "America/St_Johns", Day, 0,
			"2007-03-10T03:30 2007-03-11T03:30 2007-03-12T02:30",
		},
		{
			"Pyongyang 2015-08-14: half an hour twice", "Asia/Pyongyang", Day, 0,
			"2015-08-13T15:00 2015-08-14T15:30 2015-08-15T15:30",
		},
	})
}

func TestDaysOfOtherLengths(t *testing.T) {
	runChains(t, []chain{
		{"23 hours: New York 2026-03-08", "America/New_York", Day, 0, "2026-03-08T05:00 2026-03-09T04:00"},
		{"25 hours: New York 2026-11-01", "America/New_York", Day, 0, "2026-11-01T04:00 2026-11-02T05:00"},
		{
			"23.5 hours: Lord Howe 2024-10-06", "Australia/Lord_Howe", Day, 0,
			"2024-10-04T13:30 2024-10-05T13:30 2024-10-06T13:00",
		},
		{
			"24.5 hours: Lord Howe 2024-04-07", "Australia/Lord_Howe", Day, 0,
			"2024-04-05T13:00 2024-04-06T13:00 2024-04-07T13:30",
		},
		{"22 hours: Troll 2024-03-31", "Antarctica/Troll", Day, 0, "2024-03-31T00:00 2024-03-31T22:00"},
		{
			"saving time in winter: Dublin", "Europe/Dublin", Day, 0,
			"2026-03-29T00:00 2026-03-29T23:00 2026-03-30T23:00",
		},
	})
}

func TestDateLine(t *testing.T) {
	runChains(t, []chain{
		{"Apia 2011-12-30 is skipped", "Pacific/Apia", Day, 0, "2011-12-29T10:00 2011-12-30T10:00 2011-12-31T10:00"},
		{
			"Kwajalein 1993-08-21 is skipped", "Pacific/Kwajalein", Day, 0,
			"1993-08-20T12:00 1993-08-21T12:00 1993-08-22T12:00",
		},
		{
			"Kwajalein 1969-09-30 lasts 47 hours", "Pacific/Kwajalein", Day, 0,
			"1969-09-28T13:00 1969-09-29T13:00 1969-10-01T12:00 1969-10-02T12:00",
		},
		{
			"Kwajalein 1969-09-30: its hours come again", "Pacific/Kwajalein", Hour, 0,
			"1969-09-30T11:00 1969-09-30T12:00 1969-09-30T13:00 1969-09-30T14:00",
		},
		{
			"Sitka 1867-10-19: the 18th comes again, then the 19th", "America/Sitka", Day, 0,
			"1867-10-17T09:01:13 1867-10-18T09:01:13 1867-10-20T09:01:13 1867-10-21T09:01:13",
		},
		{
			"Kwajalein: September 1969 is not closed early", "Pacific/Kwajalein", Month, 0,
			"1969-08-31T13:00 1969-10-01T12:00 1969-11-01T12:00",
		},
	})
}

func TestRepeatedHourIsAWindowOfItsOwn(t *testing.T) {
	runChains(t, []chain{
		{
			"hours", "America/New_York", Hour, 0,
			"2026-11-01T04:00 2026-11-01T05:00 2026-11-01T06:00 2026-11-01T07:00 2026-11-01T08:00",
		},
		{
			"minutes before", "America/New_York", Minute, 0,
			"2026-11-01T05:58 2026-11-01T05:59 2026-11-01T06:00 2026-11-01T06:01 2026-11-01T06:02",
		},
		{
			"minutes after", "America/New_York", Minute, 0,
			"2026-11-01T06:58 2026-11-01T06:59 2026-11-01T07:00 2026-11-01T07:01",
		},
		{
			"half an hour", "Australia/Lord_Howe", Hour, 0,
			"2024-04-06T13:00 2024-04-06T14:00 2024-04-06T15:00 2024-04-06T15:30 2024-04-06T16:30",
		},
		{
			"minutes of half an hour", "Australia/Lord_Howe", Minute, 0,
			"2024-04-06T14:58 2024-04-06T14:59 2024-04-06T15:00 2024-04-06T15:01",
		},
		{
			"back at 00:01, minutes", "America/St_Johns", Minute, 0,
			"2006-10-29T02:29 2006-10-29T02:30 2006-10-29T02:31 2006-10-29T02:32",
		},
		{
			"back at 00:01 by a whole hour, which cuts none", "America/St_Johns", Hour, 0,
			"2006-10-29T01:30 2006-10-29T02:30 2006-10-29T03:30 2006-10-29T04:30",
		},
	})
}

func TestSkippedHourHasNoWindow(t *testing.T) {
	runChains(t, []chain{
		{"hours", "America/New_York", Hour, 0, "2026-03-08T06:00 2026-03-08T07:00 2026-03-08T08:00"},
		{
			"minutes", "America/New_York", Minute, 0,
			"2026-03-08T06:58 2026-03-08T06:59 2026-03-08T07:00 2026-03-08T07:01",
		},
		{
			"half an hour", "Australia/Lord_Howe", Hour, 0,
			"2024-10-05T14:30 2024-10-05T15:30 2024-10-05T16:00 2024-10-05T17:00",
		},
		{
			"half an hour, in the middle of one", "Asia/Pyongyang", Hour, 0,
			"2018-05-04T13:30 2018-05-04T14:30 2018-05-04T15:00 2018-05-04T16:00",
		},
		{
			"ahead at 00:01 by a whole hour, which cuts none", "America/St_Johns", Hour, 0,
			"2007-03-11T02:30 2007-03-11T03:30 2007-03-11T04:30 2007-03-11T05:30",
		},
	})
}

func TestOddOffsets(t *testing.T) {
	runChains(t, []chain{
		{"hours at a quarter past", "Asia/Kathmandu", Hour, 0, "2026-05-05T11:15 2026-05-05T12:15"},
		{
			"minutes with seconds: Monrovia 1972", "Africa/Monrovia", Minute, 0,
			"1972-01-06T23:59:30 1972-01-07T00:00:30",
		},
		{
			"the change itself: Monrovia 1972-01-07", "Africa/Monrovia", Minute, 0,
			"1972-01-07T00:43:30 1972-01-07T00:44:30 1972-01-07T00:45 1972-01-07T00:46",
		},
		{
			"back by seconds: Paris 1911-03-10", "Europe/Paris", Minute, 0,
			"1911-03-10T23:49:39 1911-03-10T23:50:39 1911-03-10T23:51 1911-03-10T23:52",
		},
		{
			"two short hours: Paris 1911-03-10", "Europe/Paris", Hour, 0,
			"1911-03-10T22:50:39 1911-03-10T23:50:39 1911-03-11T00:00 1911-03-11T01:00",
		},
	})
}

// Past the zone's table, the bounds of package time end with a year of 365 days.
func TestEndOfLeapYear(t *testing.T) {
	runChains(t, []chain{
		{
			"days", "America/New_York", Day, 0,
			"2040-12-29T05:00 2040-12-30T05:00 2040-12-31T05:00 2041-01-01T05:00 2041-01-02T05:00",
		},
		{
			"days, south", "Australia/Sydney", Day, 0,
			"2040-12-29T13:00 2040-12-30T13:00 2040-12-31T13:00 2041-01-01T13:00",
		},
		{"hours", "America/New_York", Hour, 0, "2040-12-30T23:00 2040-12-31T00:00 2040-12-31T01:00"},
		{
			"hours around the bounds' end", "Australia/Adelaide", Hour, 0,
			"2040-12-30T22:30 2040-12-30T23:30 2040-12-31T00:30 2040-12-31T01:30",
		},
		{
			"hours around the year's end", "Australia/Adelaide", Hour, 0,
			"2040-12-31T22:30 2040-12-31T23:30 2041-01-01T00:30 2041-01-01T01:30",
		},
		{"months", "America/New_York", Month, 0, "2040-11-01T04:00 2040-12-01T05:00 2041-01-01T05:00 2041-02-01T05:00"},
	})
}

func TestWindowDoesNotAllocate(t *testing.T) { // not parallel: AllocsPerRun counts for the whole process
	newYork := mustLoad(t, "America/New_York")
	for _, at := range []string{"2026-07-01T12:00", "2026-11-01T06:30", "2040-12-31T12:00"} {
		for unit := Minute; unit < End; unit++ {
			for _, rule := range []Rule{{Unit: unit}, {Unit: unit, Zone: newYork}} {
				instant := parse(t, at)
				if got := testing.AllocsPerRun(10, func() { rule.Window(instant) }); got != 0 {
					t.Errorf("%v in %v at %s: got %v allocations, want 0", unit, rule.Zone, at, got)
				}
			}
		}
	}
}

// TestLengthIsTheLongest: the greatest length of a unit is that of its longest window in a cycle of
// leap years, in UTC.
func TestLengthIsTheLongest(t *testing.T) {
	t.Parallel()
	for unit := Minute; unit < End; unit++ {
		begin, most := parse(t, "2024-01-01T00:00"), int64(0)
		end := begin + min(9*366*day, 100_000*unit.Length())
		for at := begin; at < end; {
			from, to := Rule{Unit: unit}.Window(at)
			at, most = to, max(most, to-from)
		}
		if most != unit.Length() || Longest <= most {
			t.Errorf("the longest %v has %d µs, Length says %d, and Longest %d", unit, most, unit.Length(), Longest)
		}
	}
}
