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
			w.usage(p, e.Take, d, &r, i)
		}
		if !d.Allowed && d.Reason == drawgate.Limited && r.Refused() {
			w.exceeded(p, &e.Take.Buckets[at], i, &r, d.Fallback)
		}
	}
}

// usage looks for milestones of one limit, as a decision describes it. Where what is held counts as
// used and would reach one, it is looked up first what is used without that.
func (w *Warner) usage(p *policyWatch, take *store.Take, d *drawgate.Decision, r *drawgate.LimitResult, i int) {
	m := measured{
		limit: r.Limit, used: r.Max - r.Remaining, most: r.Max, at: d.At().UnixMicro(), reset: r.ResetAt().UnixMicro(),
	}
	if m.most < 1 || m.percent() < interest && w.marks.some.Load() == 0 {
		return
	}
	b := &take.Buckets[r.Bucket]
	l := w.look(&b.Key, i, &m)
	if w.looks != nil && budget(b.Plan, i) && w.marks.would(&l) {
		w.looks.ask(b, take.Priority)
		return
	}
	w.milestone(p, &l, &m)
}

// measured is what is known of one limit of a bucket at an instant. Instants are Unix microseconds.
type measured struct {
	limit      *drawgate.Limit
	used, most int64
	at, reset  int64
}

// percent returns the part of the most that is used.
func (m *measured) percent() int64 { return m.used * 100 / m.most }

// forever reports whether nothing of the limit comes back.
func (m *measured) forever() bool {
	return m.limit.Kind == drawgate.Calendar && m.limit.Every == drawgate.Total
}

// look makes a look at limit i of a bucket.
func (w *Warner) look(key *drawgate.Key, i int, m *measured) look {
	l := look{key: key, limit: i, used: m.percent(), at: m.at}
	if m.limit.Kind == drawgate.Calendar && !m.forever() { // more may be credited to a total
		l.end = m.reset
	}
	l.quiet = max(m.limit.Window, w.opts.Every).Microseconds()
	return l
}

// milestone reports the milestones that a look reaches.
func (w *Warner) milestone(p *policyWatch, l *look, m *measured) {
	from, to := w.marks.reach(l)
	if to == from {
		return
	}
	w.opts.Metrics.reached(p.name, m.limit, from, to)
	now := time.Now()
	held, ok := p.limits.get(m.limit).milestones[to-1].Pass(now, w.opts.Every, perEvery[to-1])
	if !ok {
		return
	}
	warning := w.about(Milestone, now, p, l.key, m)
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
	m := measured{limit: r.Limit, used: r.Max - r.Remaining, most: r.Max, reset: r.ResetAt().UnixMicro()}
	warning := w.about(LimitExceeded, now, p, &b.Key, &m)
	warning.Suppressed, warning.Asked = held, b.N[i]
	if !m.forever() {
		warning.RetryAfter = r.RetryAfter
	}
	if fallback { // what remains is of this process's share: the usage of the whole limit is unknown
		warning.Fallback, warning.Used, warning.Most = true, 0, 0
	}
	w.warn(warning)
}

// about makes a warning of one limit of one bucket.
func (w *Warner) about(kind Kind, now time.Time, p *policyWatch, key *drawgate.Key, m *measured) *Warning {
	warning := &Warning{
		Kind: kind, At: now, Policy: p.name, Limit: m.limit.Name, Unit: cmp.Or(m.limit.Unit, drawgate.UnitRequests),
		Period: Period(m.limit), Identifier: w.opts.Hasher.Key(*key), Used: m.used, Most: m.most,
	}
	if !m.forever() {
		warning.ResetAt = time.UnixMicro(m.reset)
	}
	return warning
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
