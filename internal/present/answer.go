package present

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/money"
)

// Answer converts a decision to its wire form.
func Answer(d *drawgate.Decision) api.Answer {
	var a api.Answer
	new(Draft).Decide(&a, d)
	return a
}

// Draft makes answers of decisions. It can be reused, so that nothing is allocated.
type Draft struct {
	results []drawgate.LimitResult
	unknown bool // see [drawgate.Decision.UsageUnknown]
	held    bool // what a refused take needs may be given back earlier by those that hold it
}

func (f *Draft) add(r drawgate.LimitResult) { f.results = append(f.results, r) }

// Decide converts a decision to its wire form, in a.
func (f *Draft) Decide(a *api.Answer, d *drawgate.Decision) {
	f.results = f.results[:0]
	for r := range d.Limits() {
		f.add(r)
	}
	f.decided(a, d)
}

// decided converts a decision whose limits were already added.
func (f *Draft) decided(a *api.Answer, d *drawgate.Decision) {
	f.describe(a)
	a.Allowed, a.Replayed, a.Fallback = d.Allowed, d.Replayed, d.Fallback
	f.unknown, f.held = d.UsageUnknown(), d.EarliestRetry < d.RetryAfter
	if a.RetryAfterMS = retryAfter(d.RetryAfter); d.Reason == drawgate.Paused {
		a.RefusedBy = nil // no limit is the reason
	}
	switch {
	case d.Allowed:
	case d.Reason == drawgate.Queued:
		f.refuse(a, api.ReasonQueued)
	case d.Reason == drawgate.Unavailable:
		f.refuse(a, api.ReasonUnavailable)
	case d.Reason == drawgate.Paused:
		f.refuse(a, api.ReasonPaused)
	default:
		f.refuse(a, api.ReasonLimited)
	}
}

// describe adds the limits. The caller sets whether the take passes.
func (f *Draft) describe(a *api.Answer) {
	longest := -1
	if n := len(f.results); cap(a.Limits) < n {
		a.Limits = make([]api.Limit, 0, n)
	}
	for i := range f.results {
		r := &f.results[i]
		a.Limits = append(a.Limits, limit(r))
		if r.Refused() && (longest < 0 || r.RetryAfter > f.results[longest].RetryAfter) {
			longest = i
		}
	}
	tight := tightest(a.Limits)
	if tight == nil {
		return
	}
	a.Remaining, a.ResetAt = tight.Remaining, &tight.ResetAt
	if longest >= 0 {
		r := &f.results[longest]
		a.RefusedBy, a.ResetAt = &api.LimitName{Policy: r.Policy, Limit: r.Limit.Name}, &a.Limits[longest].ResetAt
		a.RetryAfterMS, a.NeverFits = retryAfter(r.RetryAfter), r.RetryAfter >= drawgate.Never/2
	}
}

// usedUp says that a prepaid budget has not enough left; "" if none refuses.
func (f *Draft) usedUp() string {
	for i := range f.results {
		if r := &f.results[i]; r.Refused() && r.Limit.Every == drawgate.Total {
			more := "that is credited"
			if f.held {
				more = "open reservations use less than they hold, or that is credited"
			}
			return fmt.Sprintf("limit %q of policy %q has %s left, and gets more only if %s", r.Limit.Name,
				r.Policy, money.Text(r.Remaining, Unit(r.Limit)), more)
		}
	}
	return ""
}

// refuse turns the answer into a refusal with a reason. Its retry time is never 0.
func (f *Draft) refuse(a *api.Answer, reason api.Reason) {
	a.Allowed, a.Reason, a.RetryAfterMS = false, reason, max(1, a.RetryAfterMS)
	wait := Duration(a.RetryAfterMS.Duration())
	switch {
	case a.NeverFits && f.usedUp() != "":
		if a.Message = f.usedUp(); f.held {
			a.NeverFits, a.RetryAfterMS = false, 1000
		}
	case a.NeverFits:
		a.Message = "this take can never fit: it asks for more than a limit grants"
	case reason == api.ReasonQueued:
		a.Message = fmt.Sprintf("other callers are ahead in the queue; try again in %s", wait)
	case reason == api.ReasonQueueFull:
		a.Message = fmt.Sprintf("the maximum number of callers is waiting; try again in %s", wait)
	case reason == api.ReasonPaused:
		a.Message = fmt.Sprintf("%s is paused; try again in %s", f.paused(), wait)
	case reason == api.ReasonUnavailable:
		a.Message = fmt.Sprintf("the store is unavailable, and %s; try again in %s", f.without(), wait)
	case a.Fallback && f.unknown:
		a.Message = fmt.Sprintf("the store is unavailable, and usage before this outage is unknown: %s; try again in %s", strings.Join(f.refusing(), ", "), wait)
	case a.Fallback:
		a.Message = fmt.Sprintf("the store is unavailable, and this server's share is used up: %s; try again in %s",
			strings.Join(f.refusing(), ", "), wait)
	case a.RefusedBy == nil:
		a.Message = fmt.Sprintf("a limit does not have enough left; try again in %s", wait)
	default:
		a.Message = fmt.Sprintf("%s; this take fits in %s", strings.Join(f.refusing(), ", "), wait)
	}
}

// without says which limit refuses because the store is unavailable, and what it admits without it.
func (f *Draft) without() string {
	for i := range f.results {
		switch r := &f.results[i]; {
		case !r.Refused():
		case r.Remaining > 0:
			return fmt.Sprintf("limit %q of policy %q admits only %d %s without it",
				r.Limit.Name, r.Policy, r.Remaining, Unit(r.Limit))
		default:
			return fmt.Sprintf("limit %q of policy %q admits nothing in this process until it is back", r.Limit.Name, r.Policy)
		}
	}
	return "a fallback does not admit this take"
}

// paused names the paused bucket, as far as the decision shows it.
func (f *Draft) paused() string {
	if len(f.results) == 0 || f.results[len(f.results)-1].Bucket != f.results[0].Bucket {
		return "one of the buckets"
	}
	return fmt.Sprintf("this key of policy %q", f.results[0].Policy)
}

// refusing lists the limits that refuse, the one that refuses longest first.
func (f *Draft) refusing() (all []string) {
	var order []int
	for i := range f.results {
		if f.results[i].Refused() {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(x, y int) int {
		return cmp.Compare(f.results[y].RetryAfter,
			f.results[x].RetryAfter)
	})
	for _, i := range order {
		r := &f.results[i]
		text := Describe(r.Limit)
		if kept := cmp.Or(r.Limit.Burst, r.Limit.Amount) - r.Max; kept > 0 {
			text += fmt.Sprintf(", %d kept back", kept)
		}
		all = append(all, fmt.Sprintf("limit %q of policy %q (%s) has %d left", r.Limit.Name, r.Policy, text,
			r.Remaining))
	}
	return all
}

// tightest returns the limit with the smallest part left, as [drawgate.Decision.Tightest]; nil if
// there is none.
func tightest(list []api.Limit) (best *api.Limit) {
	part := func(l *api.Limit) float64 { return float64(l.Remaining) / float64(max(1, l.Most)) }
	for i := range list {
		if l := &list[i]; best == nil || part(l) < part(best) {
			best = l
		}
	}
	return best
}

func limit(r *drawgate.LimitResult) api.Limit {
	return api.Limit{
		Bucket: r.Bucket, Policy: r.Policy, Name: r.Limit.Name, Unit: Unit(r.Limit), Amount: r.Limit.Amount,
		Most:      r.Max,
		Remaining: r.Remaining, RetryAfterMS: retryAfter(r.RetryAfter), ResetAt: r.ResetAt().UTC(),
		Refused: r.Refused(),
	}
}

// Unit returns the unit that a limit counts.
func Unit(l *drawgate.Limit) string { return cmp.Or(l.Unit, drawgate.UnitRequests) }

// Status converts a store's status of a bucket to its wire form.
func Status(policy, key string, st *drawgate.Status) api.StatusAnswer {
	var f Draft
	for r := range st.Limits() {
		f.add(r)
	}
	var take api.Answer
	f.decided(&take, &st.Decision)
	limits := take.Limits
	take.Limits = nil
	out := api.StatusAnswer{
		Policy: policy, Key: key, At: st.At().UTC(), Open: st.Open, Take: take,
		Limits: []api.LimitStatus{}, Waiting: st.Waiting, NextTryMS: Millis(st.NextTry),
	}
	if p := &st.Pause; !p.Until.IsZero() {
		out.Paused = &api.Pause{Until: p.Until.UTC(), Reason: p.Reason}
	}
	out.Line = lineOf(st)
	i := 0
	for r := range st.Limits() {
		l, u := r.Limit, st.States[i]
		s := api.LimitStatus{
			Limit: limits[i], Kind: l.Kind.String(), WindowMS: l.Window.Milliseconds(),
			Used: u.Used, Held: u.Held, Debt: u.Debt, WindowStart: instant(u.Start), WindowEnd: instant(u.End),
		}
		switch l.Kind {
		case drawgate.Bucket:
			s.Burst = cmp.Or(l.Burst, l.Amount)
		case drawgate.Calendar:
			s.Every, s.Zone = l.Every.String(), cmp.Or(l.Zone, "UTC")
		}
		out.Limits = append(out.Limits, s)
		i++
	}
	return out
}

// lineOf describes who waits for a bucket in all processes.
func lineOf(st *drawgate.Status) (line []api.LineEntry) {
	for i := range st.Line {
		w := &st.Line[i]
		e := api.LineEntry{
			WaitedMS: Millis(max(0, st.At().Sub(w.Since))), Priority: int(w.Priority), Units: map[string]int64{},
		}
		j := 0
		for r := range st.Limits() {
			if w.N[j] > 0 {
				e.Units[r.Limit.Name] = w.N[j]
			}
			j++
		}
		line = append(line, e)
	}
	return line
}

func retryAfter(d time.Duration) api.Millis {
	if d >= drawgate.Never/2 { // more than a century: of a prepaid budget
		return api.Never
	}
	return api.Millis(Millis(d))
}

// Millis returns a duration in milliseconds, rounded up.
func Millis(d time.Duration) int64 {
	ms := d / time.Millisecond
	if d%time.Millisecond > 0 {
		ms++
	}
	return int64(ms)
}

func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC())
}

// Costs converts costs for the library, sorted by unit.
func Costs(m map[string]int64) []drawgate.Cost {
	if len(m) == 0 {
		return nil
	}
	out := make([]drawgate.Cost, 0, len(m))
	for u, n := range m {
		out = append(out, drawgate.Cost{Unit: u, N: n})
	}
	slices.SortFunc(out, func(a, b drawgate.Cost) int { return cmp.Compare(a.Unit, b.Unit) })
	return out
}
