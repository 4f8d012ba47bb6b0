package cloudwatch

import (
	"errors"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/store/guard"
)

// Observer returns an observer of decisions and store calls: for [drawgate.Options.Observer]. With
// telemetry.Join a limiter can have others as well.
func (m *Metrics) Observer() *drawgate.Observer {
	return &drawgate.Observer{Taken: m.taken, Called: m.called}
}

// Guard returns an observer of the store's guard: for the guard's options.
func (m *Metrics) Guard() *guard.Observer {
	return &guard.Observer{
		FallbackActivated: func(*guard.FallbackActivated) { m.count(func(t *tally) { t.fallbacks++ }) },
		Opened:            func(*guard.Opened) { m.open.Store(true) },
		Closed:            func(*guard.Closed) { m.open.Store(false) },
	}
}

// Store returns an observer of DynamoDB's store: for the store's options.
func (m *Metrics) Store() *dynamostore.Observer {
	return &dynamostore.Observer{Called: func(c *dynamostore.Call) {
		m.count(func(t *tally) {
			t.retries.add(float64(max(0, c.Attempts-1)))
			t.conflicts += int64(c.Conflicts)
			t.throttled += int64(c.Throttled)
		})
	}}
}

// Outbound returns an observer of calls to upstreams: for outbound.Options and the options of a
// gateway.
func (m *Metrics) Outbound() *outbound.Observer {
	return &outbound.Observer{Called: func(e *outbound.Event) {
		if e.Outcome == outbound.Refused {
			m.count(func(t *tally) { t.refusals++ })
		}
	}}
}

// taken counts a take. It is called for every decision.
func (m *Metrics) taken(e *drawgate.Taken) {
	took := milliseconds(e.Took - e.Queued)
	d := decided(e)
	s := m.lock()
	s.active.latency.add(took)
	if d != nil {
		s.active.decided(e, d, took)
	}
	s.mu.Unlock()
	if m.opts.InCall {
		m.inCall()
	}
}

// decided returns the decision of a take, or nil if there is none that says something of limits. An
// error that ends a wait may carry the last refusal.
func decided(e *drawgate.Taken) *drawgate.Decision {
	d := e.Decision
	if d == nil || d.Buckets() == 0 || d.Reason == drawgate.Queued ||
		e.Err != nil && !errors.Is(e.Err, drawgate.ErrLimited) {
		return nil
	}
	return d
}

// called counts a store call. While the guard's breaker is open there are none: the guard answers.
func (m *Metrics) called(e *drawgate.StoreCall) {
	if m.open.Load() {
		return
	}
	took := milliseconds(e.Took)
	s := m.lock()
	s.active.store.add(took)
	s.mu.Unlock()
	if m.opts.InCall {
		m.inCall()
	}
}

// count counts what happens rarely.
func (m *Metrics) count(add func(*tally)) {
	s := m.lock()
	add(s.active)
	s.mu.Unlock()
	if m.opts.InCall {
		m.inCall()
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
