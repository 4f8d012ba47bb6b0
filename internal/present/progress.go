package present

import (
	"fmt"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
)

// Progress converts the progress of a waiting take to its wire form.
func Progress(p *drawgate.Progress) api.Progress {
	return api.Progress{
		Place: p.Place, Others: p.Others, Reason: reason(p.Reason, p.Held), Policy: p.Policy, Limit: p.Limit,
		Pause:      p.Pause,
		EstimateMS: Millis(p.Estimate), WaitedMS: Millis(p.Waited),
	}
}

// Waiting converts a line of waiting callers to its wire form.
func Waiting(l *drawgate.Line) api.WaitingLine {
	return api.WaitingLine{
		Policy: l.Key.Policy, Tenant: l.Key.Tenant, Key: l.Key.Name, Waiting: l.Waiting, LongestMS: Millis(l.Longest),
		NextMS: Millis(l.Next),
		Reason: reason(l.Reason, l.Held), Limit: l.Limit,
		Tickets: l.Tickets, Others: l.Others, OldestMS: Millis(l.Oldest),
	}
}

// LineWait says in words who waits in the line of all processes besides those of a line; "" if the
// store keeps none.
func LineWait(l *api.WaitingLine) string {
	if l.Tickets == 0 {
		return ""
	}
	return fmt.Sprintf("%d in front in other processes, %s in all, the longest for %s", l.Others,
		Count(l.Tickets, "ticket"), Duration(time.Duration(l.OldestMS)*time.Millisecond))
}

// reason returns the wire form of what holds up a line.
func reason(r drawgate.Reason, held bool) api.Reason {
	if held {
		return api.ReasonHeld
	}
	return api.Reason(r.String())
}

// Obstacle says in words what holds up a take.
func Obstacle(p *api.Progress) string {
	text := line(p.Reason, p.Policy, p.Limit)
	if p.Pause != "" {
		text += " (" + p.Pause + ")"
	}
	return text
}

// LineObstacle says in words what holds up a line.
func LineObstacle(l *api.WaitingLine) string { return line(l.Reason, l.Policy, l.Limit) }

func line(reason api.Reason, policy, limit string) string {
	switch {
	case reason == api.ReasonPaused:
		return fmt.Sprintf("policy %q is paused for this key", policy)
	case reason == api.ReasonUnavailable:
		return fmt.Sprintf("the store is unavailable, and policy %q has no share left", policy)
	case limit == "":
		return fmt.Sprintf("others are in front, for policy %q", policy)
	case reason == api.ReasonHeld:
		return fmt.Sprintf("open reservations hold limit %q of policy %q", limit, policy)
	}
	return fmt.Sprintf("limit %q of policy %q is used up", limit, policy)
}

// RefusalLine says in words what refused the takes of a bucket, the last time.
func RefusalLine(r *api.Refusal) string {
	switch r.Reason {
	case api.ReasonLimited:
		text := fmt.Sprintf("limit %q of policy %q (asked for %s, %d of %d left)", r.Limit, r.Policy,
			Units(r.Asked, r.Unit), r.Remaining, r.Max)
		if r.Fallback {
			text += ", by this server's own count, because the store was unavailable"
		}
		return text
	case api.ReasonUnavailable:
		return fmt.Sprintf("the store was unavailable, and the fallback of policy %q did not admit it", r.Policy)
	}
	return line(r.Reason, r.Policy, "")
}
