package telemetry

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/internal/sampler"
	"github.com/drawgate/drawgate/outbound"
)

// circuitWatch is what is known of one circuit of an upstream.
type circuitWatch struct {
	Warning // what its warnings have in common

	opened    sampler.Sampler
	open      atomic.Bool // as last heard
	announced atomic.Bool // that it opened was reported, and not that it closed
}

// maxCircuits is the number of circuits whose warnings are told apart.
const maxCircuits = 1000

func newCircuitWatch(name string) *circuitWatch {
	upstream, rest, _ := strings.Cut(name, "\x00")
	model, caller, _ := strings.Cut(rest, "\x00")
	return &circuitWatch{Warning: Warning{Upstream: label(upstream), Model: label(model), Caller: label(caller)}}
}

// warning returns a warning about the circuit.
func (c *circuitWatch) warning(kind Kind, at time.Time, suppressed int64) *Warning {
	w := c.Warning
	w.Kind, w.At, w.Suppressed = kind, at, suppressed
	return &w
}

// Outbound returns an observer that reports to w when a circuit of an upstream opens or closes: for
// [outbound.Options] and the options of a gateway. A circuit that opens again within Every is only
// counted.
func (w *Warner) Outbound() *outbound.Observer { return &outbound.Observer{Circuit: w.circuit} }

func (w *Warner) circuit(upstream string, k *outbound.Circuit) {
	c, now := w.circuits.get(upstream+"\x00"+k.Series+"\x00"+k.Caller), time.Now()
	c.open.Store(k.State == outbound.CircuitOpen)
	switch k.State {
	case outbound.CircuitOpen:
		if held, ok := c.opened.Pass(now, w.opts.Every, 1); ok {
			c.announced.Store(true)
			w.warn(c.warning(CircuitOpened, now, held))
		}
	case outbound.CircuitClosed:
		if c.announced.Swap(false) {
			w.warn(c.warning(CircuitClosed, now, 0))
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
	w.tell(c.warning(CircuitOpened, now, n))
	if c.announced.Store(true); !c.open.Load() && c.announced.Swap(false) {
		w.tell(c.warning(CircuitClosed, now, 0))
	}
}
