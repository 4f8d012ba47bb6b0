package rules

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Schedule is when a rule holds, by the local time of a zone: on Days, from From until before To.
//
// If To is not after From, the schedule lasts from From over midnight until To on the next day;
// Days are the days on which it begins. Both zero means the whole day. When clocks are set back,
// the repeated hour counts twice; when they are set forward, the skipped time does not count.
type Schedule struct {
	Days     []time.Weekday // empty: every day
	From, To time.Duration  // since midnight, in whole minutes, up to 24h
	Zone     string         // a name of the IANA time zone database; "" means UTC
}

// day is the length of a day on its clock.
const day = 24 * time.Hour

// hours is a compiled schedule.
type hours struct {
	days     [7]bool
	from, to int // minutes since midnight
	zone     *time.Location
}

func (s *Schedule) compile() (*hours, error) {
	h := &hours{from: int(s.From / time.Minute), to: int(s.To / time.Minute)}
	for _, d := range s.Days {
		if d < time.Sunday || d > time.Saturday {
			return nil, fmt.Errorf("unknown weekday %d", d)
		}
		h.days[d] = true
	}
	if len(s.Days) == 0 {
		h.days = [7]bool{true, true, true, true, true, true, true}
	}
	for _, t := range [...]time.Duration{s.From, s.To} {
		if t < 0 || t > day || t%time.Minute != 0 {
			return nil, fmt.Errorf("%v is not a time of day: whole minutes from 00:00 to 24:00", t)
		}
	}
	switch {
	case s.From == day:
		return nil, errors.New("from must not be 24:00, which is on the next day: use 00:00")
	case s.From == s.To && s.From != 0:
		return nil, errors.New("from and to are the same: leave both out for the whole day")
	case s.To == 0:
		h.to = int(day / time.Minute)
	}
	var err error
	h.zone, err = loadZone(s.Zone)
	return h, err
}

func loadZone(name string) (*time.Location, error) {
	if strings.EqualFold(name, "local") {
		return nil, fmt.Errorf("zone %q differs from machine to machine: name one, such as Europe/Berlin", name)
	}
	z, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("zone %q is not in the IANA time zone database; an example is Europe/Berlin", name)
	}
	return z, nil
}

// hold reports whether the schedule holds at now.
func (h *hours) hold(now time.Time) bool {
	now = now.In(h.zone)
	today, minute := now.Weekday(), now.Hour()*60+now.Minute()
	if h.from < h.to {
		return h.days[today] && minute >= h.from && minute < h.to
	}
	yesterday := (today + 6) % 7
	return h.days[today] && minute >= h.from || h.days[yesterday] && minute < h.to
}

// ParseClock reads a time of day, "00:00" to "24:00", as the time since midnight.
func ParseClock(s string) (time.Duration, error) {
	hh, mm, ok := strings.Cut(s, ":")
	h, err1 := strconv.ParseUint(hh, 10, 8)
	m, err2 := strconv.ParseUint(mm, 10, 8)
	d := time.Duration(h)*time.Hour + time.Duration(m)*time.Minute
	if !ok || err1 != nil || err2 != nil || len(mm) != 2 || len(hh) > 2 || m > 59 || d > day {
		return 0, fmt.Errorf("rules: %q is not a time of day such as 09:30", s)
	}
	return d, nil
}

// ParseDay parses the English name of a weekday, in full or its first three letters.
func ParseDay(s string) (time.Weekday, error) {
	for d := time.Sunday; d <= time.Saturday; d++ {
		if strings.EqualFold(s, d.String()) || strings.EqualFold(s, d.String()[:3]) {
			return d, nil
		}
	}
	return 0, fmt.Errorf("rules: %q is not a weekday such as monday or mon", s)
}
