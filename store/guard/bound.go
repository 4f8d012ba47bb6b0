package guard

import (
	"cmp"
	"fmt"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// Unbounded as a number of units of a [Line] says that there is no bound.
const Unbounded = -1

// Line says what one limit may admit beyond itself when the store is away, at worst. See
// docs/fallback.md for how it is reckoned.
type Line struct {
	Policy, Limit, Unit string
	Mode                drawgate.Fallback // closed, share or open
	Instances           int
	AtLeast             int   // of processes that are counted: the least number that is assumed; 0: they are not counted
	Most                int64 // what the limit admits per window (a bucket: at once): the largest amount in force less the headroom
	Share               int64 // what one process may admit of it while away; 0 is nothing; Unbounded if open
	Extra               int64 // units too many in the window in which the store goes away, of all processes together
	After               int64 // the same in every later window, while all processes are cut off
	Partly              int64 // the same in every window in which some processes are cut off and others are not; of a bucket in every time of its Window
}

// Bound says for each limit of policies what so many instances may admit beyond it when the store
// is away; 0 means that nobody knows how many there are. It is pure. A policy that does not compile
// is an error.
//
// Policies of one name are one policy with several amounts, such as a rule's: the takes of one
// bucket may use them in turn, and the line of a limit is the worst case of that. Where each bucket
// has one of several amounts, as with overrides, call Bound for each, and [Worst] for all the
// lines.
func Bound(policies []drawgate.Policy, instances int) ([]Line, error) {
	return bound(policies, instances, 0)
}

// BoundCounted is [Bound] for so many instances that are counted: see [Options.CountInstances]. At
// least atLeast are assumed, and at least 1.
func BoundCounted(policies []drawgate.Policy, instances, atLeast int) ([]Line, error) {
	return bound(policies, max(1, instances, atLeast), max(1, atLeast))
}

func bound(policies []drawgate.Policy, instances, atLeast int) ([]Line, error) {
	var lines []Line
	var drains []int64 // of each line: what the rate of those that are cut off adds to Partly
	for i := range policies {
		plan, err := policies[i].Compile()
		if err != nil {
			return nil, fmt.Errorf("guard: policy %d: %w", i+1, err)
		}
		t := newPolicyBound(plan, instances)
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

// Worst returns one line per limit: the worst of those that lines has of it. Limits stay in their
// order.
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

// among returns the position of the line about the same limit, and len(lines) if there is none.
func (l *Line) among(lines []Line) int {
	for k := range lines {
		if o := &lines[k]; o.Policy == l.Policy && o.Limit == l.Limit && o.Unit == l.Unit {
			return k
		}
	}
	return len(lines)
}

// worsen takes over what is worse in another line about the same limit.
func (l *Line) worsen(o *Line) {
	l.Most, l.Share = max(l.Most, o.Most), max(l.Share, o.Share)
	l.Extra, l.After, l.Partly = max(l.Extra, o.Extra), max(l.After, o.After), max(l.Partly, o.Partly)
}

// line returns the line of limit i, with a Partly that leaves out how the bucket of those that are
// cut off drains in a window: that is drain.
func (t *policyBound) line(i, instances, atLeast int) (l Line, drain int64) {
	policy, n := t.plan.Policy(), int64(instances)
	l = Line{
		Policy: policy.Name, Limit: policy.Limits[i].Name, Unit: cmp.Or(policy.Limits[i].Unit, drawgate.UnitRequests), Mode: Mode(&policy, i, instances),
		Instances: instances, AtLeast: atLeast, Most: t.plan.Specs(false)[i].Effective[record.Priorities-1],
	}
	switch l.Mode {
	case drawgate.FallbackOpen:
		l.Share, l.Extra, l.After, l.Partly = Unbounded, Unbounded, Unbounded, Unbounded
	case drawgate.FallbackShare:
		l.Share = l.Most / n
		if t.mode[i] == drawgate.FallbackClosed {
			l.Share = 0
		}
		l.Extra, l.Partly = (n-1)*l.Share, (n-1)*l.Share
		divisor := n // of a process that is cut off
		if atLeast > 0 {
			divisor = int64(atLeast) // it may have been alone when it was cut off
			l.Partly = (n - 1) * (l.Most / divisor)
		}
		if spec := &t.plan.Specs(false)[i]; spec.Kind == record.Bucket && l.Partly > 0 {
			drain = (n - 1) * (spec.Rate / divisor)
		}
	case drawgate.FallbackDefault, drawgate.FallbackClosed:
	}
	return l, drain
}

// String explains the line in a sentence or two.
func (l Line) String() string {
	head := fmt.Sprintf("policy %s, limit %s (%d %s): %s", l.Policy, l.Limit, l.Most, l.Unit, l.Mode)
	switch {
	case l.Mode == drawgate.FallbackOpen:
		return head + ": while the store is away this limit steps aside; there is no bound"
	case l.Mode == drawgate.FallbackClosed:
		return head + ": while the store is away nothing is admitted; never over the limit"
	case l.Share == 0 && l.Partly == 0:
		return head + fmt.Sprintf(": a share of one of %d processes is less than one unit: while the store is away nothing is admitted; never over the limit", l.Instances)
	case l.Instances == 1:
		return head + ": the one process may use all of it, what it used before included; never over the limit"
	}
	if l.AtLeast > 0 {
		return head + fmt.Sprintf(": each of %d processes, which are counted, may use %d while the store is unavailable, what it used before included; in the window in which it becomes "+
			"unavailable at most %d too many of all together (none if the load was even), later none while all were cut off at once, and at most %d in each window in which "+
			"some were cut off before others, or are not (at worst one after the other, more than ten minutes apart, each as one of %d)",
			l.Instances, l.Share, l.Extra, l.Partly, l.AtLeast)
	}
	return head + fmt.Sprintf(": each of %d processes may use %d while the store is away, what it used before included; in the window in which it goes away at most %d "+
		"too many of all together (none if the load was even), later none while all are cut off, and at most %d in each window in which only some are",
		l.Instances, l.Share, l.Extra, l.Partly)
}
