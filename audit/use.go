package audit

import "time"

// of returns the units of a limit in a list, and whether it names them. Those that are named twice
// add up, to at most maxUnits.
func of(list []Amount, unit string) (n int64, named bool) {
	for _, a := range list {
		if a.Unit == unit {
			n, named = min(n+a.N, maxUnits), true
		}
	}
	return n, named
}

// held returns what was reserved for a call. It is one request unless that is said.
func held(limit *Limit, c *call) int64 {
	n, named := of(c.reserved, limit.Unit)
	if !named && limit.Unit == requests {
		return 1
	}
	return n
}

// refused reports whether the upstream refused a call because of a quota.
func refused(l *Line) bool { return l.Outcome == "refused" }

// sent returns what a call that was sent counts under a limit.
func sent(limit *Limit, c *call, l *Line) use {
	u := use{a: l.Sent, ended: max(l.Sent, l.Ended), reserved: held(limit, c)}
	used, named := of(l.Used, limit.Unit)
	if u.most = u.reserved; named {
		u.most = used
	}
	u.c = u.ended
	if !limit.late() {
		u.c = arrival(limit, c.granted, l)
	}
	u.b = u.c
	u.asked = refused(l)
	if (named || limit.Unit == requests) && certain(limit, l) {
		u.least = u.most
	}
	if u.asked {
		u.closed, u.named = closes(limit, l)
	}
	return u
}

// arrival returns when a call has arrived at the latest: with its answer, and at the end of the
// limit's margin.
func arrival(limit *Limit, granted int64, l *Line) int64 {
	last := max(l.Sent, l.Ended)
	if limit.Margin >= 0 {
		last = granted + limit.Margin.Nanoseconds()
	}
	if l.Answered != 0 {
		last = min(last, l.Answered)
	}
	return max(last, l.Sent)
}

// certain reports whether it is certain that the upstream counted what the call was settled with.
// It is not for a call without an answer, nor for one that failed: upstreams differ in what they
// count then. A refused call has asked for one request, at least.
func certain(limit *Limit, l *Line) bool {
	if l.Answered == 0 || l.Used == nil {
		return false
	}
	const firstError = 400
	switch {
	case limit.Unit == requests:
		return l.Status < firstError || refused(l)
	case refused(l), l.Status >= firstError:
		return false
	case limit.Unit == "input_tokens":
		return l.Reported == ReportedInput || l.Reported == ReportedAll
	}
	return l.Reported == ReportedAll
}

// closes reports whether a refusal may be because of a limit, and whether the upstream said so.
func closes(limit *Limit, l *Line) (closed, named bool) {
	var kind bool
	switch l.Meaning {
	case "minute":
		kind = limit.Window == Hour || limit.Period > 0 && limit.Period <= time.Hour
	case "day":
		kind = limit.Window == Day || limit.Period > time.Hour
	}
	if !kind || l.Unit != "" && l.Unit != limit.Unit {
		return false, false
	}
	return true, l.Unit != ""
}

// unended returns what a call counts of whose end nothing is known, but that its process ran until
// last at the longest.
func unended(limit *Limit, c *call, last int64) use {
	n := held(limit, c)
	last = min(last, c.at+longestCall)
	u := use{a: c.at, b: c.at, c: max(last, c.at), ended: max(last, c.at), most: n, reserved: n}
	if !limit.late() && limit.Margin >= 0 {
		u.c = max(c.at, min(u.c, c.granted+limit.Margin.Nanoseconds()))
	}
	return u
}

// longestCall is longer than anything that a call may take: holds end after 31 days.
const longestCall = int64(32 * 24 * time.Hour)

// plausible reports whether a call's instants can be true.
func plausible(c *call, l *Line) bool {
	for _, at := range []int64{c.granted, l.Sent, l.Answered, l.Ended} {
		if at != 0 && (at < c.at-longestCall || at > c.at+longestCall) {
			return false
		}
	}
	return true
}
