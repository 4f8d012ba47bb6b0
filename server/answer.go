package server

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
)

// Answer converts a decision to its wire form.
func Answer(d *drawgate.Decision) api.Answer {
	var a api.Answer
	new(draft).decision(&a, d)
	return a
}

// draft collects the limits of an answer. It is reused.
type draft struct{ results []drawgate.LimitResult }

func (f *draft) add(r drawgate.LimitResult) { f.results = append(f.results, r) }

// decision converts a decision to an answer.
func (f *draft) decision(a *api.Answer, d *drawgate.Decision) {
	f.results = f.results[:0]
	for r := range d.Limits() {
		f.add(r)
	}
	f.decided(a, d)
}

// decided converts a decision whose limits were already added.
func (f *draft) decided(a *api.Answer, d *drawgate.Decision) {
	f.describe(a)
	a.Allowed, a.Replayed, a.Fallback = d.Allowed, d.Replayed, d.Fallback
	if a.RetryAfterMS = retryAfter(d.RetryAfter); d.Reason == drawgate.Paused {
		a.RefusedBy = nil // no limit is the reason
	}
	switch {
	case d.Allowed:
	case d.Reason == drawgate.Queued:
		f.refuse(a, api.ReasonQueued)
	case d.Reason == drawgate.Unavailable:
		f.refuse(a, api.ReasonAway)
	case d.Reason == drawgate.Paused:
		f.refuse(a, api.ReasonPaused)
	default:
		f.refuse(a, api.ReasonLimited)
	}
}

// describe adds the limits. The caller sets whether the take passes.
func (f *draft) describe(a *api.Answer) {
	tightest, longest := -1, -1
	if n := len(f.results); cap(a.Limits) < n {
		a.Limits = make([]api.Limit, 0, n)
	}
	for i := range f.results {
		r := &f.results[i]
		a.Limits = append(a.Limits, limit(r))
		if tightest < 0 || share(&a.Limits[i]) < share(&a.Limits[tightest]) {
			tightest = i
		}
		if r.Refused() && (longest < 0 || r.RetryAfter > f.results[longest].RetryAfter) {
			longest = i
		}
	}
	if tightest < 0 {
		return
	}
	a.Remaining, a.ResetAt = f.results[tightest].Remaining, &a.Limits[tightest].ResetAt
	if longest >= 0 {
		r := &f.results[longest]
		a.RefusedBy, a.ResetAt = &api.LimitName{Policy: r.Policy, Limit: r.Limit.Name}, &a.Limits[longest].ResetAt
		a.RetryAfterMS, a.NeverFits = retryAfter(r.RetryAfter), r.RetryAfter == drawgate.Never
	}
}

// refuse turns the answer into a refusal with a reason. Its retry time is never 0.
func (f *draft) refuse(a *api.Answer, reason string) {
	a.Allowed, a.Reason, a.RetryAfterMS = false, reason, max(1, a.RetryAfterMS)
	wait := Duration(a.RetryAfterMS.Duration())
	switch {
	case a.NeverFits:
		a.Message = "this take can never fit: it asks for more than a limit grants"
	case reason == api.ReasonQueued:
		a.Message = fmt.Sprintf("others are waiting in front; try again in %s", wait)
	case reason == api.ReasonQueueFull:
		a.Message = fmt.Sprintf("the maximum number of callers is waiting; try again in %s", wait)
	case reason == api.ReasonPaused:
		a.Message = fmt.Sprintf("%s is paused; try again in %s", f.paused(), wait)
	case reason == api.ReasonAway:
		a.Message = fmt.Sprintf("the store is unavailable, and without it not enough is left; try again in %s", wait)
	case a.Fallback:
		a.Message = fmt.Sprintf("the store is unavailable, and this server's share is used up: %s; try again in %s", strings.Join(f.refusing(), ", "), wait)
	case a.RefusedBy == nil:
		a.Message = fmt.Sprintf("not enough is left of a limit; try again in %s", wait)
	default:
		a.Message = fmt.Sprintf("%s; this take fits in %s", strings.Join(f.refusing(), ", "), wait)
	}
}

// paused names the paused bucket, as far as the decision shows it.
func (f *draft) paused() string {
	if len(f.results) == 0 || f.results[len(f.results)-1].Bucket != f.results[0].Bucket {
		return "one of the buckets"
	}
	return fmt.Sprintf("this key of policy %q", f.results[0].Policy)
}

// refusing lists the limits that refuse, the one that refuses longest first.
func (f *draft) refusing() (all []string) {
	var order []int
	for i := range f.results {
		if f.results[i].Refused() {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(f.results[y].RetryAfter, f.results[x].RetryAfter) })
	for _, i := range order {
		r := &f.results[i]
		text := Describe(r.Limit)
		if kept := cmp.Or(r.Limit.Burst, r.Limit.Amount) - r.Max; kept > 0 {
			text += fmt.Sprintf(", %d kept back", kept)
		}
		all = append(all, fmt.Sprintf("limit %q of policy %q (%s) has %d left", r.Limit.Name, r.Policy, text, r.Remaining))
	}
	return all
}

func share(l *api.Limit) float64 { return float64(l.Remaining) / float64(max(1, l.Most)) }

func limit(r *drawgate.LimitResult) api.Limit {
	return api.Limit{
		Bucket: r.Bucket, Policy: r.Policy, Name: r.Limit.Name, Unit: unit(r.Limit), Amount: r.Limit.Amount, Most: r.Max,
		Remaining: r.Remaining, RetryAfterMS: retryAfter(r.RetryAfter), ResetAt: r.ResetAt().UTC(), Refused: r.Refused(),
	}
}

func unit(l *drawgate.Limit) string { return cmp.Or(l.Unit, drawgate.UnitRequests) }

// Status converts a store's status of a bucket to its wire form.
func Status(policy, key string, st *drawgate.Status) api.StatusAnswer {
	var f draft
	for r := range st.Limits() {
		f.add(r)
	}
	var take api.Answer
	f.decided(&take, &st.Decision)
	limits := take.Limits
	take.Limits = nil
	out := api.StatusAnswer{Policy: policy, Key: key, At: st.At().UTC(), Open: st.Open, Take: take, Limits: []api.LimitStatus{}}
	if p := &st.Pause; !p.Until.IsZero() {
		out.Paused = &api.Pause{Until: p.Until.UTC(), Reason: p.Reason}
	}
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

// Describe describes a limit in words: "10 requests per rolling 1m".
func Describe(l *drawgate.Limit) string {
	switch l.Kind {
	case drawgate.Bucket:
		return fmt.Sprintf("%s per %s, at most %d at once", Units(l.Amount, unit(l)), Duration(l.Window), cmp.Or(l.Burst, l.Amount))
	case drawgate.Rolling:
		return fmt.Sprintf("%s per rolling %s", Units(l.Amount, unit(l)), Duration(l.Window))
	case drawgate.Calendar:
		return fmt.Sprintf("%s per calendar %s in %s", Units(l.Amount, unit(l)), l.Every, cmp.Or(l.Zone, "UTC"))
	}
	return fmt.Sprintf("%s held at once", Units(l.Amount, unit(l)))
}

// Units formats a number of units: "10 requests", "1 request". Unknown names of units stay
// unchanged.
func Units(n int64, unit string) string {
	if known := unit == drawgate.UnitRequests || strings.HasSuffix(unit, "tokens"); n == 1 && known {
		unit = strings.TrimSuffix(unit, "s")
	}
	return fmt.Sprintf("%d %s", n, unit)
}

// Duration formats a duration for people, with at most two parts, rounded up: "450ms", "12.3s",
// "3h5m", "6d4h".
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	up := func(unit time.Duration) time.Duration { return (d + unit - 1).Truncate(unit) }
	switch {
	case d >= drawgate.Never/2:
		return "more than a century"
	case d < time.Second:
		return fmt.Sprintf("%dms", up(time.Millisecond).Milliseconds())
	case d < time.Minute-100*time.Millisecond:
		return fmt.Sprintf("%gs", up(100*time.Millisecond).Seconds())
	case d <= time.Hour-time.Second:
		return parts(up(time.Second), time.Minute, "m", time.Second, "s")
	case d <= day-time.Minute:
		return parts(up(time.Minute), time.Hour, "h", time.Minute, "m")
	}
	return parts(up(time.Hour), day, "d", time.Hour, "h")
}

func parts(d, large time.Duration, l string, small time.Duration, s string) string {
	text := ""
	if d >= large {
		text = fmt.Sprintf("%d%s", d/large, l)
	}
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf("%d%s", rest, s)
	}
	return text
}

func retryAfter(d time.Duration) api.Millis { return min(api.Millis(millis(d)), api.Never) }

// millis rounds up.
func millis(d time.Duration) int64 {
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
