package cloudwatch

import (
	"maps"
	"slices"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// Bounds of what a tally holds. Policies and limits come from the configuration, not from callers;
// but a configuration may be replaced often.
const (
	maxPolicies = 1000
	maxLimits   = 4 * store.MaxLimits // of one policy, by name
)

// tally is what has happened since the last report.
type tally struct {
	policies map[string]*policyTally

	latency, store, retries spread
	conflicts, throttled    int64
	fallbacks, refusals     int64
}

// policyTally is what has happened to one policy.
type policyTally struct {
	used    bool
	latency spread
	known   [named]limitTally
	named   []namedTally
}

type namedTally struct {
	name string
	limitTally
}

// limitTally is what has happened to one limit.
type limitTally struct {
	decisions           int64
	refused             int64
	acquired, available level
}

// policy returns the tally of a policy. It allocates only for a policy that is new, or was not used
// for a while.
func (t *tally) policy(name string) *policyTally {
	p := t.policies[name]
	if p == nil {
		if len(t.policies) >= maxPolicies {
			name = other
		}
		if p = t.policies[name]; p == nil {
			p = &policyTally{}
			t.policies[name] = p
		}
	}
	p.used = true
	return p
}

// limit returns the tally of a limit.
func (p *policyTally) limit(k kind, name string) *limitTally {
	if k != named {
		return &p.known[k]
	}
	for i := range p.named {
		if p.named[i].name == name || i == maxLimits {
			return &p.named[i].limitTally
		}
	}
	if len(p.named) == maxLimits {
		name = other
	}
	p.named = append(p.named, namedTally{name: name})
	return &p.named[len(p.named)-1].limitTally
}

// decided counts a decision for each limit that it describes.
func (t *tally) decided(e *drawgate.Taken, d *drawgate.Decision, ms float64) {
	var p *policyTally
	var seen kinds
	i, at := 0, -1
	for r := range d.Limits() {
		if i++; r.Bucket != at {
			i, at, seen = 0, r.Bucket, 0
			p = t.policy(r.Policy)
			p.latency.add(ms)
		}
		l := p.limit(seen.next(r.Limit), r.Limit.Name)
		l.decisions++
		if d.Allowed && !d.Replayed {
			n := e.Take.Buckets[at].N[i]
			if e.Take.Lease {
				n = d.Granted(at)[i]
			}
			if n > 0 {
				l.acquired.add(float64(n))
			}
		}
		if d.Reason == drawgate.Limited && r.Refused() {
			l.refused++
		}
		if !d.Fallback { // else it is what this process has left of its share
			l.available.add(float64(r.Remaining))
		}
	}
}

// drain adds what t holds to sum, and empties it. Policies that were not used are forgotten.
func (t *tally) drain(sum *tally) {
	for name, p := range t.policies {
		if !p.used {
			delete(t.policies, name)
			continue
		}
		p.drain(sum.policy(name))
	}
	sum.latency.merge(&t.latency)
	sum.store.merge(&t.store)
	sum.retries.merge(&t.retries)
	sum.conflicts, sum.throttled = sum.conflicts+t.conflicts, sum.throttled+t.throttled
	sum.fallbacks, sum.refusals = sum.fallbacks+t.fallbacks, sum.refusals+t.refusals
	*t = tally{policies: t.policies}
}

func (p *policyTally) drain(sum *policyTally) {
	sum.latency.merge(&p.latency)
	for k := range p.known {
		sum.known[k].merge(&p.known[k])
	}
	for i := range p.named {
		sum.limit(named, p.named[i].name).merge(&p.named[i].limitTally)
		p.named[i].limitTally = limitTally{}
	}
	p.used, p.latency, p.known = false, spread{}, [named]limitTally{}
}

func (l *limitTally) merge(o *limitTally) {
	l.decisions += o.decisions
	l.refused += o.refused
	l.acquired.merge(&o.acquired)
	l.available.merge(&o.available)
}

// group is what a report says under the same dimensions.
type group struct {
	bucketType, policy string // both "": of the process
	points             []point
}

// point is one metric of a group: a number, or one of the other two.
type point struct {
	metric string
	total  float64
	level  *level
	spread *spread
}

// groups returns what a report says: only what has happened.
func (t *tally) groups() (list []group) {
	var process []point
	if t.latency.n > 0 {
		process = append(process, point{metric: AcquisitionLatency, spread: &t.latency})
	}
	if t.fallbacks > 0 {
		process = append(process, point{metric: FallbackActivated, total: float64(t.fallbacks)})
	}
	if t.store.n > 0 {
		process = append(process, point{metric: StoreLatency, spread: &t.store})
	}
	if t.retries.n > 0 { // it is DynamoDB
		process = append(process, point{metric: StoreRetries, spread: &t.retries},
			point{metric: ConditionalWriteFailures, total: float64(t.conflicts)},
			point{metric: StoreThrottled, total: float64(t.throttled)})
	}
	if t.refusals > 0 {
		process = append(process, point{metric: ProviderRefusals, total: float64(t.refusals)})
	}
	if len(process) > 0 {
		list = append(list, group{points: process})
	}
	for _, name := range slices.Sorted(maps.Keys(t.policies)) {
		p := t.policies[name]
		for k := range p.known {
			list = p.group(list, kindNames[k], name, &p.known[k])
		}
		for i := range p.named {
			list = p.group(list, p.named[i].name, name, &p.named[i].limitTally)
		}
	}
	return list
}

// group adds what is known of a limit.
func (p *policyTally) group(list []group, bucketType, policy string, l *limitTally) []group {
	if l.decisions == 0 {
		return list
	}
	g := group{bucketType: dimensionValue(bucketType), policy: dimensionValue(policy)}
	g.points = append(g.points, point{metric: TokensAcquired, total: l.acquired.sum, level: &l.acquired},
		point{metric: AcquisitionFailures, total: float64(l.refused)})
	if l.available.n > 0 {
		g.points = append(g.points, point{metric: TokensAvailable, level: &l.available})
	}
	g.points = append(g.points, point{metric: AcquisitionLatency, spread: &p.latency})
	return append(list, g)
}
