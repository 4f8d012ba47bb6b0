package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/internal/sampler"
	"github.com/drawgate/drawgate/outbound"
)

// circuitWatch is what is known of the circuit of one upstream.
type circuitWatch struct {
	upstream  string
	opened    sampler.Sampler
	open      atomic.Bool // as last heard
	announced atomic.Bool // that it opened was reported, and not that it closed
}

func newCircuitWatch(upstream string) *circuitWatch { return &circuitWatch{upstream: label(upstream)} }

// Outbound returns an observer that reports to w when the circuit of an upstream opens or closes:
// for [outbound.Options] and the options of a gateway. An upstream whose circuit opens again within
// Every is only counted.
func (w *Warner) Outbound() *outbound.Observer { return &outbound.Observer{Circuit: w.circuit} }

func (w *Warner) circuit(upstream, state string) {
	c, now := w.circuits.get(upstream), time.Now()
	c.open.Store(state == outbound.CircuitOpen)
	switch state {
	case outbound.CircuitOpen:
		if held, ok := c.opened.Pass(now, w.opts.Every, 1); ok {
			c.announced.Store(true)
			w.warn(&Warning{Kind: CircuitOpened, At: now, Upstream: c.upstream, Suppressed: held})
		}
	case outbound.CircuitClosed:
		if c.announced.Swap(false) {
			w.warn(&Warning{Kind: CircuitClosed, At: now, Upstream: c.upstream})
		}
	}
}

// sumCircuit reports how often a circuit opened that was not reported. If it has closed again, that
// is reported too: the last report says how things are.
func (w *Warner) sumCircuit(c *circuitWatch, now time.Time, at int64) {
	n := c.opened.Rest(at)
	if n == 0 {
		return
	}
	w.tell(&Warning{Kind: CircuitOpened, At: now, Upstream: c.upstream, Suppressed: n})
	if c.announced.Store(true); !c.open.Load() && c.announced.Swap(false) {
		w.tell(&Warning{Kind: CircuitClosed, At: now, Upstream: c.upstream})
	}
}
