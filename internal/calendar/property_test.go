package calendar

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The years in which a rule is promised to work.
var (
	earliest = time.Date(1900, time.January, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	latest   = time.Date(2200, time.January, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
)

func TestWindowProperties(t *testing.T) {
	t.Parallel()
	zones := allZones(t)
	rapid.Check(t, func(t *rapid.T) {
		rule := Rule{Unit: Unit(rapid.IntRange(int(Minute), int(End)-1).Draw(t, "unit"))}
		rule.Zone = rapid.SampledFrom(zones).Draw(t, "zone")
		if rule.Unit == Month {
			rule.Anchor = rapid.IntRange(0, 31).Draw(t, "anchor")
		}
		at := rapid.Int64Range(earliest, latest).Draw(t, "at")
		if _, end := time.UnixMicro(at).In(rule.Zone).ZoneBounds(); !end.IsZero() &&
			rapid.Bool().Draw(t, "near a change") {
			reach := 2 * longest[min(rule.Unit, Day)]
			at = end.UnixMicro() + rapid.Int64Range(-reach, reach).Draw(t, "from the change")
		}
		start, end := rule.Window(at)
		checkWindow(t, rule, at, start, end)
		if rule.Unit.even() {
			checkEven(t, rule, start, end)
			return
		}

		unit := shown(rule, start)
		// the definition, by samples: start is the first instant that shows its unit or anything
		// later, end the next such
		for range 20 {
			if s := start - 1 - rapid.Int64Range(0, 60*hour).Draw(t, "before"); shown(rule, s) >= unit {
				t.Fatalf("%v in %v: %s shows the unit of the window that starts at %s", rule.Unit, rule.Zone, utc(s),
					utc(start))
			}
			if s := rapid.Int64Range(start, end-1).Draw(t, "inside"); shown(rule, s) > unit {
				t.Fatalf("%v in %v: %s shows a later unit than its window's start, %s", rule.Unit, rule.Zone, utc(s),
					utc(start))
			}
		}
		if shown(rule, end) <= unit {
			t.Fatalf("%v in %v: the clock at the end %s shows no later unit than at the start %s", rule.Unit, rule.Zone,
				utc(end), utc(start))
		}
	})
}

// checkEven checks the definition of windows that are counted evenly, by samples: inside, the local
// clock shows no full unit and does not jump but by full units; where the window starts and where
// it ends, it does either.
func checkEven(t *rapid.T, rule Rule, start, end int64) {
	t.Helper()
	full := longest[rule.Unit]
	since := func(s int64) int64 { return (wall(rule.Zone, s)%full + full) % full } // a full unit
	for _, edge := range []int64{start, end} {
		if since(edge) != 0 && since(edge) == since(edge-1)+1 {
			t.Fatalf("%v in %v: nothing happens at %s, an edge of [%s, %s)", rule.Unit, rule.Zone, utc(edge),
				utc(start), utc(end))
		}
	}
	if end-start > full {
		t.Fatalf("%v in %v: [%s, %s) is longer than the unit", rule.Unit, rule.Zone, utc(start), utc(end))
	}
	for range 20 {
		if s := rapid.Int64Range(start, end-1).Draw(t, "inside"); since(s) != since(start)+s-start {
			t.Fatalf("%v in %v: [%s, %s) should have ended before %s", rule.Unit, rule.Zone, utc(start), utc(end),
				utc(s))
		}
	}
}

// wall is what the local clock of zone shows at t, in microseconds since its 1970-01-01 00:00.
func wall(zone *time.Location, t int64) int64 {
	_, seconds := time.UnixMicro(t).In(zone).Zone()
	return t + int64(seconds)*1e6
}

// shown is the serial number of the unit that the local clock shows at t.
func shown(rule Rule, t int64) int64 {
	return serial(rule, time.UnixMicro(wall(rule.Zone, t)).UTC())
}

// checkWindow checks what holds for the window [start, end) of any instant at.
func checkWindow(t fatalist, rule Rule, at, start, end int64) {
	t.Helper()
	if at < start || end <= at {
		t.Fatalf("%v in %v: Window(%s) = [%s, %s) does not contain it", rule.Unit, rule.Zone, utc(at), utc(start),
			utc(end))
	}
	for _, same := range []int64{start, end - 1} {
		if s, e := rule.Window(same); s != start || e != end {
			t.Fatalf("%v in %v: Window(%s) = [%s, %s), but at %s it is [%s, %s)",
				rule.Unit, rule.Zone, utc(same), utc(s), utc(e), utc(at), utc(start), utc(end))
		}
	}
	checkNeighbours(t, rule, start, end)
}

func FuzzWindow(f *testing.F) {
	f.Add("UTC", uint8(Day), 0, int64(0))
	f.Add("Pacific/Apia", uint8(Day), 0, int64(1325239200e6))
	f.Add("America/New_York", uint8(Minute), 0, int64(1793512800e6))
	f.Add("Europe/Dublin", uint8(Month), 31, int64(2240697600e6)) // the last day of leap year 2040
	f.Add("America/Sitka", uint8(Week), 0, int64(-3225223727e6))
	f.Add("Local", uint8(0), -1, int64(1))
	first := time.Date(1, time.January, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	last := time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC).UnixMicro()
	f.Fuzz(func(t *testing.T, name string, unit uint8, anchor int, at int64) {
		zone, err := LoadZone(name)
		if (zone == nil) == (err == nil) {
			t.Fatalf("LoadZone(%q) = %v, %v", name, zone, err)
		}
		rule := Rule{Unit: Unit(unit), Zone: zone, Anchor: anchor}
		if err != nil || rule.Validate() != nil {
			return // not a rule
		}
		at = min(max(at, first), last)
		start, end := rule.Window(at)
		checkWindow(t, rule, at, start, end)
	})
}
