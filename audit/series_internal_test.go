package audit

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate/internal/calendar"
)

// drawUses are calls in a short time, so that many meet at one instant.
func drawUses(t *rapid.T) []use {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) use {
		u := use{a: rapid.Int64Range(1000, 1060).Draw(t, "a"), most: rapid.Int64Range(0, 4).Draw(t, "most")}
		u.b = u.a + rapid.Int64Range(0, 12).Draw(t, "b")
		u.c = u.b + rapid.SampledFrom([]int64{0, 0, 5, 40}).Draw(t, "c")
		u.ended = u.a + rapid.Int64Range(0, 30).Draw(t, "ended")
		u.reserved = u.most + rapid.Int64Range(0, 3).Draw(t, "reserved")
		u.asked = rapid.IntRange(0, 4).Draw(t, "asked") == 0
		if rapid.Bool().Draw(t, "certain") {
			u.least = u.most
		}
		return u
	}), 1, 20).Draw(t, "uses")
}

// window says whether a window that lasts from one instant to another, exclusive, may have a call
// in it, and how much of it then; and how much for certain.
func (u *use) window(from, until int64) (least, most int64) {
	if u.a < until && u.c >= from {
		most = u.most
		end := u.ended
		if u.asked {
			end++
		}
		if until <= end && u.a < until { // it had not ended
			most = max(most, u.reserved)
		}
	}
	if u.a >= from && u.b < until && (!u.asked || u.b+1 == until) {
		least = u.least
	}
	return least, most
}

// TestRollingAgainstTheModel: the sweep finds what looking at every window finds.
func TestRollingAgainstTheModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, err := Limit{
			Name: "x", Amount: 5, Window: Rolling,
			Period: time.Duration(rapid.Int64Range(1, 30).Draw(t, "w")) * time.Microsecond,
		}.check()
		if err != nil {
			t.Fatal(err)
		}
		uses := drawUses(t)
		compare(t, &l, uses, func(until int64) int64 { return until - l.Period.Nanoseconds() })
	})
}

// TestAlignedAgainstTheModel is the same for windows that are aligned to the clock. Until a window
// ends, only what has begun counts.
func TestAlignedAgainstTheModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, err := Limit{
			Name: "x", Amount: 5, Window: Aligned,
			Period: time.Duration(rapid.Int64Range(1, 30).Draw(t, "w")) * time.Microsecond,
		}.check()
		if err != nil {
			t.Fatal(err)
		}
		compare(t, &l, drawUses(t), func(until int64) int64 { return floor(until-1, l.Period.Nanoseconds()) })
	})
}

// compare compares the worst windows. from returns where the window starts that is looked at right
// before an instant. Instants are drawn in thousands of nanoseconds.
func compare(t *rapid.T, l *Limit, uses []use, from func(until int64) int64) {
	s := newSeries(l, "", "", "")
	for i := range uses {
		u := &uses[i]
		u.a, u.b, u.c, u.ended = u.a*1000, u.b*1000, u.c*1000, u.ended*1000
	}
	for _, u := range uses {
		if s.add(u, 0) {
			t.Fatalf("%+v is late", u)
		}
	}
	var least, most, over int64
	was := false
	for i := int64(1000); i < 1300; i++ {
		for _, until := range []int64{i * 1000, i*1000 + 1, i*1000 + 2} { // nothing changes in between
			var sumLeast, sumMost int64
			for k := range uses {
				a, b := uses[k].window(from(until), until)
				sumLeast, sumMost = sumLeast+a, sumMost+b
			}
			least, most = max(least, sumLeast), max(most, sumMost)
			if is := sumMost > l.Amount; is != was {
				if was = is; is {
					over++
				}
			}
		}
	}
	got := s.report(2_000_000)
	if got.Least.Units != least || got.Most.Units != most {
		t.Fatalf("got %d to %d in the worst windows, want %d to %d", got.Least.Units, got.Most.Units, least, most)
	}
	want := Within
	switch {
	case least > l.Amount:
		want = Over
	case most > l.Amount:
		want = Possible
	}
	if got.Verdict != want {
		t.Fatalf("got %q for %d to %d of %d, want %q", got.Verdict, least, most, l.Amount, want)
	}
	if l.Window == Rolling && got.Episodes != over {
		t.Fatalf("got %d episodes, want %d", got.Episodes, over)
	}
}

// TestBucketAgainstTheModel: wherever calls counted within what is known of them, the level was
// between the two that are found; and with nothing unknown both are the level.
func TestBucketAgainstTheModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, err := Limit{
			Name: "x", Amount: rapid.Int64Range(0, 20).Draw(t, "amount"),
			Burst:  rapid.Int64Range(1, 10).Draw(t, "burst"),
			Window: Bucket, Period: time.Duration(rapid.Int64Range(1, 60).Draw(t, "w")) * time.Microsecond,
		}.check()
		if err != nil {
			t.Fatal(err)
		}
		exact := rapid.Bool().Draw(t, "exact")
		uses := drawUses(t)
		s := newSeries(&l, "", "", "")
		at := map[int64]int64{} // units that count at an instant
		for i := range uses {
			u := &uses[i]
			u.asked, u.reserved = false, u.most
			if u.least > 0 {
				u.c = u.b
			}
			if exact {
				u.b, u.c, u.least = u.a, u.a, u.most
			}
			u.a, u.b, u.c, u.ended = u.a*1000, u.b*1000, u.c*1000, u.a*1000
			s.add(*u, 0)
			if u.least > 0 || rapid.Bool().Draw(t, "counted") {
				at[rapid.Int64Range(u.a, u.c).Draw(t, "at")] += u.most
			}
		}
		worst := 0.0
		level, last := 0.0, int64(0)
		for now := int64(1_000_000); now < 1_200_000; now++ {
			n, ok := at[now]
			if !ok {
				continue
			}
			level = max(0, level-float64(now-last)*float64(l.Amount)/float64(l.Period.Nanoseconds())) + float64(n)
			last, worst = now, max(worst, level)
		}
		got := s.report(2_000_000)
		const rounding = 1e-6
		if least, most := float64(got.Least.Units), float64(got.Most.Units); worst > most+rounding ||
			math.Ceil(worst-rounding) < least-rounding || exact && most != math.Ceil(worst-rounding) {
			t.Fatalf("the level was %v at most: got %v to %v", worst, least, most)
		}
	})
}

// TestWindowsOfTheCalendar: days and months are those of the zone, whatever its clocks do.
func TestWindowsOfTheCalendar(t *testing.T) {
	t.Parallel()
	zone := func(name string) *time.Location {
		z, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		return z
	}
	for _, c := range []struct {
		limit       Limit
		at          string
		from, until string
	}{
		// 23 hours
		{
			Limit{Window: Day, Zone: zone("America/Los_Angeles")},
			"2026-03-08T20:00:00Z", "2026-03-08T08:00:00Z",
			"2026-03-09T07:00:00Z",
		},
		// 25 hours
		{
			Limit{Window: Day, Zone: zone("America/Los_Angeles")},
			"2026-11-01T07:00:00Z", "2026-11-01T07:00:00Z",
			"2026-11-02T08:00:00Z",
		},
		// the last second
		{
			Limit{Window: Day, Zone: zone("America/Los_Angeles")},
			"2026-11-01T06:59:59Z", "2026-10-31T07:00:00Z",
			"2026-11-01T07:00:00Z",
		},
		// there was no midnight
		{
			Limit{Window: Day, Zone: zone("America/Sao_Paulo")},
			"2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z",
			"2018-11-05T02:00:00Z",
		},
		// 23:00 came twice
		{
			Limit{Window: Day, Zone: zone("America/Sao_Paulo")},
			"2018-02-18T02:30:00Z", "2018-02-17T02:00:00Z",
			"2018-02-18T03:00:00Z",
		},
		{
			Limit{Window: Day, Zone: zone("America/Sao_Paulo")},
			"2018-02-18T03:00:00Z", "2018-02-18T03:00:00Z",
			"2018-02-19T03:00:00Z",
		},
		// the 30th did not exist
		{
			Limit{Window: Day, Zone: zone("Pacific/Apia")},
			"2011-12-30T12:00:00Z", "2011-12-30T10:00:00Z",
			"2011-12-31T10:00:00Z",
		},
		// a Sunday
		{Limit{Window: Week, Zone: time.UTC}, "2026-03-01T12:00:00Z", "2026-02-23T00:00:00Z", "2026-03-02T00:00:00Z"},
		{Limit{Window: Month, Zone: time.UTC}, "2026-02-28T23:59:59Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"},
		{
			Limit{Window: Month, Zone: time.UTC, Anchor: 31},
			"2026-03-01T00:00:00Z", "2026-02-28T00:00:00Z",
			"2026-03-31T00:00:00Z",
		},
		{
			Limit{Window: Hour, Zone: zone("Asia/Kathmandu")},
			"2026-03-01T00:20:00Z", "2026-03-01T00:15:00Z",
			"2026-03-01T01:15:00Z",
		},
		{
			Limit{Window: Aligned, Period: time.Minute},
			"2026-03-01T00:20:59.999Z", "2026-03-01T00:20:00Z",
			"2026-03-01T00:21:00Z",
		},
		// the clock goes from 0:00 to 1:00
		{
			Limit{Window: Day, Zone: zone("Africa/Cairo")},
			"2026-04-24T12:00:00Z", "2026-04-23T22:00:00Z",
			"2026-04-24T21:00:00Z",
		},
		{
			Limit{Window: Day, Zone: zone("Africa/Cairo")},
			"2026-04-23T21:59:59.999Z", "2026-04-22T22:00:00Z",
			"2026-04-23T22:00:00Z",
		},
		{
			Limit{Window: Month, Zone: zone("America/Los_Angeles")},
			"2026-03-15T00:00:00Z", "2026-03-01T08:00:00Z",
			"2026-04-01T07:00:00Z",
		},
	} {
		l, err := c.limit.check()
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339Nano, c.at)
		if err != nil {
			t.Fatal(err)
		}
		w := l.spanOf(at.UnixNano())
		from, until := time.Unix(0, w.from).UTC().Format(time.RFC3339), time.Unix(0, w.until).UTC().Format(time.RFC3339)
		if from != c.from || until != c.until {
			t.Errorf("%s in %s at %s: got %s to %s, want %s to %s", l.Window, l.Zone, c.at, from, until, c.from,
				c.until)
		}
	}
}

// TestEveryWindowOfTheCalendar: an audit knows each window that limits may have, and cuts time as
// they do.
func TestEveryWindowOfTheCalendar(t *testing.T) {
	t.Parallel()
	begin := time.Date(2018, time.January, 31, 22, 0, 0, 0, time.UTC)
	for _, name := range []string{"UTC", "America/Sao_Paulo", "Asia/Kathmandu"} {
		zone, err := calendar.LoadZone(name)
		if err != nil {
			t.Fatal(err)
		}
		for u := calendar.Minute; u < calendar.End; u++ {
			l := Limit{Window: Window(u.String()), Zone: zone}
			if u == calendar.Minute {
				l.Window = Aligned // as `drawgate audit` does
			}
			if l, err = l.check(); err != nil {
				t.Error(err)
				continue
			}
			rule := calendar.Rule{Unit: u, Zone: zone}
			from, until := rule.Window(begin.UnixMicro())
			for n := range int64(30) {
				at := (from + (until-from)/3) * 1000
				if got, want := l.spanOf(at), (span{from * 1000, until * 1000}); got != want {
					t.Errorf("%v in %s, window %d: from %s to %s, want %s to %s", u, name, n, time.Unix(0, got.from),
						time.Unix(0, got.until), time.UnixMicro(from), time.UnixMicro(until))
					break
				}
				if got := l.windows(begin.UnixNano(), at); got != n {
					t.Errorf("%v in %s: %d windows from %s to %s, want %d", u, name, got, begin, time.Unix(0, at), n)
				}
				from, until = rule.Window(until)
			}
		}
	}
}
