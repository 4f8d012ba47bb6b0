package calendar

import (
	"archive/zip"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The zones of Go's own copy of the time zone database, each set of rules once (most names are
// links).
var goZones = sync.OnceValues(func() ([]*time.Location, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output() // it ends by itself, and serves all tests
	if err != nil {
		return nil, err
	}
	database, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = database.Close() }()
	var zones []*time.Location
	seen := map[string]bool{}
	for _, file := range database.File {
		if file.FileInfo().IsDir() {
			continue
		}
		r, err := file.Open()
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		if seen[string(data)] {
			continue
		}
		seen[string(data)] = true
		zone, err := time.LoadLocationFromTZData(file.Name, data)
		if err != nil {
			return nil, err
		}
		zones = append(zones, zone)
	}
	return zones, nil
})

func allZones(tb testing.TB) []*time.Location {
	tb.Helper()
	zones, err := goZones()
	if err != nil {
		tb.Fatalf("no time zone database in the Go installation: %v", err)
	}
	return zones
}

func zoneNamed(tb testing.TB, name string) *time.Location {
	tb.Helper()
	zones := allZones(tb)
	i := slices.IndexFunc(zones, func(z *time.Location) bool { return z.String() == name })
	if i < 0 {
		tb.Fatalf("no zone %q", name)
	}
	return zones[i]
}

// A change is an instant at which a zone's offset changes, in Unix seconds.
type change struct{ at, before, after int64 }

// changes returns the changes of a zone in the years from first to last. It looks at the clock
// alone and does not ask for the zone's table.
func changes(zone *time.Location, first, last int) []change {
	const step = 12 * 3600
	var found []change
	before := offset(zone, unix(first))
	for s := unix(first); s < unix(last+1); s += step {
		now := offset(zone, s)
		if now == before {
			continue
		}
		low, high := s-step, s // the change is in (low, high]
		for high-low > 1 {
			if mid := low + (high-low)/2; offset(zone, mid) == before {
				low = mid
			} else {
				high = mid
			}
		}
		found = append(found, change{high, before, now})
		before = now
	}
	return found
}

func unix(year int) int64 { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Unix() }

func offset(zone *time.Location, s int64) int64 {
	_, seconds := time.Unix(s, 0).In(zone).Zone()
	return int64(seconds)
}

// serial numbers the days, weeks or months of a calendar: it grows by at least one from each unit
// to the next.
func serial(rule Rule, clock time.Time) int64 {
	year, month, day := clock.Date()
	switch rule.Unit {
	case Day:
		return int64(year*12+int(month))*31 + int64(day)
	case Week:
		year, week := clock.ISOWeek()
		return int64(year*54 + week)
	case Month:
		daysInMonth := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
		if day < min(max(rule.Anchor, 1), daysInMonth) {
			month--
		}
		return int64(year*12 + int(month))
	}
	panic("serial: how are windows of this unit numbered: " + rule.Unit.String())
}

// modelEdges is the definition of windows, in slow motion: it walks from one instant to another,
// all Unix seconds, and returns for each rule the instants at which windows start. Those of dates
// start when the highest unit that the local clock has shown so far grows; those counted evenly
// when the clock shows a full unit or jumps by anything but full units. Both the changes of the
// clock and the starts of units must be on multiples of step.
func modelEdges(zone *time.Location, rules []Rule, from, to, step int64) [][]int64 {
	edges := make([][]int64, len(rules))
	highest := make([]int64, len(rules))
	var before time.Time // what the clock would show if it had not jumped
	for s := from; s < to; s += step {
		clock := time.Unix(s+offset(zone, s), 0).UTC()
		jump := clock.Sub(before)
		before = clock.Add(time.Duration(step) * time.Second)
		for i, rule := range rules {
			if rule.Unit.even() {
				full := time.Duration(longest[rule.Unit]) * time.Microsecond
				if s > from && (clock.Equal(clock.Truncate(full)) || jump%full != 0) {
					edges[i] = append(edges[i], s)
				}
			} else if shown := serial(rule, clock); s == from {
				highest[i] = shown
			} else if shown > highest[i] {
				highest[i] = shown
				edges[i] = append(edges[i], s)
			}
		}
	}
	return edges
}

// checkWindows compares Window with the edges that the model found between two instants, all Unix
// seconds.
func checkWindows(t *testing.T, rule Rule, edges []int64, from, to int64) {
	t.Helper()
	edges = slices.DeleteFunc(slices.Clone(edges), func(s int64) bool { return s <= from })
	for i := range len(edges) + 1 {
		first, last := i == 0, i == len(edges) // of these windows, one edge lies outside
		low, high := from*1e6, to*1e6
		if !first {
			low = edges[i-1] * 1e6
		}
		if !last {
			high = edges[i] * 1e6
		}
		wantStart, wantEnd := rule.Window(low)
		if wantStart > low || !first && wantStart != low || wantEnd < high || !last && wantEnd != high {
			t.Errorf("%v in %v: Window(%s) = [%s, %s), the model has edges at %s and %s",
				rule.Unit, rule.Zone, utc(low), utc(wantStart), utc(wantEnd), utc(low), utc(high))
			return
		}
		for _, at := range []int64{low + (high-low)/2, high - 1} {
			if start, end := rule.Window(at); start != wantStart || end != wantEnd {
				t.Errorf("%v in %v: Window(%s) = [%s, %s), want [%s, %s) as at %s",
					rule.Unit, rule.Zone, utc(at), utc(start), utc(end), utc(wantStart), utc(wantEnd), utc(low))
				return
			}
		}
		if first || last {
			checkNeighbours(t, rule, wantStart, wantEnd)
		}
	}
}

// fatalist is what *testing.T and *rapid.T have in common here.
type fatalist interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkNeighbours checks that the windows before and after [start, end) touch it.
func checkNeighbours(t fatalist, rule Rule, start, end int64) {
	t.Helper()
	if before, got := rule.Window(start - 1); got != start || before >= start {
		t.Fatalf("%v in %v: the window before %s is [%s, %s)", rule.Unit, rule.Zone, utc(start), utc(before), utc(got))
	}
	if got, after := rule.Window(end); got != end || after <= end {
		t.Fatalf("%v in %v: the window at %s is [%s, %s)", rule.Unit, rule.Zone, utc(end), utc(got), utc(after))
	}
}

// Every change of every zone, all units, against the model: minutes and hours from 1840, longer
// units (which take long walks) from 1970.
func TestEveryTransitionOfEveryZone(t *testing.T) {
	t.Parallel()
	every := 1
	if testing.Short() {
		every = 16
	}
	for i, zone := range allZones(t) {
		if i%every != 0 {
			continue
		}
		t.Run(zone.String(), func(t *testing.T) {
			t.Parallel()
			checkChanges(t, zone)
		})
	}
}

func checkChanges(t *testing.T, zone *time.Location) {
	t.Helper()
	const day = 24 * 3600
	long := []Rule{{Unit: Month, Zone: zone, Anchor: 30}}
	for unit := Day; unit < End; unit++ {
		long = append(long, Rule{Unit: unit, Zone: zone})
	}
	all := changes(zone, 1970, 2037)
	step := grain(3600, all...)
	for i, c := range all {
		if i > 0 && c.at-all[i-1].at < 3*day {
			t.Fatalf("two changes within three days, at %s: the walks below are too short", utc(c.at*1e6))
		}
		checkWalk(t, long, step, c.at-4*day, c.at-2*day, c.at+3*day)
	}
	for _, c := range changes(zone, 1840, 2037) {
		checkWalk(t, []Rule{{Unit: Hour, Zone: zone}}, grain(3600, c), c.at-3*3600, c.at-3600, c.at+2*3600)
		checkWalk(t, []Rule{{Unit: Minute, Zone: zone}}, grain(60, c), c.at-300, c.at-180, c.at+180)
	}
}

// checkWalk compares Window between two instants with a model that begins its walk earlier. Rules
// are of one zone.
func checkWalk(t *testing.T, rules []Rule, step, begin, from, to int64) {
	t.Helper()
	begin -= (begin%step + step) % step
	for i, edges := range modelEdges(rules[0].Zone, rules, begin, to, step) {
		checkWindows(t, rules[i], edges, from, to)
	}
}

// grain returns the longest step that divides a unit's length, every offset and every instant of
// change, in seconds: on a grid of such steps the local clock misses no change and no start of a
// unit.
func grain(length int64, all ...change) int64 {
	step := length
	for _, c := range all {
		for _, n := range []int64{c.at, c.before, c.after} {
			for n != 0 {
				step, n = n, step%n
			}
			step = max(step, -step)
		}
	}
	return step
}
