package outbound

import (
	"cmp"
	"sync"
	"time"

	"github.com/drawgate/drawgate/internal/breaker"
)

// Breaker says when calls to an upstream that fails are stopped. Its state is this process's own: a
// broken network here says nothing about the others.
//
// It is closed until Failures calls in a row have failed. Then it is open: calls fail at once with
// a *[CircuitOpenError] and spend nothing. After Open one call at a time may try; the next one when
// its answer has begun. After Successes of them in a row it is closed again; one that fails opens
// it for another Open.
//
// Failures are time-outs, lost connections and answers that say that the upstream is broken or
// overloaded. A refusal for the quota is none, and neither is a call that its caller gave up, or an
// answer that the call may have caused: 408 and 409, like every other 4xx.
type Breaker struct {
	Failures  int           // 0 means 5; negative switches the breaker off
	Open      time.Duration // 0 means 60s
	Successes int           // 0 means 2
}

// The states of a circuit, as [Client.Circuit] and metrics name them.
const (
	CircuitClosed   = "closed"
	CircuitOpen     = "open"
	CircuitHalfOpen = "half-open"
)

// circuit is the state of a [Breaker]. It is safe for concurrent use.
type circuit struct {
	open      time.Duration
	successes int

	mu     sync.Mutex
	b      *breaker.Breaker // guarded by mu; nil: switched off
	since  time.Time        // guarded by mu: when it opened, or when a trial failed
	passed int              // guarded by mu: trials that succeeded in a row
	trial  bool             // guarded by mu: one is under way
}

func newCircuit(o Breaker) *circuit {
	c := &circuit{open: cmp.Or(o.Open, 60*time.Second), successes: cmp.Or(o.Successes, 2)}
	if o.Failures >= 0 {
		c.b = breaker.New(cmp.Or(o.Failures, 5), c.open, c.open)
	}
	return c
}

// attempt is a call that the circuit let through. Exactly one of succeeded, failed and dropped is
// called.
type attempt struct {
	c     *circuit
	epoch uint64
	trial bool
	begun bool // its answer has: the next trial need not wait for its end
}

// ask says whether begin would let a call through now, and otherwise after which time the next one
// may try. It claims nothing.
func (c *circuit) ask(now time.Time) (wait time.Duration, ok bool) {
	if c.b == nil {
		return 0, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refusal(now)
}

// begin lets a call through, or says after which time the next one may try. While the circuit is
// half-open the call is the trial, until it ends or its answer begins.
func (c *circuit) begin(now time.Time) (a attempt, wait time.Duration, ok bool) {
	a = attempt{c: c}
	if c.b == nil {
		return a, 0, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a.epoch = c.b.Epoch()
	if wait, ok = c.refusal(now); !ok {
		return a, wait, false
	}
	if c.b.Open() {
		c.trial, a.trial = true, true
	}
	return a, 0, true
}

// refusal says whether a call is let through. A trial that is under way may take any time: then
// the wait is the shortest one that makes sense. The caller holds c.mu.
func (c *circuit) refusal(now time.Time) (wait time.Duration, ok bool) {
	if !c.b.Open() {
		return 0, true
	}
	if wait = c.since.Add(c.open).Sub(now); wait > 0 {
		return wait, false
	}
	if c.trial {
		return time.Second, false
	}
	return 0, true
}

// state describes the circuit, and after which time a call may try.
func (c *circuit) state(now time.Time) (name string, wait time.Duration) {
	if c.b == nil {
		return CircuitClosed, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch wait = c.since.Add(c.open).Sub(now); {
	case !c.b.Open():
		return CircuitClosed, 0
	case wait > 0:
		return CircuitOpen, wait
	}
	return CircuitHalfOpen, 0
}

// succeeded reports whether the call closed the circuit.
func (a attempt) succeeded() (closed bool) {
	c := a.c
	if c.b == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !a.trial {
		c.b.Succeeded(a.epoch)
		return false
	}
	a.release()
	if a.epoch != c.b.Epoch() {
		return false
	}
	if c.passed++; c.passed < c.successes {
		return false
	}
	c.passed = 0
	return c.b.Probed(true)
}

// failed reports whether the call opened the circuit.
func (a attempt) failed(now time.Time) (opened bool) {
	c := a.c
	if c.b == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.trial {
		a.release()
		if a.epoch == c.b.Epoch() {
			c.passed, c.since = 0, now
		}
		return false
	}
	if opened = c.b.Failed(a.epoch); opened {
		c.since, c.passed = now, 0
	}
	return opened
}

// dropped is for a call that says nothing about the upstream.
func (a attempt) dropped() {
	if a.c.b == nil || !a.trial {
		return
	}
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	a.release()
}

// answered lets the next call try: the answer has begun, and may last for long.
func (a *attempt) answered() {
	if a.c.b == nil || !a.trial {
		return
	}
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	a.release()
	a.begun = true
}

// release says that the trial is not under way any more. The caller holds c.mu.
func (a attempt) release() {
	if !a.begun {
		a.c.trial = false
	}
}
