package incident

import (
	"fmt"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/outbound"
)

// diagnose says what the numbers of an incident show, the likeliest cause first.
func diagnose(i *api.Incident, e *outbound.Event) (all []string) {
	add := func(text string) { all = append(all, text) }
	switch i.Meaning {
	case llm.Credit.String():
		add("the provider's account has no credit: calls work again when somebody pays. Our limits are not the reason")
	case llm.Spend.String():
		add("the provider's cap on spending is reached: raise it there, or count money in a limit of ours that is lower")
	case llm.NotOffered.String():
		add("the provider's limit for this model is 0: the account's plan does not offer it")
	default:
		all = causes(i, e)
	}
	if i.NotPaused {
		add("the pause could not be stored: other processes go on calling, and may be refused too")
	}
	return all
}

// causes are those of a limit on calls or tokens that refused what ours had allowed.
func causes(i *api.Incident, e *outbound.Event) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if i.Fallback {
		add("the store was unavailable, and the fallback granted the call without knowing what other processes had used: see the fallback of the policy")
	}
	mine := concerned(e)
	if len(mine) == 0 {
		if what := missing(i); what != "" {
			add("the provider has a limit of %s, and the policy has none: add one", what)
		}
		return all
	}
	return append(all, compare(mine, &e.Refusal)...)
}

// compare says how the limits that may be concerned differ from what the provider says.
func compare(mine []drawgate.LimitResult, theirs *llm.Refusal) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	l, allows, ok := counterpart(mine, theirs)
	if ok && allows > theirs.Limit {
		add("the provider says that its limit is %d %s, and limit %s allows %d: set its amount to %[1]d", theirs.Limit,
			theirs.Unit, name(&l), allows)
	}
	if used := l.Max - l.Remaining; ok && used <= theirs.Limit {
		add("only %d of the provider's %d %s were ours, this call included: somebody else uses the same account", used,
			theirs.Limit, theirs.Unit)
	}
	if len(all) > 0 {
		return all
	}
	tight := mine[0]
	for _, l := range mine[1:] {
		if l.Part() < tight.Part() {
			tight = l
		}
	}
	left := fmt.Sprintf("limit %s had %d of %d %s left after this call", name(&tight), tight.Remaining, tight.Max,
		unit(tight.Limit.Unit))
	if tight.Part() > little {
		add("%s: somebody else uses the same account, or the limit is set too high", left)
	} else {
		add("%s, so the two counts differ by little: give it a larger margin, or headroom", left)
	}
	return all
}

// little is the part of a limit that two ways of counting may differ by.
const little = 0.02

func name(l *drawgate.LimitResult) string { return l.Policy + "/" + l.Limit.Name }

// concerned returns the limits of the upstream's quota that the refusal may be about: of its unit
// and of a window of its length, as far as it says.
func concerned(e *outbound.Event) (list []drawgate.LimitResult) {
	for l := range e.Decision.Limits() {
		if l.Bucket == 0 && l.Limit.Kind != drawgate.Concurrency && sameUnit(e.Refusal.Unit, l.Limit.Unit) &&
			sameWindow(e.Refusal.Meaning, l.Limit) {
			list = append(list, l)
		}
	}
	return list
}

// sameUnit reports whether a limit of ours counts what the provider's does. Some providers say
// tokens where input or output is meant.
func sameUnit(theirs, ours string) bool {
	ours = unit(ours)
	switch {
	case theirs == "", theirs == ours:
		return true
	case theirs == llm.UnitTokens:
		return strings.HasSuffix(ours, "_"+llm.UnitTokens)
	case strings.HasSuffix(theirs, "_"+llm.UnitTokens):
		return ours == llm.UnitTokens
	}
	return false
}

// sameWindow reports whether a limit of ours is per minute or less, or per day, as the provider's.
func sameWindow(m llm.Meaning, l *drawgate.Limit) bool {
	switch m {
	case llm.PerMinute:
		return windowOf(l) <= time.Hour
	case llm.PerDay:
		return windowOf(l) > time.Hour
	}
	return true
}

// windowOf returns the length of a limit's window; of one that is longer than a day, a day.
func windowOf(l *drawgate.Limit) time.Duration {
	const day = 24 * time.Hour
	if l.Kind != drawgate.Calendar {
		return min(l.Window, day)
	}
	switch l.Every {
	case drawgate.Minute:
		return time.Minute
	case drawgate.Hour:
		return time.Hour
	}
	return day
}

// missing says of what the provider has a limit that the policy does not have.
func missing(i *api.Incident) string {
	what := ""
	if i.Provider != nil {
		what = i.Provider.Unit
	}
	switch {
	case i.Meaning == unknown:
		return ""
	case what == "":
		return "calls or tokens per " + i.Meaning
	}
	return what + " per " + i.Meaning
}

// counterpart returns the limit of the unit and window that the provider told the amount of, and
// what it allows; of several the one that allows most.
func counterpart(list []drawgate.LimitResult, theirs *llm.Refusal) (found drawgate.LimitResult, allows int64, ok bool) {
	window := map[llm.Meaning]time.Duration{llm.PerMinute: time.Minute, llm.PerDay: 24 * time.Hour}[theirs.Meaning]
	for _, l := range list {
		if theirs.Limit < 0 || unit(l.Limit.Unit) != theirs.Unit || windowOf(l.Limit) != window {
			continue
		}
		if per, atOnce := l.Quota(); max(per, atOnce) > allows {
			found, allows, ok = l, max(per, atOnce), true
		}
	}
	return found, allows, ok
}
