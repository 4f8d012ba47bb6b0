package telemetry

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/outbox"
	"github.com/drawgate/drawgate/store/guard"
)

// The states of the breaker in front of the store.
const (
	closed = iota // the store is asked
	open          // the store is not asked: this process decides by itself
	states
)

var stateNames = [states]string{"closed", "open"}

// Guard returns an observer of the store's guard that reports to m: for guard.Options. From then on
// the guard's errors of the store are counted, not those that limiters see. Call it before anything
// is decided.
func (m *Metrics) Guard() *guard.Observer {
	m.guarded.Store(true)
	return &guard.Observer{
		BackendError:      func(e *guard.BackendError) { m.failed(opOf(e.Op), e.Err) },
		FallbackActivated: func(*guard.FallbackActivated) { m.activations.Inc() },
		Opened:            func(*guard.Opened) { m.breaker(open) },
		Closed:            func(*guard.Closed) { m.breaker(closed) },
		Probed: func(p *guard.Probe) {
			if p.Err != nil {
				m.probes[0].Inc()
			} else {
				m.probes[1].Inc()
			}
		},
		Lost:    func(*guard.Lost) { m.losses.Inc() },
		Charged: func(c *guard.Charged) { m.charges.Add(float64(len(c.Buckets))) },
		Recovered: func(r *guard.Recovered) {
			m.recoveredUnits.Add(float64(r.Units()))
			m.recoveredReservations.Add(float64(r.Reservations))
			m.unmet.Add(float64(r.NotDone))
		},
	}
}

// Batched notes that so many requests went to the store in one call.
func (m *Metrics) Batched(requests int, took time.Duration) {
	m.batches.Observe(float64(requests))
	m.batchTime.Observe(took.Seconds())
}

// breaker notes that the breaker is in a state.
func (m *Metrics) breaker(state uint32) {
	if m.state.Swap(state) != state {
		m.transitions[state].Inc()
		m.showBreaker(state)
	}
}

func (m *Metrics) showBreaker(state uint32) {
	for i, g := range m.breakers {
		v := 0.0
		if uint32(i) == state {
			v = 1
		}
		g.Set(v)
	}
}

// failed counts a failed call of the store by its class, and as a backend error if the store was
// the reason.
func (m *Metrics) failed(op int, err error) {
	c := classOf(err)
	m.failures[op][c].Inc()
	if c.isBackend() {
		m.backend.Inc()
	}
}

// Diverged counts a shadow that would have decided differently: for engine.Options.
func (m *Metrics) Diverged(d *engine.Divergence) {
	s := m.table.get(d.Policy)
	switch d.Way {
	case engine.WouldRefuse:
		s.wouldRefuse.Inc()
	case engine.WouldAllow:
		s.wouldAllow.Inc()
	}
}

var resultNames = [2]string{"failure", "success"}

// Reloaded records an attempt to change the configuration: err is nil if the new one is in force.
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

// RestartPending records whether the configuration that was loaded last has a change that only a
// restart puts in force.
func (m *Metrics) RestartPending(pending bool) {
	if pending {
		m.restart.Set(1)
		return
	}
	m.restart.Set(0)
}

// undecidedCodes are the gRPC codes of errors that Envoy's rate limit service answers.
var undecidedCodes = [...]string{"InvalidArgument", "FailedPrecondition", "Unavailable", "Canceled", other}

// EnvoyUndecided counts a request of Envoy that was answered with an error of that gRPC code: for
// rls.Options.Undecided.
func (m *Metrics) EnvoyUndecided(code string) { inc(m.undecided[:], undecidedCodes[:], code) }

// unansweredReasons are why a request of a proxy that asks /auth is not decided.
var unansweredReasons = [...]string{"token", "untrusted", "undescribed", "ambiguous", "rule", "store", "ended", other}

// ForwardAuthUndecided counts a request to /auth that was not decided, by the reason: for
// ForwardAuth.Undecided of package server.
func (m *Metrics) ForwardAuthUndecided(reason string) {
	inc(m.unanswered[:], unansweredReasons[:], reason)
}

// inc counts one of names, or else the last one, which is other.
func inc(counters []prometheus.Counter, names []string, name string) {
	i := slices.Index(names, name)
	if i < 0 {
		i = len(names) - 1
	}
	counters[i].Inc()
}

// warned counts a warning that was passed on, or dropped. m may be nil.
func (m *Metrics) warned(k Kind, reported bool) {
	if i := k.position(); m != nil && i >= 0 {
		if reported {
			m.reported[i].Inc()
		} else {
			m.lost[i].Inc()
		}
	}
}

// reached counts the milestones that a bucket has reached, those from position from up to, but not
// including, to. m may be nil.
func (m *Metrics) reached(policy string, l *drawgate.Limit, from, to int) {
	if m == nil {
		return
	}
	s := m.table.get(policy).limits.get(l)
	for i := from; i < to; i++ {
		s.milestones[i].Inc()
	}
}

// Published counts a message to the SNS topic of incidents by its result, which is one of package
// snsnotify.
func (m *Metrics) Published(result string) {
	if c := m.published[outbox.Result(result)]; c != nil {
		c.Inc()
	}
}

// posted counts a webhook call by its outcome. m may be nil.
func (m *Metrics) posted(r outbox.Result) {
	if m != nil {
		m.posts[r].Inc()
	}
}
