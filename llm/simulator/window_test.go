package simulator

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var begin = time.Date(2026, 3, 7, 22, 0, 0, 0, time.UTC)

// wouldFit is the rule of each window, read from a list of everything that was admitted.
func wouldFit(l Limit, zone *time.Location, uses []use, now time.Time, units int64) bool {
	sum := units
	switch l.Window {
	case Bucket: // in any interval at most burst + rate · length
		if units > l.Burst {
			return false
		}
		for _, u := range slices.Backward(uses) {
			sum += u.units
			if sum*int64(l.Period) > l.Burst*int64(l.Period)+l.Amount*int64(now.Sub(u.at)) {
				return false
			}
		}
		return true
	case Rolling:
		for _, u := range uses {
			if now.Sub(u.at) < l.Period {
				sum += u.units
			}
		}
	case Aligned:
		for _, u := range uses {
			if u.at.UnixNano()/int64(l.Period) == now.UnixNano()/int64(l.Period) {
				sum += u.units
			}
		}
	case Day, Month:
		y, m, d := now.In(zone).Date()
		for _, u := range uses {
			uy, um, ud := u.at.In(zone).Date()
			if uy == y && um == m && (ud == d || l.Window == Month) {
				sum += u.units
			}
		}
	}
	return sum <= l.Amount
}

func drawLimit(t *rapid.T) Limit {
	l := Limit{
		Name: "l", Dimension: Requests, Amount: rapid.Int64Range(0, 50).Draw(t, "amount"),
		Window: rapid.SampledFrom([]Window{Rolling, Aligned, Day, Month, Bucket}).Draw(t, "window"),
		Period: rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 7 * time.Second}).Draw(t, "period"),
		Zone: rapid.SampledFrom([]string{"", Pacific, "Europe/Berlin", "America/Sao_Paulo", "Africa/Cairo"}).Draw(t,
			"zone"),
	}
	if l.Window == Bucket {
		l.Burst = rapid.Int64Range(0, 60).Draw(t, "burst")
	}
	return l
}

// TestWindows compares every kind of window with its rule, and the report with what was admitted.
func TestWindows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, zone, err := drawLimit(t).check()
		if err != nil {
			t.Fatal(err)
		}
		longest := int64(3 * l.Period)
		if l.Window == Day || l.Window == Month {
			longest = int64(40 * time.Hour)
		}
		c := newCounter(l, zone)
		now := begin
		var uses []use
		var total int64
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, longest).Draw(t, "later")))
			if rapid.Bool().Draw(t, "whole seconds") {
				now = now.Add(time.Second - 1).Truncate(time.Second)
			}
			n := rapid.Int64Range(1, 20).Draw(t, "units")
			want := wouldFit(l, zone, uses, now, n)
			if used := c.used(now); l.Window != Bucket && used+n <= l.Amount != want {
				t.Fatalf("%+v: %d are used at %v, after %v", l, used, now, uses)
			}
			at := c.fits(now, n)
			if got := at.Equal(now); got != want {
				t.Fatalf("%+v: %d units at %v: got %v, want %v, after %v", l, n, now, got, want, uses)
			}
			if !want && !at.IsZero() && (!wouldFit(l, zone, uses, at, n) || wouldFit(l, zone, uses, at.Add(-1), n)) {
				t.Fatalf("%+v: %d units at %v fit first at %v? after %v", l, n, now, at, uses)
			}
			if !want && at.IsZero() && wouldFit(l, zone, uses, now.AddDate(1, 0, 0), n) {
				t.Fatalf("%+v: %d units at %v never fit? after %v", l, n, now, uses)
			}
			if want {
				c.add(now, n)
				uses = append(uses, use{now, n})
				total += n
			}
		}
		f := counted{limit: l, zone: zone, uses: uses}
		r := f.report(now.Add(time.Duration(longest)))
		if r.Over != 0 || r.Total != total || r.Used > r.Allowed || total > 0 && r.Worst == 0 {
			t.Fatalf("the report says %+v of %v", r, uses)
		}
	})
}

// TestReportFindsOveruse: one unit more than a limit admits is found, wherever it is.
func TestReportFindsOveruse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, zone, err := drawLimit(t).check()
		if err != nil {
			t.Fatal(err)
		}
		now := begin
		var uses []use
		over := false
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(2*l.Period)).Draw(t, "later")))
			n := rapid.Int64Range(1, 30).Draw(t, "units")
			over = over || !wouldFit(l, zone, uses, now, n)
			uses = append(uses, use{now, n})
		}
		f := counted{limit: l, zone: zone, uses: uses}
		if r := f.report(now); (r.Over > 0) != over {
			t.Fatalf("%+v: the report says %d over, want %v, of %v", l, r.Over, over, uses)
		}
	})
}

// TestReduce: what is given back is as if it had not been counted, if it still counts.
func TestReduce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, zone, err := drawLimit(t).check()
		if err != nil {
			t.Fatal(err)
		}
		c := newCounter(l, zone)
		first, back := rapid.Int64Range(1, 20).Draw(t, "first"), rapid.Int64Range(0, 30).Draw(t, "back")
		e := c.add(begin, first)
		now := begin.Add(time.Duration(rapid.Int64Range(0, int64(2*l.Period)).Draw(t, "later")))
		before := c.used(now)
		c.reduce(now, e, back)
		if got, want := c.used(now), max(0, before-min(back, first)); got != want {
			t.Fatalf("%+v: used %d, want %d: %d of %d were given back after %v", l, got, want, back, first,
				now.Sub(begin))
		}
	})
}

// TestLongDrain: a bucket that takes longer to drain than a duration can be never drains.
func TestLongDrain(t *testing.T) {
	t.Parallel()
	b := newCounter(Limit{Window: Bucket, Period: time.Minute, Amount: 1, Burst: MaxAmount}, time.UTC)
	b.add(begin, MaxAmount)
	if at, empty := b.fits(begin, 1), b.empty(begin); !at.Equal(begin.Add(time.Minute)) || !empty.IsZero() {
		t.Errorf("one unit fits at %v, and it is empty at %v", at, empty)
	}
}

// TestManySmallWindows: windows of a nanosecond are not counted one by one.
func TestManySmallWindows(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for _, w := range []Window{Rolling, Aligned} {
		l := Limit{Window: w, Period: 1, Amount: 1}
		f := counted{limit: l, zone: time.UTC, uses: []use{{begin, 1}, {begin.Add(year), 1}}}
		if r := f.report(begin.Add(2 * year)); r.Windows != int64(2*year) || r.WorstAligned != 1 || r.Used != 2 {
			t.Errorf("%s: the report says %+v", w, r)
		}
	}
}

// TestDaysInSpringAndAutumn: the ends of the days around both changes of the clocks, in a zone
// whose clocks change by night, and in one where they change at midnight.
func TestDaysInSpringAndAutumn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		zone, in, end string
		window        Window
	}{
		{Pacific, "2026-03-08T00:30:00-08:00", "2026-03-09T00:00:00-07:00", Day}, // 23 hours
		{Pacific, "2026-11-01T00:30:00-07:00", "2026-11-02T00:00:00-08:00", Day}, // 25 hours
		{Pacific, "2026-11-01T23:59:59.5-08:00", "2026-11-02T00:00:00-08:00", Day},
		{Pacific, "2026-03-01T00:00:00-08:00", "2026-04-01T00:00:00-07:00", Month},
		{"America/Sao_Paulo", "2018-11-03T12:00:00-03:00", "2018-11-04T01:00:00-02:00", Day}, // there was no midnight
		{"America/Sao_Paulo", "2018-02-17T12:00:00-02:00", "2018-02-18T00:00:00-03:00", Day}, // 23:00 came twice
	} {
		in, err := time.Parse(time.RFC3339Nano, c.in)
		if err != nil {
			t.Fatal(err)
		}
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		if got := windowEnd(Limit{Window: c.window}, zone,
			in).In(in.Location()); got.Format(time.RFC3339Nano) != mustUTC(t,
			c.end).In(in.Location()).Format(time.RFC3339Nano) {
			t.Errorf("the %s of %s in %s ends at %v, want %s", c.window, c.in, c.zone, got, c.end)
		}
	}
}

func mustUTC(t *testing.T, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return v.UTC()
}
