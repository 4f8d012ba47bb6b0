package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	cal "github.com/drawgate/drawgate/internal/calendar"
)

var marginCases = []testCase{
	{
		"margin of a rolling limit", "a unit counts until margin plus window after the decision", testMarginRolling,
		false,
	},
	{"margin of a bucket", "the margin's units are not available as burst", testMarginBucket, false},
	{
		"margin at a calendar edge", "a take whose margin crosses the edge is charged to both windows, and must fit both",
		testMarginEdge, false,
	},
}

var calendarCases = []testCase{
	{
		"calendar edges", "a calendar limit refuses until a microsecond before the edge in its zone, and is unused at it",
		testCalendarEdges, false,
	},
	{"days of a year", "a day ends at its edge on every day, daylight saving included", testCalendarDays, false},
	{
		"a total never ends", "what was used of a total is used for ever, and so is a hold that ended unsettled",
		testTotal, false,
	},
	{"day of another length", "on the days when the clocks change a day has 23 or 25 hours", testShortDay, false},
}

func testMarginRolling(e *env) {
	l := rolling(10, time.Minute)
	l.Margin = 2 * time.Second
	b := e.bucket("k", l)
	e.allowed("all", b.take(10))
	e.refused("full", b.take(1), 62*time.Second)
	e.advance(62*time.Second - tick)
	e.refused("early", b.take(1), tick)
	e.advance(tick)
	e.allowed("on time", b.take(10))
}

func testMarginBucket(e *env) {
	l := leaky(10, time.Minute, 8)
	l.Margin = 7 * time.Second // 7/6 units, rounded up to 2
	b := e.bucket("k", l)
	if n := b.drain(); n != 6 {
		e.Fatalf("got %d, want the burst of 8 less 2", n)
	}
	e.refused("empty", b.take(1), 6*time.Second)
	e.advance(6 * time.Second)
	e.allowed("at the full rate", b.take(1))
	e.advance(time.Hour)
	if n := b.drain(); n != 6 {
		e.Errorf("after a rest: got %d, want 6", n)
	}
}

func testMarginEdge(e *env) {
	l := calendar(10, drawgate.Hour, "UTC")
	l.Margin = 2 * time.Second
	b := e.bucket("k", l)
	edge := nextEdge(e.now(), drawgate.Hour, "UTC", 1)
	e.until(edge.Add(-2*time.Second - tick))
	e.allowed("before the edge zone", b.take(1))
	e.advance(tick)
	e.allowed("in the zone: both windows", b.take(3))
	e.allowed("in the zone: a reservation, both windows", b.hold("less", time.Hour, 4))
	e.refused("full: the window after next is free", b.take(3), 2*time.Second)
	if r := results(b.peek().Verdict)[0]; r.Remaining != 2 {
		e.Errorf("%d remain, want 2", r.Remaining)
	}
	if !b.settle("less", 1) {
		e.Error("settle: gone")
	}
	b.wantUsed("settled in both windows", 5)
	e.until(edge)
	b.wantUsed("after the edge: what was taken in the zone", 4)
	e.allowed("the rest of the window", b.take(6))
	e.refused("full", b.take(1), time.Hour)

	// With the next window as full as it can be, the take waits for the one after.
	edge = edge.Add(time.Hour)
	e.until(edge.Add(-time.Second))
	e.refused("this window is full", b.take(1), time.Second)
	e.until(edge.Add(time.Hour - time.Second))
	e.allowed("all, in the zone", b.take(10))
	d := b.take(1)
	e.refused("both windows are full", d, time.Hour+time.Second)
	e.advance(time.Second)
	e.refused("the next one is", b.take(1), time.Hour)
	e.advance(time.Hour)
	e.allowed("the one after is not", b.take(10))
}

func testTotal(e *env) {
	total := calendar(10, drawgate.Total, "")
	b, held, back := e.bucket("k", total), e.bucket("held", chargeEnd(total)), e.bucket("back", total)
	e.allowed("some", b.take(3))
	e.allowed("held, and nothing else is used", held.hold("lost", time.Minute, 6))
	e.allowed("given back", back.hold("unused", time.Minute, 10))
	if !back.settle("unused", 0) {
		e.Error("settle: gone")
	}
	for range 20 { // years
		e.advance(365 * 24 * time.Hour)
	}
	b.wantUsed("years later", 3)
	held.wantUsed("years later, of a call that ended unknown", 6)
	back.wantUsed("years later, of what was given back", 0)
	d := b.take(8)
	e.refused("more than is left", d, results(d)[0].RetryAfter)
	if got := results(d)[0]; got.RetryAfter < drawgate.Never/2 || got.Remaining != 7 {
		e.Errorf("refused for %v, with %d left, want for ever, and 7", got.RetryAfter, got.Remaining)
	}
	e.allowed("the rest", b.take(7))
	e.allowed("the rest beside what was held", held.take(4))
	e.refused("none is left", b.take(1), results(b.take(1))[0].RetryAfter)
	if s := b.peek().States[0]; s.Used != 10 || s.End.Before(e.now().AddDate(100, 0, 0)) {
		e.Errorf("used %d in a window until %v", s.Used, s.End)
	}
}

// nextEdge returns the first start of a calendar window after t. anchor is the day on which a month
// starts. It is only right if no clock change moves the edge, as in the zones used here.
func nextEdge(t time.Time, every drawgate.Every, zone string, anchor int) time.Time {
	loc, err := time.LoadLocation(zone)
	if err != nil {
		panic("storetest: no time zone database: " + err.Error())
	}
	t = t.In(loc)
	midnight := time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, loc)
	switch every {
	case drawgate.Minute:
		return t.Truncate(time.Minute).Add(time.Minute)
	case drawgate.Hour:
		_, offset := t.Zone()
		o := time.Duration(offset) * time.Second
		return t.Add(o).Truncate(time.Hour).Add(time.Hour - o)
	case drawgate.Day:
		return midnight.AddDate(0, 0, 1)
	case drawgate.Week:
		return midnight.AddDate(0, 0, 7-(int(t.Weekday())+6)%7)
	case drawgate.Month:
	default:
		panic("storetest: where do windows of this length start: " + every.String())
	}
	for month := 0; ; month++ {
		last := time.Date(t.Year(), t.Month()+time.Month(month)+1, 0, 0, 0, 0, 0, loc)
		day := time.Date(last.Year(), last.Month(), min(anchor, last.Day()), 0, 0, 0, 0, loc)
		if day.After(t) {
			return day
		}
	}
}

// req: A6, D1
func testCalendarEdges(e *env) {
	anchored := func(day int) drawgate.Limit {
		l := calendar(5, drawgate.Month, "Europe/Berlin")
		l.Anchor = day
		return l
	}
	limits := []drawgate.Limit{
		calendar(5, drawgate.Minute, ""), calendar(5, drawgate.Hour, "Asia/Kolkata"),
		calendar(5, drawgate.Day, "America/Los_Angeles"),
		calendar(5, drawgate.Day, "Pacific/Auckland"), calendar(5, drawgate.Week, "UTC"),
		calendar(5, drawgate.Month, "UTC"), anchored(31), anchored(17),
	}
	for unit := cal.Minute; unit < cal.End; unit++ {
		if !slices.ContainsFunc(limits, func(l drawgate.Limit) bool { return l.Every == drawgate.Every(unit) }) {
			e.Errorf("no limit of this test has windows of a %v", unit)
		}
	}
	for i, l := range limits {
		b := e.bucket(fmt.Sprint("k", i), l)
		e.advance(time.Hour + 11*time.Minute)
		zone := l.Zone
		if zone == "" {
			zone = "UTC"
		}
		edge := nextEdge(e.now(), l.Every, zone, max(1, l.Anchor))
		for window := range 3 {
			e.allowed("all", b.take(5))
			d := b.take(1)
			e.refused(fmt.Sprintf("limit %d, window %d", i, window), d, edge.Sub(e.now()))
			if r := results(d)[0]; !r.ResetAt.Equal(edge) {
				e.Errorf("limit %d: reset at %v, want %v", i, r.ResetAt, edge)
			}
			st := b.peek()
			if s := st.States[0]; !s.End.Equal(edge) || s.Start.After(st.At()) {
				e.Errorf("limit %d: window %v to %v, want it to end at %v", i, s.Start, s.End, edge)
			}
			e.until(edge.Add(-tick))
			e.refused("a microsecond early", b.take(1), tick)
			e.advance(tick)
			b.wantUsed("at the edge", 0)
			if st := b.peek(); !st.States[0].Start.Equal(edge) {
				e.Errorf("limit %d: the window starts at %v, want %v", i, st.States[0].Start, edge)
			}
			edge = nextEdge(e.now(), l.Every, zone, max(1, l.Anchor))
		}
	}
}

func testCalendarDays(e *env) {
	const zone = "America/Los_Angeles"
	b := e.bucket("k", calendar(3, drawgate.Day, zone))
	for range 75 { // every fifth day of a year
		end := nextEdge(e.now(), drawgate.Day, zone, 1)
		e.allowed("two of the day's", b.take(2))
		e.allowed("one of the day's", b.take(1))
		e.refused("the day is used up", b.take(1), end.Sub(e.now()))
		e.until(end)
		e.allowed("the next day's", b.take(3))
		e.advance(4*24*time.Hour - 31*time.Minute)
	}
}

func testShortDay(e *env) {
	const zone = "America/Los_Angeles"
	b := e.bucket("k", calendar(10, drawgate.Day, zone))
	var lengths []time.Duration
	for day := nextEdge(e.now(), drawgate.Day, zone, 1); len(lengths) < 2; {
		next := nextEdge(day, drawgate.Day, zone, 1)
		if length := next.Sub(day); length != 24*time.Hour {
			lengths = append(lengths, length)
			e.until(day)
			e.allowed("all", b.take(10))
			e.refused("full", b.take(1), length)
			e.advance(length - tick)
			e.refused("early", b.take(1), tick)
			e.advance(tick)
			e.allowed("on time", b.take(1))
		}
		day = next
	}
	if lengths[0]+lengths[1] != 48*time.Hour {
		e.Errorf("days of %v", lengths)
	}
}
