package telemetry

import (
	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
)

// BreakerState is a state of the breaker in front of a store.
type BreakerState uint8

// The states.
const (
	BreakerClosed   BreakerState = iota // the store is asked
	BreakerOpen                         // it is not: this process decides by itself
	BreakerHalfOpen                     // it is asked whether it is back
	breakerStates
)

var breakerNames = [breakerStates]string{"closed", "open", "half_open"}

// String returns "closed", "open" or "half_open".
func (s BreakerState) String() string { return breakerNames[min(s, breakerStates-1)] }

// Breaker notes that the breaker in front of the store is in a state. Being told the same again changes nothing.
func (m *Metrics) Breaker(s BreakerState) {
	if BreakerState(m.state.Swap(uint32(s))) == s {
		return
	}
	m.vecs.transitions.WithLabelValues(s.String()).Inc()
	m.showBreaker(s)
}

// showBreaker sets the gauges of the breaker's state.
func (m *Metrics) showBreaker(s BreakerState) {
	for _, name := range breakerNames {
		v := 0.0
		if name == s.String() {
			v = 1
		}
		m.vecs.breaker.WithLabelValues(name).Set(v)
		m.vecs.transitions.WithLabelValues(name) // so that it exists
	}
}

// Diverged counts a shadow that would have decided otherwise: for engine.Options.
func (m *Metrics) Diverged(d *engine.Divergence) {
	s := m.table.get(d.Policy)
	switch d.Way {
	case engine.WouldRefuse:
		s.wouldRefuse.Inc()
	case engine.WouldAllow:
		s.wouldAllow.Inc()
	}
}

var loadNames = [2]string{"failure", "success"}

// Reloaded notes that a change of the configuration was tried: err is nil if the new one is in force.
func (m *Metrics) Reloaded(err error) {
	if err != nil {
		m.loads[0].Inc()
		m.lastLoad.Set(0)
		return
	}
	m.loads[1].Inc()
	m.lastLoad.Set(1)
	m.loaded.SetToCurrentTime()
}

// warned counts a warning that was told, or dropped. m may be nil.
func (m *Metrics) warned(k Kind, told bool) {
	if i := k.position(); m != nil && i >= 0 {
		if told {
			m.told[i].Inc()
		} else {
			m.lost[i].Inc()
		}
	}
}

// reached counts the milestones that a bucket has reached, those from position from up to, but not including, to. m may be nil.
func (m *Metrics) reached(policy string, l *drawgate.Limit, from, to int) {
	if m == nil {
		return
	}
	s := m.table.get(policy).limits.get(l)
	for i := from; i < to; i++ {
		s.milestones[i].Inc()
	}
}

// posted counts what became of a web call. m may be nil.
func (m *Metrics) posted(d delivery) {
	if m != nil {
		m.posts[d].Inc()
	}
}
