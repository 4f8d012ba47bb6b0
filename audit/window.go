package audit

import "time"

// span is a window [from, until), in nanoseconds since 1970.
type span struct{ from, until int64 }

// spanOf returns the window of an aligned or calendar limit that an instant is in.
func (l *Limit) spanOf(at int64) span {
	if l.Window == Aligned {
		p := l.Period.Nanoseconds()
		from := floor(at, p)
		return span{from, from + p}
	}
	t := time.Unix(0, at).In(l.Zone)
	if l.Window == Hour {
		return l.hour(t)
	}
	y, m, d := t.Date()
	start := func(i int) int64 { return midnight(l.Zone, y, m, d+i) }
	switch l.Window {
	case Week:
		monday := d - (int(t.Weekday())+6)%7
		start = func(i int) int64 { return midnight(l.Zone, y, m, monday+7*i) }
	case Month:
		start = func(i int) int64 { return midnight(l.Zone, y, m+time.Month(i), l.anchor(y, m+time.Month(i))) }
	}
	// A clock that is set back at midnight shows the day before again, which is over.
	i := -1
	for start(i+1) <= at {
		i++
	}
	return span{start(i), start(i + 1)}
}

// anchor returns the day on which a month starts: the last one if it is shorter.
func (l *Limit) anchor(y int, m time.Month) int {
	return min(l.Anchor, time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day())
}

// hour returns the hour of the zone's clock: those of some zones begin at half past.
func (l *Limit) hour(t time.Time) span {
	const length = int64(time.Hour / 1)
	_, offset := t.Zone()
	shift := int64(offset) * int64(time.Second/1)
	from := floor(t.UnixNano()+shift, length) - shift
	return span{from, from + length}
}

// midnight returns the first instant at which a zone's clock has reached a day.
func midnight(zone *time.Location, y int, m time.Month, d int) int64 {
	day := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	// Of each period without a change of the clock it is the instant at which that one shows 0:00,
	// or the period's start if it shows more already. The first that exists is the one.
	const most = 26 * time.Hour // clocks differ from UTC by less
	for t := day.Add(-most).In(zone); ; {
		_, offset := t.Zone()
		from, until := t.ZoneBounds()
		at := day.Unix() - int64(offset)
		if !from.IsZero() && at < from.Unix() {
			at = from.Unix()
		}
		if until.IsZero() || at < until.Unix() {
			return at * int64(time.Second/1)
		}
		t = until
	}
}

// floor rounds down to a multiple of p.
func floor(at, p int64) int64 {
	r := at % p
	if r < 0 {
		r += p
	}
	return at - r
}

// windows returns how many windows lie between two instants, the one of until left out.
func (l *Limit) windows(first, until int64) int64 {
	switch l.Window {
	case Rolling:
		return (until - first) / l.Period.Nanoseconds()
	case Aligned:
		p := l.Period.Nanoseconds()
		return (floor(until, p) - floor(first, p)) / p
	}
	from, to := l.spanOf(first).from, l.spanOf(until).from
	if l.Window == Hour {
		return (to - from) / int64(time.Hour)
	}
	// A day may start an hour late, where the clock skips midnight.
	a, b := time.Unix(0, from).In(l.Zone), time.Unix(0, to).In(l.Zone)
	days := int64(date(b).Sub(date(a)) / (24 * time.Hour))
	switch l.Window {
	case Week:
		return days / 7
	case Month:
		return int64(b.Year()-a.Year())*12 + int64(b.Month()-a.Month())
	}
	return days
}

// date returns the day that a clock shows, as an instant that can be subtracted.
func date(t time.Time) time.Time {
	y, m, d := t.Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}
