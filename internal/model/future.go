package model

import (
	"math"
	"math/big"

	"github.com/drawgate/drawgate/internal/record"
)

// used returns what counts at t, which is not in the past, if nothing else happens until then:
// holds end at their end and count as used from there. For a bucket it is rounded up.
func (lim *limit) used(held []pending, t int64) int64 {
	switch lim.spec.Kind {
	case record.Bucket:
		return lim.usedBucket(held, t)
	case record.Rolling:
		return lim.usedRolling(held, t)
	case record.Calendar:
		start, end := lim.spec.Rule.Window(t)
		n := lim.usedWindow(held, t, start, end)
		if t+lim.spec.Margin >= end { // a take at t may arrive in the next window
			n = max(n, lim.usedWindow(held, t, end, t+lim.spec.Margin+1))
		}
		return n
	}
	sum := int64(0)
	for _, p := range held {
		if p.end > t {
			sum += p.n
		}
	}
	return sum
}

func (lim *limit) usedBucket(held []pending, t int64) int64 {
	level, at, still := new(big.Int).Set(lim.level), lim.at, int64(0)
	for _, p := range held {
		if p.end > t {
			still += p.n
			continue
		}
		level = atLeast0(level.Sub(level, product(lim.spec.Rate, p.end-at)))
		level.Add(level, product(p.n, lim.spec.Window))
		at = p.end
	}
	level = atLeast0(level.Sub(level, product(lim.spec.Rate, t-at)))
	level.Add(level, product(still, lim.spec.Window))
	return up(level, big.NewInt(lim.spec.Window)).Int64()
}

// usedRolling simulates on copies of the groups how units whose hold ends join them.
func (lim *limit) usedRolling(held []pending, t int64) int64 {
	future := &limit{spec: lim.spec}
	if lim.group != nil {
		newest := *lim.group
		future.group = &newest
	}
	var late []*counted
	for _, p := range held {
		late = append(late, &counted{n: p.n, group: future.join(p.end+lim.lateMargin(), lim.spec.Join)})
	}
	sum := int64(0)
	add := func(c *counted, last int64) {
		if last+lim.spec.Window > t {
			sum += c.n
		}
	}
	newest := func() int64 { // today's newest group, prolonged by the units that will join it
		last := lim.group.last
		for _, c := range late {
			if c.group.first == lim.group.first {
				last = max(last, c.group.last)
			}
		}
		return last
	}
	for _, c := range lim.list {
		if c.group == lim.group {
			add(c, newest())
		} else {
			add(c, c.group.last)
		}
	}
	for _, c := range late {
		add(c, c.group.last)
	}
	return min(sum, most)
}

// usedWindow returns what counts at t in the window [start, end).
func (lim *limit) usedWindow(held []pending, t, start, end int64) int64 {
	sum := int64(0)
	for _, c := range lim.list {
		if c.from < end && c.to >= start {
			sum += c.n
		}
	}
	for _, p := range held {
		if p.end > t || p.end < end && p.end+lim.lateMargin() >= start {
			sum += p.n
		}
	}
	return min(sum, most)
}

// room returns how many units a take at t would be granted.
func (lim *limit) room(held []pending, t int64, priority int8) int64 {
	return max(0, lim.spec.Effective[priority]-lim.used(held, t))
}

// wait returns how long after now it takes until n units fit if nothing else happens: 0 if they
// fit, the largest int64 if they never do.
func (lim *limit) wait(held []pending, now, n int64, priority int8) int64 {
	if n > lim.spec.Effective[priority] {
		return math.MaxInt64
	}
	at := first(now, func(t int64) bool { return n <= lim.spec.Effective[priority]-lim.used(held, t) })
	if at == math.MaxInt64 {
		return at
	}
	return at - now
}

// first returns the first instant from now at which ok is true. Once true, it must stay true.
func first(now int64, ok func(t int64) bool) int64 {
	if ok(now) {
		return now
	}
	step := int64(1)
	for !ok(now + step) {
		if step *= 2; step > 1<<61 {
			return math.MaxInt64
		}
	}
	for no := step / 2; no+1 < step; {
		if mid := (no + step) / 2; ok(now + mid) {
			step = mid
		} else {
			no = mid
		}
	}
	return now + max(step, 1)
}

// reset returns when nothing is used any more; for a calendar limit, the end of the window.
func (lim *limit) reset(held []pending, now int64) int64 {
	if lim.spec.Kind == record.Calendar {
		_, end := lim.spec.Rule.Window(now)
		return end
	}
	return first(now, func(t int64) bool { return lim.used(held, t) == 0 })
}
