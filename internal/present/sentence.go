package present

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate/api"
)

// Sentence returns an answer in words.
func Sentence(w *api.Answer) string {
	var parts []string
	if !w.Allowed || len(w.Limits) > 0 || len(w.Shadow) == 0 &&
		!slices.ContainsFunc(w.Applied, func(a api.Applied) bool { return a.Disabled }) {
		parts = append(parts, enforced(w))
	}
	for i := range w.Applied {
		if a := &w.Applied[i]; a.Disabled {
			parts = append(parts, fmt.Sprintf("policy %q is switched off: it limits nothing", a.Policy))
		}
	}
	for i := range w.Shadow {
		parts = append(parts, shadowed(&w.Shadow[i]))
	}
	if !w.Allowed {
		return "refused: " + strings.Join(parts, "; ")
	}
	return "allowed: " + strings.Join(parts, "; ")
}

// enforced returns the answer of the enforced policies in words.
func enforced(w *api.Answer) string {
	switch {
	case w.NeverFits:
		return w.Message
	case !w.Allowed:
		return w.Message + ", at " + Clock(time.Now().Add(w.RetryAfterMS.Duration()))
	case len(w.Limits) == 0:
		return cmp.Or(w.Message, "no limit in force counts this take")
	}
	tight := tightest(w.Limits)
	return fmt.Sprintf("%d of %s left of limit %q of policy %q", tight.Remaining, Units(tight.Most, tight.Unit),
		tight.Name, tight.Policy)
}

// shadowed returns in words what a policy in shadow would have answered.
func shadowed(s *api.Shadow) string {
	text := fmt.Sprintf("policy %q is in shadow: ", s.Policy)
	switch {
	case s.Error:
		return text + "what it would have decided is not known"
	case s.Allowed:
		return text + fmt.Sprintf("it would have allowed this take, with %d left", s.Remaining)
	case s.RefusedBy == nil:
		return text + "it could never have allowed this take"
	}
	return text + fmt.Sprintf("limit %q would have refused this take for %s", s.RefusedBy.Limit,
		Duration(s.RetryAfterMS.Duration()))
}
