package telemetry

import (
	"cmp"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// taken watches one decision for milestones and refusals.
func (w *Warner) taken(e *drawgate.Taken) {
	d := decided(e)
	if d == nil || d.Reason == drawgate.Queued {
		return
	}
	i, at := 0, -1
	var p *policyWatch
	for r := range d.Limits() {
		if i++; r.Bucket != at {
			i, at = 0, r.Bucket
			p = w.table.get(r.Policy)
		}
		if !d.Fallback {
			w.usage(p, &e.Take.Buckets[at].Key, d, &r, i)
		}
		if !d.Allowed && d.Reason == drawgate.Limited && r.Refused() {
			w.exceeded(p, &e.Take.Buckets[at], i, &r, d.Fallback)
		}
	}
}

// usage looks for milestones of one limit.
func (w *Warner) usage(p *policyWatch, key *drawgate.Key, d *drawgate.Decision, r *drawgate.LimitResult, i int) {
	most := r.Max
	if most < 1 {
		return
	}
	l := look{key: key, limit: i, used: (most - r.Remaining) * 100 / most, at: d.At().UnixMicro()}
	if l.used < interest && w.marks.some.Load() == 0 {
		return
	}
	if r.Limit.Kind == drawgate.Calendar {
		l.end = r.ResetAt().UnixMicro()
	}
	l.quiet = max(r.Limit.Window, w.opts.Every).Microseconds()
	from, to := w.marks.reach(&l)
	if to == from {
		return
	}
	w.opts.Metrics.reached(p.name, r.Limit, from, to)
	now := time.Now()
	held, ok := p.limits.get(r.Limit).milestones[to-1].Pass(now, w.opts.Every, perEvery[to-1])
	if !ok {
		return
	}
	warning := w.about(Milestone, now, p, key, r)
	warning.Percent, warning.From, warning.Suppressed = int(milestones[to-1]), int(milestones[from]), held
	w.warn(warning)
}

// exceeded reports a refusal by one limit, or counts it.
func (w *Warner) exceeded(p *policyWatch, b *store.BucketCost, i int, r *drawgate.LimitResult, fallback bool) {
	now := time.Now()
	held, ok := p.limits.get(r.Limit).refusals.Pass(now, w.opts.Every, 1)
	if !ok {
		return
	}
	warning := w.about(LimitExceeded, now, p, &b.Key, r)
	warning.Suppressed, warning.RetryAfter, warning.Asked = held, r.RetryAfter, b.N[i]
	if fallback { // what remains is of this process's share: the usage of the whole limit is unknown
		warning.Fallback, warning.Used, warning.Most = true, 0, 0
	}
	w.warn(warning)
}

// about makes a warning of one limit of one bucket.
func (w *Warner) about(kind Kind, now time.Time, p *policyWatch, key *drawgate.Key, r *drawgate.LimitResult) *Warning {
	return &Warning{
		Kind: kind, At: now, Policy: p.name, Limit: r.Limit.Name, Unit: cmp.Or(r.Limit.Unit, drawgate.UnitRequests),
		Period:     Period(r.Limit),
		Identifier: w.opts.Hasher.Key(*key), Used: r.Max - r.Remaining, Most: r.Max, ResetAt: r.ResetAt(),
	}
}

// sum reports what was held back of limits that have been quiet since then, or of all limits at the
// end.
func (w *Warner) sum(now time.Time, all bool) {
	at := now.UnixNano()
	if all {
		at = 1<<63 - 1
	}
	w.table.each(func(p *policyWatch) {
		p.limits.each(func(l *limitWatch) {
			if n := l.refusals.Rest(at); n > 0 {
				w.tell(&Warning{
					Kind: LimitExceeded, At: now, Policy: l.policy, Limit: l.limit, Period: l.period,
					Suppressed: n,
				})
			}
			for i := range l.milestones {
				if n := l.milestones[i].Rest(at); n > 0 {
					w.tell(&Warning{
						Kind: Milestone, At: now, Policy: l.policy, Limit: l.limit, Period: l.period, Suppressed: n,
						Percent: int(milestones[i]), From: int(milestones[i]),
					})
				}
			}
		})
		if refuse, allow := p.wouldRefuse.Swap(0), p.wouldAllow.Swap(0); refuse+allow > 0 {
			w.tell(&Warning{Kind: ShadowDivergence, At: now, Policy: p.name, WouldRefuse: refuse, WouldAllow: allow})
		}
	})
	w.circuits.each(func(c *circuitWatch) { w.sumCircuit(c, now, at) })
	for i := range w.backend {
		if n := w.backend[i].Rest(at); n > 0 {
			w.tell(&Warning{Kind: BackendError, At: now, Suppressed: n, Fault: store.Fault(i).String()})
		}
	}
}
