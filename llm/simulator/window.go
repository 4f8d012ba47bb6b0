package simulator

import (
	"math/big"
	"sort"
	"time"
)

// entry is units that count from an instant on.
type entry struct {
	at    time.Time
	units int64
}

// counter counts what one limit has admitted. Its methods are called with times that do not go
// back.
type counter interface {
	// used returns the units that count at now.
	used(now time.Time) int64
	// add counts units from now on. They may exceed the limit.
	add(now time.Time, units int64) *entry
	// reduce makes an entry smaller, to at least 0, if it still counts.
	reduce(now time.Time, e *entry, by int64)
	// fits returns the first instant at which so many units fit, if nothing else happens. It is the
	// zero time if that never happens.
	fits(now time.Time, units int64) time.Time
	// empty returns the first instant at which nothing counts any more.
	empty(now time.Time) time.Time
}

func newCounter(l Limit, zone *time.Location) counter {
	switch l.Window {
	case Rolling:
		return &rolling{limit: l}
	case Bucket:
		return &bucket{limit: l, level: new(big.Int)}
	default:
		return &calendar{limit: l, zone: zone}
	}
}

// rolling is a list of entries, the oldest first, and their sum.
type rolling struct {
	limit   Limit
	entries []*entry
	sum     int64
}

// used drops the entries that are as old as the window.
func (r *rolling) used(now time.Time) int64 {
	for len(r.entries) > 0 && now.Sub(r.entries[0].at) >= r.limit.Period {
		r.sum -= r.entries[0].units
		r.entries[0] = nil
		r.entries = r.entries[1:]
	}
	return r.sum
}

func (r *rolling) add(now time.Time, units int64) *entry {
	e := &entry{now, units}
	r.entries = append(r.entries, e)
	r.sum += units
	return e
}

func (r *rolling) reduce(now time.Time, e *entry, by int64) {
	r.used(now)
	if now.Sub(e.at) >= r.limit.Period {
		return
	}
	by = min(by, e.units)
	e.units -= by
	r.sum -= by
}

func (r *rolling) fits(now time.Time, units int64) time.Time {
	used := r.used(now)
	if units > r.limit.Amount {
		return time.Time{}
	}
	at := now
	for i := 0; used+units > r.limit.Amount; i++ {
		used -= r.entries[i].units
		at = r.entries[i].at.Add(r.limit.Period)
	}
	return at
}

func (r *rolling) empty(now time.Time) time.Time {
	if r.used(now); len(r.entries) == 0 {
		return now
	}
	return r.entries[len(r.entries)-1].at.Add(r.limit.Period)
}

// calendar counts one window at a time: an aligned one, a day or a month.
type calendar struct {
	limit  Limit
	zone   *time.Location
	window string // the one that is counted
	sum    int64
}

func (c *calendar) used(now time.Time) int64 {
	if w := windowID(c.limit, c.zone, now); w != c.window {
		c.window, c.sum = w, 0
	}
	return c.sum
}

func (c *calendar) add(now time.Time, units int64) *entry {
	c.used(now)
	c.sum += units
	return &entry{now, units}
}

func (c *calendar) reduce(now time.Time, e *entry, by int64) {
	c.used(now)
	if windowID(c.limit, c.zone, e.at) == c.window {
		by = min(by, e.units)
		e.units -= by
		c.sum -= by
	}
}

func (c *calendar) fits(now time.Time, units int64) time.Time {
	switch used := c.used(now); {
	case units > c.limit.Amount:
		return time.Time{}
	case used+units <= c.limit.Amount:
		return now
	}
	return windowEnd(c.limit, c.zone, now)
}

func (c *calendar) empty(now time.Time) time.Time {
	if c.used(now) == 0 {
		return now
	}
	return windowEnd(c.limit, c.zone, now)
}

// windowID names the aligned window, the day or the month that t is in.
func windowID(l Limit, zone *time.Location, t time.Time) string {
	switch l.Window {
	case Day:
		return t.In(zone).Format("2006-01-02")
	case Month:
		return t.In(zone).Format("2006-01")
	}
	return windowEnd(l, zone, t).UTC().Format(time.RFC3339Nano)
}

// windowEnd returns the first instant after the aligned window, the day or the month that t is in.
func windowEnd(l Limit, zone *time.Location, t time.Time) time.Time {
	if l.Window == Aligned {
		past := t.UnixNano() % int64(l.Period)
		return t.Add(l.Period - time.Duration(past))
	}
	// A search is right whatever the clocks do around midnight. They change at whole seconds.
	id, from := windowID(l, zone, t), t.Add(-time.Duration(t.Nanosecond()))
	const longest = 32 * 24 * 60 * 60
	return from.Add(time.Second * time.Duration(sort.Search(longest, func(seconds int) bool {
		return windowID(l, zone, from.Add(time.Duration(seconds)*time.Second)) != id
	})))
}

// bucket drains continuously. Its level is in units times nanoseconds of the period, so that
// nothing is rounded: big integers, because that can exceed 63 bits.
type bucket struct {
	limit Limit
	level *big.Int // at the instant at
	at    time.Time
}

// drain brings the level to now.
func (b *bucket) drain(now time.Time) {
	if !b.at.IsZero() {
		gone := new(big.Int).Mul(big.NewInt(int64(now.Sub(b.at))), big.NewInt(b.limit.Amount))
		if b.level.Sub(b.level, gone); b.level.Sign() < 0 {
			b.level.SetInt64(0)
		}
	}
	b.at = now
}

func (b *bucket) scaled(units int64) *big.Int {
	return new(big.Int).Mul(big.NewInt(units), big.NewInt(int64(b.limit.Period)))
}

// used rounds up: a unit counts until all of it has drained.
func (b *bucket) used(now time.Time) int64 {
	b.drain(now)
	return ceilDiv(b.level, big.NewInt(int64(b.limit.Period))).Int64()
}

func (b *bucket) add(now time.Time, units int64) *entry {
	b.drain(now)
	b.level.Add(b.level, b.scaled(units))
	return &entry{now, units}
}

func (b *bucket) reduce(now time.Time, e *entry, by int64) {
	b.drain(now)
	by = min(by, e.units)
	e.units -= by
	if b.level.Sub(b.level, b.scaled(by)); b.level.Sign() < 0 {
		b.level.SetInt64(0)
	}
}

func (b *bucket) fits(now time.Time, units int64) time.Time {
	b.drain(now)
	if units > b.limit.Burst {
		return time.Time{}
	}
	return b.drained(now, b.scaled(b.limit.Burst-units))
}

func (b *bucket) empty(now time.Time) time.Time {
	b.drain(now)
	return b.drained(now, new(big.Int))
}

// drained returns when the level will be at most target, or the zero time for never, which is also
// what takes longer than a duration can be.
func (b *bucket) drained(now time.Time, target *big.Int) time.Time {
	over := new(big.Int).Sub(b.level, target)
	switch {
	case over.Sign() <= 0:
		return now
	case b.limit.Amount == 0:
		return time.Time{}
	}
	wait := ceilDiv(over, big.NewInt(b.limit.Amount))
	if !wait.IsInt64() { // 292 years
		return time.Time{}
	}
	return now.Add(time.Duration(wait.Int64()))
}

// ceilDiv divides what is not negative, and rounds up.
func ceilDiv(a, b *big.Int) *big.Int {
	q, r := new(big.Int).QuoRem(a, b, new(big.Int))
	if r.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}
