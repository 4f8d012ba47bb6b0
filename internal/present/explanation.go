package present

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
)

// WouldBe says what a take would get, and whether its policy is enforced.
func WouldBe(e *api.Explanation) string {
	text := "would be allowed"
	switch w := e.Status; {
	case e.Error != nil:
		text = "would fail: " + e.Error.Detail
	case w.Take.NeverFits:
		text = "can never be allowed: it asks for more than a limit grants"
	case !w.Take.Allowed:
		text = "would be refused, and fits " + Until(w.At.Add(w.Take.RetryAfterMS.Duration()), w.At)
	}
	switch {
	case e.Disabled:
		text = "would be allowed: the policy is switched off. Otherwise it " + text
	case e.Shadow:
		text = "would be allowed: the policy is in shadow. Otherwise it " + text
	}
	return text
}

// Used says how much of a limit is used, and what that includes.
func Used(l *api.LimitStatus) string {
	text := fmt.Sprintf("%d of %d", l.Used, l.Most)
	var also []string
	if l.Held > 0 {
		also = append(also, fmt.Sprintf("%d of them held", l.Held))
	}
	if l.Debt > 0 {
		also = append(also, fmt.Sprintf("a debt of %d", l.Debt))
	}
	if l.Most < l.Amount && l.Kind != drawgate.Bucket.String() {
		also = append(also, fmt.Sprintf("%d kept back", l.Amount-l.Most))
	}
	if len(also) > 0 {
		text += " (" + strings.Join(also, ", ") + ")"
	}
	return text
}

// Passes says whether a limit lets a take pass. never means that the take can never fit.
func Passes(l *api.LimitStatus, never bool, now time.Time) string {
	switch {
	case !l.Refused:
		return "passes"
	case never && l.RetryAfterMS >= api.Never:
		return "can never pass"
	}
	return "refuses, would pass " + Until(now.Add(l.RetryAfterMS.Duration()), now)
}

// WriteExplanation writes what a take would get, limit by limit.
func WriteExplanation(out io.Writer, w *api.ExplainAnswer) {
	switch {
	case w.Exempt:
		Printf(out, "A rule exempts this request from all limits.\n")
	case w.Unmatched:
		Printf(out, "No rule applies a policy to this request: it passes.\n")
	case w.Allowed:
		Printf(out, "A take would be allowed.\n")
	case slices.ContainsFunc(w.Applied, func(e api.Explanation) bool { return e.Bucket != nil && e.Error != nil }):
		Printf(out, "A take would fail.\n")
	case slices.ContainsFunc(w.Applied, neverFits):
		Printf(out, "A take can never be allowed: it asks for more than a limit grants.\n")
	default:
		Printf(out, "A take would be refused.\n")
	}
	for i := range w.Applied {
		e := &w.Applied[i]
		Printf(out, "policy %s, %s%s", e.Policy, Owner(e.Tenant, e.Key), Mode(e.Disabled, e.Shadow))
		if e.Rule != "" {
			Printf(out, ", by rule %s", e.Rule)
		}
		Printf(out, "\n")
		if e.Error != nil {
			Printf(out, "- %s\n", e.Error.Error())
		}
		if e.Status == nil {
			continue
		}
		if line := PauseLine(e.Status); line != "" {
			Printf(out, "- %s\n", line)
		}
		for k := range e.Status.Limits {
			l := &e.Status.Limits[k]
			Printf(out, "- %s: used %s %s, left %d: %s\n", l.Name, Used(l), l.Unit, l.Remaining,
				Passes(l, e.Status.Take.NeverFits, e.Status.At))
		}
	}
}

// neverFits reports whether a policy that decides can never grant the take.
func neverFits(e api.Explanation) bool {
	return e.Bucket != nil && e.Status != nil && e.Status.Take.NeverFits
}
