package simulator

import (
	"cmp"
	"math/big"
	"slices"
	"time"
)

// Report is what the ledger says about each limit. It is computed from the calls alone, without the
// counters that admitted them.
type Report struct {
	// From is the first arrival, and Until the end of what was counted.
	From  time.Time `json:"from,omitzero"`
	Until time.Time `json:"until"`
	// Calls that arrived, and how many of them were admitted.
	Calls    int64 `json:"calls"`
	Admitted int64 `json:"admitted"`
	// Outcomes counts the calls by how they ended.
	Outcomes   map[Outcome]int64 `json:"outcomes"`
	Violations int64             `json:"violations"`
	// ByDimension counts violations by the dimensions of the limits that were full.
	ByDimension map[Dimension]int64 `json:"violations_by_dimension"`
	// Dropped counts calls that the ledger no longer has: the limits below do not know them.
	Dropped int64 `json:"dropped"`
	// Limits has every limit that a call was counted by, sorted.
	Limits []LimitReport `json:"limits"`
}

// LimitReport is how much of one limit was used, by those who share it.
type LimitReport struct {
	Provider     Provider  `json:"provider"`
	Quota        string    `json:"quota"`
	Model        string    `json:"model,omitempty"` // "" if the models of the quota share the limit
	Organization string    `json:"organization"`
	Project      string    `json:"project,omitempty"`
	Limit        string    `json:"limit"`
	Dimension    Dimension `json:"dimension"`
	Window       Window    `json:"window"`
	Amount       int64     `json:"amount"`
	Burst        int64     `json:"burst,omitempty"`

	// Total is what admitted calls used.
	Total int64 `json:"total"`
	// Worst is what they used in the worst window, which began at WorstAt. Of a bucket it is the
	// highest level, and WorstAt is when it was reached.
	Worst   int64     `json:"worst"`
	WorstAt time.Time `json:"worst_at,omitzero"`
	// WorstRolling and WorstAligned are what they used in the worst window of both kinds, if the
	// limit is of one of them: for a provider that does not say which it counts by.
	WorstRolling int64 `json:"worst_rolling,omitempty"`
	WorstAligned int64 `json:"worst_aligned,omitempty"`
	// Over is what Worst exceeds the limit by; 0 if it does not.
	Over int64 `json:"over"`
	// Windows is the number of whole windows: those that follow each other without a gap from the
	// first use on, and have ended. Allowed is what the limit admits in them, and Used what was
	// used. Days, months and aligned windows begin where the calendar says. Of a bucket Windows is
	// 0, and Allowed is what it could have let pass from the first use until the end.
	Windows int64 `json:"windows"`
	Allowed int64 `json:"allowed"`
	Used    int64 `json:"used"`
	// Share is Used ÷ Allowed; 0 if there is no whole window.
	Share float64 `json:"share"`
	// Refused counts calls that found this limit full.
	Refused int64 `json:"refused"`
}

// use is units that counted from an instant on.
type use struct {
	at    time.Time
	units int64
}

// counted is what one limit counted.
type counted struct {
	limit   Limit
	zone    *time.Location
	uses    []use
	refused int64
	line    LimitReport
}

// report counts again, from calls alone. Calls and entries after until are left out.
func report(quotas []Quota, limits [][]limit, calls []*Call, until time.Time) (r Report) {
	r.Until, r.Limits = until, []LimitReport{}
	found := map[lineKey]*counted{}
	for _, c := range calls {
		if c.Arrived.After(until) {
			continue
		}
		if r.From.IsZero() {
			r.From = c.Arrived
		}
		for j, q := range quotas {
			if q.Provider == c.Provider && q.Name == c.Quota {
				countAgain(found, q, limits[j], c, until)
			}
		}
	}
	for _, f := range found {
		r.Limits = append(r.Limits, f.report(until))
	}
	slices.SortFunc(r.Limits, func(a, b LimitReport) int {
		return cmp.Or(
			cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Quota, b.Quota), cmp.Compare(a.Model, b.Model),
			cmp.Compare(a.Organization, b.Organization), cmp.Compare(a.Project, b.Project),
			cmp.Compare(a.Limit, b.Limit),
		)
	})
	return r
}

// lineKey identifies a line.
type lineKey struct {
	provider                                   Provider
	quota, model, organization, project, limit string
}

// countAgain adds a call to each of its quota's limits.
func countAgain(found map[lineKey]*counted, q Quota, limits []limit, c *Call, until time.Time) {
	for _, l := range limits {
		k := lineKey{q.Provider, q.Name, c.Model, c.Organization, c.Project, l.Name}
		if q.Shared {
			k.model = ""
		}
		if l.Scope == Organization {
			k.project = ""
		}
		if found[k] == nil {
			found[k] = &counted{limit: l.Limit, zone: l.zone, line: LimitReport{
				Provider: q.Provider, Quota: q.Name, Model: k.model, Organization: c.Organization, Project: k.project,
				Limit: l.Name, Dimension: l.Dimension, Window: l.Window, Amount: l.Amount, Burst: l.Burst,
			}}
		}
		found[k].add(c, until)
	}
}

func (f *counted) add(c *Call, until time.Time) {
	if slices.ContainsFunc(c.Refusals, func(r Refusal) bool { return r.Limit == f.limit.Name }) {
		f.refused++
	}
	if !c.Admitted {
		return
	}
	if n := c.Charged.Of(f.limit.Dimension); n > 0 {
		f.uses = append(f.uses, use{c.Arrived, n})
	}
	for _, e := range c.Later {
		if n := e.Amount.Of(f.limit.Dimension); n > 0 && !e.At.After(until) {
			f.uses = append(f.uses, use{e.At, n})
		}
	}
}

func (f *counted) report(until time.Time) LimitReport {
	l := f.line
	l.Refused = f.refused
	slices.SortStableFunc(f.uses, func(a, b use) int { return a.at.Compare(b.at) })
	for _, u := range f.uses {
		l.Total += u.units
	}
	if len(f.uses) == 0 {
		return l
	}
	switch f.limit.Window {
	case Rolling:
		f.rolling(&l, until)
		l.WorstRolling, l.WorstAligned = l.Worst, f.as(Aligned).calendarWorst()
	case Aligned:
		f.calendar(&l, until)
		l.WorstRolling, l.WorstAligned = f.as(Rolling).rollingWorst(), l.Worst
	case Bucket:
		f.bucket(&l, until)
	case Day, Month:
		f.calendar(&l, until)
	}
	most := f.limit.Amount
	if f.limit.Window == Bucket {
		most = f.limit.Burst
	}
	l.Over = max(0, l.Worst-most)
	if l.Allowed > 0 {
		l.Share = float64(l.Used) / float64(l.Allowed)
	}
	return l
}

// as returns the same uses of a limit with another window.
func (f *counted) as(w Window) *counted {
	g := *f
	g.limit.Window = w
	return &g
}

func (f *counted) calendarWorst() int64 {
	var l LimitReport
	f.calendar(&l, f.uses[len(f.uses)-1].at)
	return l.Worst
}

func (f *counted) rollingWorst() int64 {
	var l LimitReport
	f.rolling(&l, f.uses[len(f.uses)-1].at)
	return l.Worst
}

// rolling looks at every window that begins with a use: no other window has more in it.
func (f *counted) rolling(l *LimitReport, until time.Time) {
	end, sum := 0, int64(0)
	for _, u := range f.uses {
		for end < len(f.uses) && f.uses[end].at.Sub(u.at) < f.limit.Period {
			sum += f.uses[end].units
			end++
		}
		if sum > l.Worst {
			l.Worst, l.WorstAt = sum, u.at
		}
		sum -= u.units
	}
	first := f.uses[0].at
	l.Windows = int64(until.Sub(first) / f.limit.Period)
	l.Allowed = l.Windows * f.limit.Amount
	last := first.Add(time.Duration(l.Windows) * f.limit.Period)
	for _, u := range f.uses {
		if u.at.Before(last) {
			l.Used += u.units
		}
	}
}

// calendar adds up each aligned window, day or month.
func (f *counted) calendar(l *LimitReport, until time.Time) {
	sums := map[string]int64{}
	now := f.name(until)
	for _, u := range f.uses {
		w := f.name(u.at)
		sums[w] += u.units
		if sums[w] > l.Worst {
			l.Worst, l.WorstAt = sums[w], f.start(u.at)
		}
		if w != now {
			l.Used += u.units
		}
	}
	if f.limit.Window == Aligned { // there may be too many to count them one by one
		l.Windows = int64(f.start(until).Sub(f.start(f.uses[0].at)) / f.limit.Period)
	} else {
		for at := f.uses[0].at; f.name(at) != now; at = f.after(at) {
			l.Windows++
		}
	}
	l.Allowed = l.Windows * f.limit.Amount
}

// name and start say which window t is in, and when it begins; after returns an instant in the next
// day or month.
func (f *counted) name(t time.Time) string {
	switch f.limit.Window {
	case Day:
		return t.In(f.zone).Format("2 January 2006")
	case Month:
		return t.In(f.zone).Format("January 2006")
	}
	return f.start(t).String()
}

func (f *counted) start(t time.Time) time.Time {
	t = t.In(f.zone).Round(0)
	switch f.limit.Window {
	case Day:
		return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, f.zone)
	case Month:
		return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, f.zone)
	}
	return time.Unix(0, t.UnixNano()/int64(f.limit.Period)*int64(f.limit.Period))
}

func (f *counted) after(t time.Time) time.Time {
	t = t.In(f.zone)
	if f.limit.Window == Month {
		return time.Date(t.Year(), t.Month()+1, 15, 12, 0, 0, 0, f.zone)
	}
	// noon is in the same day whatever the clocks do
	return time.Date(t.Year(), t.Month(), t.Day()+1, 12, 0, 0, 0, f.zone)
}

// bucket follows the level exactly, as a fraction.
func (f *counted) bucket(l *LimitReport, until time.Time) {
	rate := big.NewRat(f.limit.Amount, int64(f.limit.Period)) // per nanosecond
	level, worst := new(big.Rat), new(big.Rat)
	at := f.uses[0].at
	for _, u := range f.uses {
		gone := new(big.Rat).Mul(rate, new(big.Rat).SetInt64(int64(u.at.Sub(at))))
		if level.Sub(level, gone); level.Sign() < 0 {
			level.SetInt64(0)
		}
		level.Add(level, new(big.Rat).SetInt64(u.units))
		at = u.at
		if level.Cmp(worst) > 0 {
			worst.Set(level)
			l.WorstAt = u.at
		}
	}
	l.Worst = ceilRat(worst)
	l.Used = l.Total
	span := new(big.Rat).Mul(rate, new(big.Rat).SetInt64(int64(until.Sub(f.uses[0].at))))
	l.Allowed = f.limit.Burst + new(big.Int).Quo(span.Num(), span.Denom()).Int64()
}

func ceilRat(r *big.Rat) int64 {
	n := new(big.Int).Add(r.Num(), new(big.Int).Sub(r.Denom(), big.NewInt(1)))
	return n.Quo(n, r.Denom()).Int64()
}
