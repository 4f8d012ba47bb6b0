package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/store"
)

// milestones are the shares of a limit, in per cent, that are reported.
var milestones = [...]int64{50, 80, 95, 100}

// policySeries are the series of one policy, looked up once.
type policySeries struct {
	name      string // as a label
	decisions [policyOutcomes]prometheus.Counter
	fallbacks [policyOutcomes]prometheus.Counter
	waits     prometheus.Counter

	wouldRefuse, wouldAllow prometheus.Counter

	waited prometheus.Observer
	hits   identifiers
	limits row[limitSeries]

	remaining atomic.Int64 // of the tightest limit, as last seen; negative: never
	plan      atomic.Pointer[store.Plan]
	only      atomic.Pointer[drawgate.Key] // the first key; meaningless once there are several
	many      atomic.Bool
}

// limitSeries are the series of one limit.
type limitSeries struct {
	exceeded   prometheus.Counter
	milestones [len(milestones)]prometheus.Counter
}

var milestoneNames = [len(milestones)]string{"50", "80", "95", "100"}

func (m *Metrics) newPolicy(policy string) *policySeries {
	p := &policySeries{name: label(policy)}
	for o := range policyOutcomes {
		p.decisions[o] = m.vecs.decisions.WithLabelValues(p.name, outcomeNames[o])
		p.fallbacks[o] = m.vecs.fallbacks.WithLabelValues(p.name, outcomeNames[o])
	}
	p.wouldRefuse = m.vecs.divergence.WithLabelValues(p.name, engine.WouldRefuse)
	p.wouldAllow = m.vecs.divergence.WithLabelValues(p.name, engine.WouldAllow)
	p.waits = m.vecs.waits.WithLabelValues(p.name)
	p.waited = m.vecs.waited.WithLabelValues(p.name)
	p.hits.init(m, p.name)
	p.limits.create = func(limit, period string) *limitSeries {
		l := &limitSeries{exceeded: m.vecs.exceeded.WithLabelValues(period, p.name, limit)}
		for i, name := range milestoneNames {
			l.milestones[i] = m.vecs.milestones.WithLabelValues(p.name, limit, name)
		}
		return l
	}
	p.remaining.Store(-1)
	return p
}

// saw records that a bucket of the policy was used.
func (p *policySeries) saw(b *store.BucketCost) {
	if p.plan.Load() != b.Plan {
		p.plan.Store(b.Plan)
	}
	if p.many.Load() {
		return
	}
	switch only := p.only.Load(); {
	case only == nil:
		k := b.Key
		if !p.only.CompareAndSwap(nil, &k) && *p.only.Load() != b.Key {
			p.many.Store(true)
		}
	case *only != b.Key:
		p.many.Store(true)
	}
}
