package spend

import (
	"slices"

	"github.com/drawgate/drawgate/audit"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/store"
)

// Difference is a meter that does not have what ledgers say.
type Difference struct {
	Meter

	Counted  Units // by the store, of calls that have ended
	Reported Units // by the ledgers, of these
	Unended  Units // what the calls have reserved whose end no ledger tells

	less, more Units // by how much the store may differ because of calls that are doubtful
}

// Compare compares meters with ledgers. A meter should have what the calls used that have ended,
// and what those reserved whose end no ledger tells; or less of these, as long as they are under
// way, or were granted without the store. Of a doubtful call it may have what that reserved, or
// nothing if it was granted without the store: doubtful are the meters of which that may be so,
// those of the list included, because doubtful calls may be a part of why they differ. money is the
// unit of costs, as in [Policy].
func Compare(rows []Row, s *audit.Spent, money string) (list []Difference, doubtful map[Meter]bool) {
	all := map[Meter]*Difference{}
	doubtful = map[Meter]bool{}
	of := func(m Meter) *Difference {
		if all[m] == nil {
			all[m] = &Difference{Meter: m}
		}
		return all[m]
	}
	// Where calls had too many models, each gateway told other ones apart: all are taken together.
	blurred := map[Meter]bool{}
	for i := range rows {
		blurred[rows[i].Meter] = rows[i].Model == Other
	}
	rows = Sum(rows, func(m *Meter) {
		if whole := (Meter{m.Day, m.Team, m.Key, m.Upstream, Other}); blurred[whole] {
			*m = whole
		}
	})
	counted := map[Meter]*Row{}
	for i := range rows {
		r := &rows[i]
		counted[r.Meter] = r
		of(r.Meter).Counted = r.Used
	}
	meter := func(p audit.Spender) Meter {
		m := Meter(p)
		m = m.named()
		if whole := (Meter{m.Day, m.Team, m.Key, m.Upstream, Other}); blurred[whole] {
			return whole
		}
		return m
	}
	for p, units := range s.Ended {
		reported := &of(meter(p)).Reported
		for unit, n := range units {
			reported.addUnit(unit, n, money)
		}
	}
	for i := range s.Unended {
		c := &s.Unended[i]
		d := of(meter(c.Spender))
		for _, a := range c.Reserved {
			d.Unended.addUnit(a.Unit, a.N, money)
			if c.Uncertain {
				d.less.addUnit(a.Unit, a.N, money)
			}
		}
	}
	for i := range s.Doubtful {
		c := &s.Doubtful[i]
		d := of(meter(c.Spender))
		for _, a := range c.Reserved {
			used := a.N
			if i := slices.IndexFunc(c.Used, func(u audit.Amount) bool { return u.Unit == a.Unit }); i >= 0 {
				used = c.Used[i].N
			}
			least := min(used, a.N)
			if c.Uncertain {
				least = 0
			}
			d.less.addUnit(a.Unit, used-least, money)
			d.more.addUnit(a.Unit, max(0, a.N-used), money)
			if c.Twice {
				d.more.addUnit(a.Unit, min(a.N, used), money)
			}
		}
	}
	for m, d := range all {
		open := Units{}
		if r := counted[m]; r != nil {
			open = r.Open
		}
		switch {
		case !d.agrees(&open, true):
			list = append(list, *d)
			doubtful[m] = true // they may be a part of it
		case !d.agrees(&open, false):
			doubtful[m] = true
		}
	}
	slices.SortFunc(list, func(a, b Difference) int { return a.compare(&b.Meter) })
	return list, doubtful
}

// agrees reports whether a meter has what the ledgers say, with doubt or without. What is under way
// still is not counted.
func (d *Difference) agrees(open *Units, doubt bool) bool {
	counts, tells, ends, opens := d.Counted.all(), d.Reported.all(), d.Unended.all(), open.all()
	allLess, allMore := d.less.all(), d.more.all()
	for i := range counts {
		counted, reported, unended := counts[i], tells[i], ends[i]
		less, more := int64(0), int64(0)
		if doubt {
			less, more = allLess[i], allMore[i]
		}
		if counted < reported+unended-opens[i]-less || counted > reported+unended+more {
			return false
		}
	}
	return true
}

// addUnit adds units by their name.
func (u *Units) addUnit(unit string, n int64, money string) {
	switch unit {
	case store.UnitRequests:
		u.Requests += n
	case llm.UnitPromptTokens:
		u.PromptTokens += n
	case llm.UnitAnswerTokens:
		u.AnswerTokens += n
	case money:
		u.Micros += n
	}
}
