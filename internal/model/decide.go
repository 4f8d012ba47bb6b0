package model

import (
	"math/big"

	"github.com/drawgate/drawgate/internal/record"
)

// Ask is one bucket's part of a take, like record.Ask.
type Ask struct {
	Ledger *Ledger
	Specs  []record.Spec
	N      record.Amounts
	Out    [record.MaxLimits]record.Result
	Got    record.Amounts
}

// begin brings all ledgers to now, or to the latest instant that one of them has seen.
func begin(asks []Ask, now int64) int64 {
	for i := range asks {
		now = max(now, asks[i].Ledger.last)
	}
	for i := range asks {
		asks[i].Ledger.advance(asks[i].Specs, now)
	}
	return now
}

// Decide decides one take over its buckets: all or nothing. The verdict's Soonest is exact here; elsewhere it may be earlier.
func Decide(asks []Ask, t *record.Take, now int64) record.Verdict {
	now = begin(asks, now)
	v := record.Verdict{Now: now}
	if t.ID != "" {
		open := 0
		for i := range asks {
			h := asks[i].Ledger.holds[t.ID]
			if h == nil {
				continue
			}
			if h.print != t.Print {
				return record.Verdict{Now: now, Reused: true}
			}
			if open == 0 || h.end < v.End {
				v.End = h.end
			}
			open++
			asks[i].Got = h.amounts(asks[i].Specs)
		}
		if open > 0 && open < len(asks) {
			return record.Verdict{Now: now, Reused: true}
		}
		v.Allowed, v.Replayed = open > 0, open > 0
	}
	if !v.Replayed {
		if v.Allowed = fits(asks, t, now); v.Allowed {
			if t.Hold > 0 {
				for i := range asks {
					if len(asks[i].Ledger.holds) >= record.MaxOpen {
						return record.Verdict{Now: now, Full: true}
					}
				}
				v.End = now + t.Hold
			}
			for i := range asks {
				asks[i].charge(t, now, v.End)
			}
		}
	}
	for i := range asks {
		for j := range asks[i].Specs {
			n := asks[i].N[j]
			if v.Allowed {
				n = 0
			} else if t.Lease {
				n = min(n, 1)
			}
			soonest := asks[i].answer(j, now, n, t.Priority)
			v.RetryAfter = max(v.RetryAfter, asks[i].Out[j].RetryAfter)
			v.Soonest = max(v.Soonest, soonest)
		}
	}
	return v
}

func (h *hold) amounts(specs []record.Spec) (a record.Amounts) {
	for _, p := range h.parts {
		for j := range specs {
			if specs[j].ID == p.limit {
				a[j] = p.n
			}
		}
	}
	return a
}

func fits(asks []Ask, t *record.Take, now int64) bool {
	for i := range asks {
		a := &asks[i]
		a.Got = a.N
		for j := range a.Specs {
			n, s := a.N[j], &a.Specs[j]
			if n == 0 {
				continue
			}
			lim, held := a.Ledger.limits[s.ID], a.Ledger.pending(s.ID)
			least := n
			if t.Lease {
				a.Got[j], least = min(n, lim.room(held, now, t.Priority)), 1
			}
			if s.Kind == record.Concurrency && t.Hold == 0 || lim.wait(held, now, least, t.Priority) > 0 {
				return false
			}
		}
	}
	return true
}

// charge counts what was granted.
func (a *Ask) charge(t *record.Take, now, end int64) {
	h := &hold{print: t.Print, end: end}
	for j := range a.Specs {
		n, s := a.Got[j], &a.Specs[j]
		if n == 0 {
			continue
		}
		lim := a.Ledger.limits[s.ID]
		p := part{limit: s.ID, n: n, at: now, margin: lim.holdMargin(), held: s.Kind == record.Concurrency || end != 0 && (t.Lease || s.ChargeEnd)}
		if !p.held {
			p.counted = lim.count(now, p.margin, n)
		}
		if end != 0 {
			lim.peak = max(lim.peak, s.Rate)
		}
		h.parts = append(h.parts, p)
	}
	if end != 0 {
		if a.Ledger.holds == nil {
			a.Ledger.holds = map[string]*hold{}
		}
		a.Ledger.holds[t.ID] = h
	}
}

// answer describes one limit to a take of n units, and returns how soon it could pass if everything held were given back.
func (a *Ask) answer(j int, now, n int64, priority int8) (soonest int64) {
	s := &a.Specs[j]
	lim, held := a.Ledger.limits[s.ID], a.Ledger.pending(s.ID)
	a.Out[j] = record.Result{Remaining: lim.room(held, now, priority), ResetAt: lim.reset(held, now)}
	if n == 0 {
		return 0
	}
	a.Out[j].RetryAfter = lim.wait(held, now, n, priority)
	return a.Ledger.cancelled(lim).wait(nil, now, n, priority)
}

// Peek says what a take would get, and changes nothing. Afterwards a.Ledger is a copy, which stands at the instant of the answer.
func Peek(a *Ask, priority int8, now int64) record.Verdict {
	a.Ledger.last = max(a.Ledger.last, now)
	a.Ledger = a.Ledger.clone()
	asks := []Ask{*a}
	v := record.Verdict{Now: begin(asks, now)}
	for j := range a.Specs {
		soonest := asks[0].answer(j, v.Now, a.N[j], priority)
		v.RetryAfter = max(v.RetryAfter, asks[0].Out[j].RetryAfter)
		v.Soonest = max(v.Soonest, soonest)
	}
	v.Allowed = v.RetryAfter == 0
	a.Out = asks[0].Out
	return v
}

// Settle ends a reservation with what was really used, or with nothing; record.Keep where the estimate stands.
func Settle(asks []Ask, id string, cancel bool, now int64) (settled bool) {
	now = begin(asks, now)
	for i := range asks {
		l := asks[i].Ledger
		h := l.holds[id]
		if h == nil {
			continue
		}
		settled = true
		for k := range h.parts {
			p := &h.parts[k]
			n, known := p.n, false
			for j := range asks[i].Specs {
				if asks[i].Specs[j].ID == p.limit {
					known = true
					if asks[i].N[j] != record.Keep {
						n = asks[i].N[j]
					}
				}
			}
			if cancel {
				n = 0
			}
			l.limits[p.limit].settle(p, n, now, known)
		}
		l.close(id)
	}
	return settled
}

func (lim *limit) settle(p *part, n, now int64, known bool) {
	switch {
	case p.held:
		lim.age(p, n, now, known, 0)
	case lim.spec.Kind != record.Bucket:
		p.counted.n = n
	case n >= p.n:
		lim.owe(n - p.n)
	default:
		lim.level = atLeast0(new(big.Int).Sub(lim.level, lim.credit(p, n, now)))
		lim.round()
	}
}

// Renew lets a hold end at now + d, but not earlier than it did. It reports whether the id was open, and the end.
func Renew(asks []Ask, id string, d, now int64) (renewed bool, end int64) {
	now = begin(asks, now)
	for i := range asks {
		if h := asks[i].Ledger.holds[id]; h != nil {
			h.end = max(h.end, now+d)
			renewed, end = true, max(end, h.end)
		}
	}
	return renewed, end
}

// Charge counts units that were used at instant at: calendar limits in the window of that instant, the others now. Not concurrency limits.
func Charge(asks []Ask, at, now int64) {
	now = begin(asks, now)
	for i := range asks {
		for j := range asks[i].Specs {
			lim := asks[i].Ledger.limits[asks[i].Specs[j].ID]
			switch lim.spec.Kind {
			case record.Concurrency:
			case record.Calendar:
				lim.count(min(at, now), 0, asks[i].N[j])
			default:
				lim.count(now, 0, asks[i].N[j])
			}
		}
	}
}
