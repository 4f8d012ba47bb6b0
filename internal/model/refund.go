package model

import (
	"math/big"
	"slices"

	"github.com/drawgate/drawgate/internal/record"
)

// Refund takes units off the list, the latest first, except for those of open holds. a.Got is how
// many. Partly drained units of a bucket count as whole ones. A calendar limit gives back only in
// the current window. If at is not 0, it does so only soon after that instant, and a calendar limit
// only if at is in the window as well.
func Refund(asks []Ask, at, now int64) {
	now = begin(asks, now)
	for i := range asks {
		a := &asks[i]
		a.Granted = record.Amounts{}
		if at != 0 && now > at+record.SeenLife {
			continue
		}
		for j := range a.Specs {
			lim := a.Ledger.limits[a.Specs[j].ID]
			if at != 0 && lim.spec.Kind == record.Calendar {
				if start, _ := lim.spec.Rule.Window(now); at < start {
					continue
				}
			}
			if n := a.N[j]; n > 0 {
				a.Granted[j] = a.Ledger.refund(a.Ledger.limits[a.Specs[j].ID], n, now)
			}
		}
	}
}

func (l *Ledger) refund(lim *limit, n, now int64) int64 {
	taken := int64(0)
	open := map[*counted]bool{nil: true}
	for _, h := range l.holds {
		for _, p := range h.parts {
			if p.limit == lim.spec.ID && !p.held {
				open[p.counted], taken = true, taken+p.n
			}
		}
	}
	switch lim.spec.Kind {
	case record.Bucket:
		return lim.pay(n, taken, now)
	case record.Rolling:
		back := int64(0)
		for _, c := range slices.Backward(lim.list) {
			if !open[c] {
				d := min(n-back, c.n)
				c.n, back = c.n-d, back+d
			}
		}
		return back
	case record.Calendar:
		start, end := lim.spec.Rule.Window(now)
		sum := int64(0)
		for _, c := range lim.list {
			if c.from < end && c.to >= start && !open[c] {
				sum += c.n
			}
		}
		back := min(n, sum)
		if back > 0 {
			lim.list = append(lim.list, &counted{n: -back, from: now, to: now})
		}
		return back
	}
	return 0
}

// pay lowers a bucket's level by n units, but not below the units of open holds. It returns by how
// many, rounded up.
func (lim *limit) pay(n, taken, now int64) int64 {
	back := atLeast0(new(big.Int).Sub(lim.level, product(taken, lim.spec.Window)))
	if most := lim.spared(product(n, lim.spec.Window), now); back.Cmp(most) > 0 {
		back = most
	}
	lim.level = new(big.Int).Sub(lim.level, back)
	return up(back, big.NewInt(lim.spec.Window)).Int64()
}
