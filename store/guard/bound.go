package guard

import (
	"cmp"
	"fmt"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/ledger"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// Unbounded, as a number of units in a [Line], means that there is no bound.
const Unbounded = -1

// Line is the worst case of how much one limit may admit beyond its amount while the store is
// unavailable. docs/fallback.md explains the numbers.
type Line struct {
	Policy, Limit, Unit string
	Mode                store.Fallback // closed, share or open
	Instances           int
	AtLeast             int // if processes are counted: the least number that is assumed; 0: they are not counted
	// what the limit admits per window (a bucket: in a burst): the largest amount in force less the
	// headroom
	Most  int64
	Share int64 // what one process may admit of it during an outage; 0 is nothing; Unbounded if open
	Extra int64 // excess units in the window in which the outage starts, over all processes
	After int64 // the same in every later window while all processes are cut off
	// the same in every window in which only some processes are cut off; for a bucket, in every
	// period of its Window
	Partly int64

	Start store.Start // how its policy starts: closed, cold or full; of instances that are counted never full
	// with a share: what a process admits of it that starts during the outage, in its first window
	// and without knowing what was used
	Cold     int64
	Starts   int   // starts that are included: see Line.AfterStarts
	Returned int64 // what these starts may admit in addition, because the store came back in between

	Losses    int   // losses of the store that are included: see Line.AfterLosses
	Forgotten int64 // what may be admitted in addition, because of them

	drain int64 // the same as Cold for a bucket, in addition, in every period of its Window
}

// Bound returns, for each limit of policies, the worst case of what this many instances may admit
// beyond it while the store is unavailable. 0 instances means that the number is unknown. Bound is
// pure. A policy that does not compile is an error.
// Policies with the same name are one policy with several sets of amounts, such as those of rules:
// takes of one bucket may use them in turn, so the line of a limit is the worst case over them.
// If each bucket always has the same one of several amounts, as with overrides, call Bound for
// each and pass all lines to [Worst].
// The policies start as they say, and closed if they say nothing. Bound is for processes that do
// not start during an outage: [Line.AfterStarts] adds those that do.
func Bound(policies []drawgate.Policy, instances int) ([]Line, error) {
	return bound(policies, instances, 0)
}

// BoundCounted is [Bound] for this many instances that are counted: see [Options.CountInstances].
// At least max(1, atLeast) are assumed.
func BoundCounted(policies []drawgate.Policy, instances, atLeast int) ([]Line, error) {
	return bound(policies, max(1, instances, atLeast), max(1, atLeast))
}

func bound(policies []drawgate.Policy, instances, atLeast int) ([]Line, error) {
	var lines []Line
	var drains []int64 // for each line: what the drain rate of the processes that are cut off adds to Partly
	for i := range policies {
		plan, err := policies[i].Compile()
		if err != nil {
			return nil, fmt.Errorf("guard: policy %d: %w", i+1, err)
		}
		t := newPolicyBound(plan.Plan, instances)
		for j := range policies[i].Limits {
			line, drain := t.line(j, instances, atLeast)
			k := line.among(lines)
			if k == len(lines) {
				lines, drains = append(lines, line), append(drains, drain)
				continue
			}
			lines[k].worsen(&line)
			drains[k] = max(drains[k], drain)
		}
	}
	for k := range lines {
		lines[k].Partly += drains[k]
	}
	return lines, nil
}

// Worst returns one line per limit: the worst of its lines. Limits stay in their order.
func Worst(lines []Line) (list []Line) {
	for i := range lines {
		k := lines[i].among(list)
		if k == len(list) {
			list = append(list, lines[i])
			continue
		}
		list[k].worsen(&lines[i])
	}
	return list
}

// among returns the position of the line for the same limit, or len(lines) if there is none.
func (l *Line) among(lines []Line) int {
	for k := range lines {
		if o := &lines[k]; o.Policy == l.Policy && o.Limit == l.Limit && o.Unit == l.Unit {
			return k
		}
	}
	return len(lines)
}

// worsen takes the larger number of the two lines, field by field.
func (l *Line) worsen(o *Line) {
	l.Most, l.Share = max(l.Most, o.Most), max(l.Share, o.Share)
	l.Extra, l.After, l.Partly = max(l.Extra, o.Extra), max(l.After, o.After), max(l.Partly, o.Partly)
	l.Start, l.Cold, l.drain, l.Returned = max(l.Start, o.Start), max(l.Cold, o.Cold), max(l.drain, o.drain),
		max(l.Returned, o.Returned)
}

// AfterStarts returns the line if, in one window, starts processes start that cannot ask the store:
// in place of others that ended, or, if instances are counted, also in addition to them. For a
// bucket they are those of the whole outage. If the store came back so many times within that
// window, Returned is what may be admitted in addition, because processes ended without having
// delivered what they had admitted; that is so for all starts, closed ones too.
// models/cold.py enumerates that these numbers are exact.
func (l Line) AfterStarts(starts, returns int) Line {
	if l.Mode != store.FallbackShare {
		return l
	}
	n, k := int64(l.Instances), int64(starts)
	more := k * (l.Cold + l.drain)
	l.Starts = starts
	l.Extra, l.After, l.Partly = l.Extra+more, max(0, n*l.Share+more-l.Most), l.Partly+more
	l.Returned = min(k, n*int64(returns)) * max(0, l.Share-l.Cold)
	return l
}

// AfterLosses returns the line if, in one window, the store so many times forgets its last answers,
// but not that it has any: a server that does not wait for its disk crashes, or a replica that had
// not received all takes the place of its server. Forgotten is what may then be admitted in
// addition to all else: what was forgotten, and each time at most the limit once. It is so for
// every fallback, and whether or not there is an outage.
func (l Line) AfterLosses(losses int) Line {
	l.Losses, l.Forgotten = losses, int64(losses)*l.Most
	return l
}

// cold says how a policy starts, and what a process may admit that does.
func (l *Line) cold(policy *store.Policy, spec *record.Spec) {
	l.Start = cmp.Or(policy.Start, store.StartClosed)
	if l.AtLeast > 0 {
		l.Start = min(l.Start, store.StartCold)
		if n := int64(max(2, l.AtLeast)); l.Start == store.StartCold && l.Most >= n {
			l.Cold = ledger.ColdPart(l.Most/n, int(n))
			if spec.Kind == record.Bucket {
				l.drain = record.CeilDiv(spec.Rate, n*n)
			}
		}
		return
	}
	switch {
	// which slots are held is not known, but not assumed either
	case spec.Kind == record.Concurrency, l.Start == store.StartFull:
		l.Cold = l.Share
	case l.Start == store.StartCold && l.Share > 0:
		l.Cold = ledger.ColdPart(l.Share, l.Instances)
	}
}

// line returns the line of limit i, with a Partly that leaves out how the bucket of those that are
// cut off drains in a window: that is drain.
func (t *policyBound) line(i, instances, atLeast int) (l Line, drain int64) {
	policy, n := t.plan.Policy(), int64(instances)
	l = Line{
		Policy: policy.Name, Limit: policy.Limits[i].Name, Unit: cmp.Or(policy.Limits[i].Unit, store.UnitRequests),
		Mode:      ledger.Mode(&policy, i, instances),
		Instances: instances, AtLeast: atLeast, Most: store.Internal.Specs(t.plan,
			false)[i].Effective[record.Priorities-1],
	}
	switch l.Mode {
	case store.FallbackOpen:
		l.Share, l.Extra, l.After, l.Partly = Unbounded, Unbounded, Unbounded, Unbounded
	case store.FallbackShare:
		l.Share = l.Most / n
		if t.mode[i] == store.FallbackClosed {
			l.Share = 0
		}
		l.Extra, l.Partly = (n-1)*l.Share, (n-1)*l.Share
		divisor := n // the number that a process which is cut off divides by
		if atLeast > 0 {
			divisor = int64(atLeast) // it may have been alone when it was cut off
			l.Partly = (n - 1) * (l.Most / divisor)
		}
		if spec := &store.Internal.Specs(t.plan, false)[i]; spec.Kind == record.Bucket && l.Partly > 0 {
			drain = (n - 1) * (spec.Rate / divisor)
		}
		l.cold(&policy, &store.Internal.Specs(t.plan, false)[i])
	case store.FallbackDefault, store.FallbackClosed:
	}
	return l, drain
}

// String explains the line in a few sentences.
func (l Line) String() string {
	text := l.withoutLosses()
	switch l.Losses {
	case 0:
	case 1:
		text += fmt.Sprintf(". If the store forgets its last answers, what it forgot may be admitted again: at most %d units", l.Forgotten)
	default:
		text += fmt.Sprintf(". If the store %d times forgets its last answers, what it forgot may be admitted again: at most %d units", l.Losses,
			l.Forgotten)
	}
	return text
}

func (l Line) withoutLosses() string {
	text := l.withoutStarts()
	if l.Starts == 0 || l.Mode != store.FallbackShare {
		return text
	}
	switch {
	case l.Cold == 0:
		text += fmt.Sprintf(". Processes that start meanwhile (%s) admit nothing that they do not know to be free",
			l.Start)
	case l.Starts == 1:
		text += fmt.Sprintf(". If a process starts meanwhile (%s: it admits %d without knowing what was used), ",
			l.Start, l.Cold)
	default:
		text += fmt.Sprintf(". If %d processes start meanwhile (%s: each admits %d without knowing what was used), ",
			l.Starts, l.Start, l.Cold)
	}
	if l.Cold > 0 {
		text += fmt.Sprintf("at most %d beyond the limit in the window in which the outage starts, and %d in later ones", l.Extra, l.After)
	}
	if l.Returned > 0 {
		text += fmt.Sprintf("; at most %d more if the store was back in between, because processes that end forget what they have not delivered", l.Returned)
	}
	return text
}

func (l Line) withoutStarts() string {
	more := int64(l.Starts) * (l.Cold + l.drain)
	l.Extra, l.Partly = l.Extra-more, l.Partly-more
	head := fmt.Sprintf("policy %s, limit %s (%d %s): %s", l.Policy, l.Limit, l.Most, l.Unit, l.Mode)
	switch {
	case l.Mode == store.FallbackOpen:
		return head + ": while the store is unavailable this limit is not enforced; there is no bound"
	case l.Mode == store.FallbackClosed:
		return head + ": while the store is unavailable nothing is admitted, so the limit is never exceeded"
	case l.Share == 0 && l.Partly == 0:
		return head + fmt.Sprintf(": with %d processes each share is less than one unit: while the store is unavailable nothing is admitted, so the limit is never exceeded", l.Instances)
	case l.Instances == 1:
		return head + ": the only process may use all of it, including what it used before, so the limit is never exceeded"
	}
	if l.AtLeast > 0 {
		return head + fmt.Sprintf(": each of %d counted processes may use %d while the store is unavailable, including what it used before. Units beyond the limit, in total: at most "+
			"%d in the window in which the outage starts (none if the load was even); none in later windows if all processes were cut off together; and at most %d in each window in which "+
			"some were cut off before others, or are still connected (worst case: one after the other, more than ten minutes apart, each with a share of one in %d)",
			l.Instances, l.Share, l.Extra, l.Partly, l.AtLeast)
	}
	return head + fmt.Sprintf(": each of %d processes may use %d while the store is unavailable, including what it used before; in the window in which the outage starts at most %d "+
		"units beyond the limit in total (none if the load was even); in later windows none while all are cut off, and at most %d in each window in which only some are",
		l.Instances, l.Share, l.Extra, l.Partly)
}
