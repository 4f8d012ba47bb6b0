package audit

import (
	"math"
	"time"
)

// use is what one call counts under one limit.
//
// least counts for certain at some instant from a to b; nothing does if it is 0. most may count at
// some instant from a to c. Until the call ended, it may count as all that was reserved.
type use struct {
	a, b, c, ended        int64
	least, most, reserved int64
	asked                 bool // it was refused: least was asked for at b, and does not count afterwards
	closed                bool // it was refused, perhaps because of this limit
	named                 bool // it was refused, and the upstream said that it was because of this limit
}

// series is one limit for those who share it. Steps come in any order that is not too late, and
// take effect in the order of their time.
type series struct {
	limit *Limit
	w     int64 // the period
	steps steps
	swept int64 // up to here, exclusive, steps have taken effect
	ends  map[int64]bool
	last  span // that was looked up last

	most, least int64 // what counts now
	level       bucket
	floor       bucket // the least that can be in it

	over  *Episode // that has begun; nil: there is none
	line  LimitReport
	first int64 // when the first unit counted; 0: none did
	index int64 // of the window, from the first on, in which the latest units counted
	now   int64 // units in that window
	done  int64 // units in those before
}

// bucket is what is in a bucket, in parts of a unit.
type bucket struct {
	level, at int64
}

// fullest is the most that a bucket is counted to have.
const fullest = 1 << 61

func (b *bucket) drain(l *Limit, at int64) {
	rate := l.drain()
	if gone := at - b.at; rate > 0 && gone > b.level/rate {
		b.level = 0
	} else {
		b.level -= gone * rate
	}
	b.at = at
}

func (b *bucket) pour(parts int64) { b.level = min(b.level+parts, fullest) }

// inParts returns units as parts.
func (l *Limit) inParts(units int64) int64 { return min(units, fullest/l.parts()) * l.parts() }

// units returns parts as units: one counts until all of it has drained.
func (l *Limit) units(parts int64) int64 { return (parts + l.parts() - 1) / l.parts() }

// add counts a call. What is before swept is counted from swept on: see [Report.Late].
func (s *series) add(u use, frontier int64) (late bool) {
	s.sweep(frontier)
	if u.a < s.swept {
		u.a, u.least, late = s.swept, 0, true
	}
	u.b, u.c = max(u.b, u.a), max(u.c, u.a)
	u.reserved = max(u.reserved, u.most)
	if u.asked {
		u.ended++ // so that it counts at the instant itself
	}
	switch {
	case u.closed && u.named:
		s.steps.push(step{at: u.b, kind: stepNamed})
	case u.closed:
		s.steps.push(step{at: u.b, kind: stepClosed})
	}
	if u.reserved == 0 && u.least == 0 {
		return late
	}
	switch s.limit.Window {
	case Rolling:
		s.addRolling(&u)
	case Bucket:
		s.addBucket(&u)
	default:
		s.addAligned(&u)
	}
	return late
}

// addRolling counts a call. After the instant s, the window is [s-w, s).
func (s *series) addRolling(u *use) {
	s.steps.push(step{at: u.a, kind: stepMore, most: u.reserved, used: u.most})
	s.steps.push(step{at: min(max(u.ended, u.a), u.c+s.w), kind: stepLess, most: u.reserved - u.most})
	s.steps.push(step{at: u.c + s.w, kind: stepLess, most: u.most})
	switch {
	case u.least == 0, u.b >= u.a+s.w: // it is certain of no window
	case u.asked:
		s.ask(u)
	default:
		s.steps.push(step{at: u.b, kind: stepMore, least: u.least})
		s.steps.push(step{at: u.a + s.w, kind: stepLess, least: u.least})
	}
}

// ask counts what a refused call asked for, at the instant at which it did.
func (s *series) ask(u *use) {
	s.steps.push(step{at: u.b, kind: stepMore, least: u.least})
	s.steps.push(step{at: u.b + 1, kind: stepLess, least: u.least})
}

// addAligned counts a call in each window that it may count in.
func (s *series) addAligned(u *use) {
	used := u.most
	w := s.window(u.a)
	if u.least > 0 && u.b < w.until {
		s.steps.push(step{at: u.b, kind: stepMore, least: u.least})
		if u.asked && u.b+1 < w.until {
			s.steps.push(step{at: u.b + 1, kind: stepLess, least: u.least})
		}
	}
	for ; ; w = s.window(w.until) {
		from := max(u.a, w.from)
		s.steps.push(step{at: from, kind: stepMore, most: u.reserved, used: used})
		if ended := max(u.ended, from); ended < w.until {
			s.steps.push(step{at: ended, kind: stepLess, most: u.reserved - u.most})
		}
		if !s.ends[w.until] {
			s.ends[w.until] = true
			s.steps.push(step{at: w.until, kind: stepEnd})
		}
		if u.c < w.until {
			return
		}
		used = 0 // it was counted
	}
}

// window is spanOf, which takes a while.
func (s *series) window(at int64) span {
	if at < s.last.from || at >= s.last.until {
		s.last = s.limit.spanOf(at)
	}
	return s.last
}

// addBucket counts a call. Until c it may still be about to count, and nothing of it has drained.
// At b, what counted at a may have drained since.
func (s *series) addBucket(u *use) {
	s.steps.push(step{at: u.a, kind: stepMore, most: u.reserved, used: u.most})
	s.steps.push(step{at: u.c, kind: stepLess, most: u.reserved})
	s.steps.push(step{at: u.c, kind: stepPour, most: s.limit.inParts(u.most)})
	if u.asked {
		s.ask(u)
		return
	}
	rate, least := s.limit.drain(), s.limit.inParts(u.least)
	if rate == 0 || u.b-u.a < least/rate {
		s.steps.push(step{at: u.b, kind: stepPour, least: least - rate*(u.b-u.a)})
	}
}

// sweep lets all steps before an instant take effect.
func (s *series) sweep(until int64) {
	for len(s.steps) > 0 && s.steps[0].at < until {
		at := s.steps[0].at
		if s.limit.Window == Bucket {
			s.level.drain(s.limit, at)
			s.floor.drain(s.limit, at)
		}
		closed, named := false, false
		for len(s.steps) > 0 && s.steps[0].at == at {
			t := s.steps.pop()
			switch t.kind {
			case stepEnd:
				s.most, s.least = 0, 0
				delete(s.ends, at)
			case stepLess:
				s.most, s.least = s.most-t.most, s.least-t.least
			case stepMore:
				s.most, s.least = s.most+t.most, s.least+t.least
				s.count(at, t.used)
			case stepPour:
				s.level.pour(t.most)
				s.floor.pour(t.least)
			case stepClosed, stepNamed:
				closed, named = true, named || t.kind == stepNamed
				s.line.Refused++
			}
		}
		s.judge(at, closed, named)
	}
	s.swept = max(s.swept, until)
}

// used returns what can be used right after the instant that was swept last.
func (s *series) used() (least, most int64) {
	if s.limit.Window != Bucket {
		return s.least, s.most
	}
	return s.limit.units(s.floor.level) + s.least, s.limit.units(s.level.level) + s.most
}

// judge looks at the window that an instant is the last of.
func (s *series) judge(at int64, closed, named bool) {
	least, most := s.used()
	l := &s.line
	if most > l.Most.Units {
		l.Most = Peak{most, s.from(at), s.until(at)}
	}
	if least > l.Least.Units {
		l.Least = Peak{least, s.from(at), s.until(at)}
	}
	over := most > s.limit.most()
	if closed && !over {
		l.Unexplained++
	}
	if over && s.over == nil {
		s.over = &Episode{From: s.from(at)}
	}
	if s.over == nil {
		return
	}
	if !over {
		if s.limit.Window == Rolling || s.limit.Window == Bucket {
			s.over.Until = time.Unix(0, at)
		}
		s.endOver()
		return
	}
	s.over.Until = s.until(at)
	s.over.Least, s.over.Most = max(s.over.Least, least), max(s.over.Most, most)
	s.over.Certain = s.over.Certain || least > s.limit.most() || named
	s.over.Refused = s.over.Refused || closed
}

// from and until return the ends of the window that at is the last instant of, for people.
func (s *series) from(at int64) time.Time {
	switch s.limit.Window {
	case Rolling:
		return time.Unix(0, at-s.w)
	case Bucket:
		return time.Unix(0, at)
	}
	return time.Unix(0, s.window(at).from)
}

func (s *series) until(at int64) time.Time {
	switch s.limit.Window {
	case Rolling, Bucket:
		return time.Unix(0, at)
	}
	return time.Unix(0, s.window(at).until)
}

// maxEpisodes is how many episodes a report lists per limit. All are counted.
const maxEpisodes = 1000

func (s *series) endOver() {
	l := &s.line
	l.Episodes++
	if s.over.Certain {
		l.CertainEpisodes++
	}
	if len(l.Over) < maxEpisodes {
		l.Over = append(l.Over, *s.over)
	}
	s.over = nil
}

// count adds up what was used, window by window.
func (s *series) count(at, used int64) {
	s.line.Total += used
	if used == 0 {
		return
	}
	if s.first == 0 {
		s.first = at
	}
	i := s.index
	switch s.limit.Window {
	case Rolling:
		i = (at - s.first) / s.w
	case Bucket:
	default:
		i = s.window(at).from
	}
	if i != s.index {
		s.index, s.done, s.now = i, s.done+s.now, 0
	}
	s.now += used
}

// report ends the series.
func (s *series) report(until int64) LimitReport {
	s.sweep(math.MaxInt64)
	if s.over != nil {
		s.endOver()
	}
	l := &s.line
	switch {
	case l.CertainEpisodes > 0:
		l.Verdict = Over
	case l.Episodes > 0, l.Unexplained > 0:
		l.Verdict = Possible
	default:
		l.Verdict = Within
	}
	if s.first == 0 {
		return *l
	}
	s.share(max(until, s.first))
	return *l
}

// share computes how much of whole windows was used.
func (s *series) share(until int64) {
	l := &s.line
	if s.limit.Window == Bucket {
		l.Used = l.Total
		span := float64(until-s.first) / float64(s.w)
		l.Allowed = s.limit.Burst + int64(span*float64(s.limit.Amount))
	} else {
		l.Windows = s.limit.windows(s.first, until)
		l.Allowed, l.Used = l.Windows*s.limit.Amount, s.done
		if whole := s.index < l.Windows; s.limit.Window == Rolling && whole ||
			s.limit.Window != Rolling && s.limit.spanOf(s.index).until <= until {
			l.Used += s.now
		}
	}
	if l.Allowed > 0 {
		l.Share = float64(l.Used) / float64(l.Allowed)
	}
}

func newSeries(l *Limit, owner, quota, model string) *series {
	s := &series{limit: l, w: l.Period.Nanoseconds(), ends: map[int64]bool{}}
	s.line = LimitReport{
		Quota: quota, Owner: owner, Model: model, Limit: l.Name, Counts: l.String(), Unit: l.Unit, Window: l.Window,
		Amount: l.Amount, Burst: l.Burst,
	}
	return s
}
