package outbound

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Breaker says when calls to an upstream that fails are stopped. Its state is this process's own: a
// broken network here says nothing about the others.
//
// There is a circuit for each model, and one for the connections to the upstream, which opens when
// none can be made. With [Call].From there are also circuits for each caller and model.
//
// A circuit is closed until failures outnumber successes by Failures, counted back from the latest
// call: five failures in a row, or eight of eleven calls. Where calls say who makes them, the
// failures of a single caller open that caller's circuit only: a wider circuit opens if, whichever
// caller is left out, the failures of the others still outnumber their successes by half of that
// (rounded up for the circuit of a model, down for one within it). So an upstream that is dead gets
// no more than twice Failures calls, whoever makes them in whatever order.
//
// Then it is open: calls fail at once with a *[CircuitOpenError] and spend nothing. After Open one
// call at a time may try; the next one when its answer has begun. After Successes of them in a row
// it is closed again; one that fails opens it for another Open. Where it covers several callers,
// the others may still try after one has failed, until Failures of them have.
//
// Failures are time-outs, lost connections and answers that say that the upstream is broken or
// overloaded. A refusal for the quota is none, and neither is a call that its caller gave up, or an
// answer that the call may have caused: 408 and 409, like every other 4xx. A call that was not sent
// because there was no connection is a failure of the connections alone.
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

// Circuit describes one of the circuits of a [Client].
type Circuit struct {
	Model      string        // "" is the circuit of the connections to the upstream
	Series     string        // of a [Call] of the model: one of a few names
	Caller     string        // one of [Call].From: whose calls it stops; "" is everybody's
	State      string        // [CircuitClosed], [CircuitOpen] or [CircuitHalfOpen]
	RetryAfter time.Duration // after which a call may try; 0 unless it is open
}

const (
	maxCircuits = 1000      // of a client; beyond that the one that failed longest ago is forgotten
	memory      = time.Hour // after which a failure does not count any more
	pastSize    = 10        // calls that a circuit remembers, in multiples of Breaker.Failures
)

// circuits are the circuits of a client. Only those of which a call has failed lately exist: all
// others are closed. It is safe for concurrent use.
type circuits struct {
	failures, successes int // failures is 0 if the breaker is switched off
	open                time.Duration

	mu    sync.Mutex
	all   map[scope]*circuit // guarded by mu
	epoch uint64             // guarded by mu: grows whenever a circuit opens or closes
}

// scope says which calls a circuit stops. The zero value is all calls, by their connections.
type scope struct {
	ofModel bool
	model   string
	caller  string
}

// part is a circuit that a call is subject to, and the caller as whose it counts there.
type part struct {
	scope

	child string // "": the calls of this circuit are not told apart
}

// parts returns the circuits of a call, the widest first.
func parts(call *Call) []part {
	list := make([]part, 1, 2+len(call.From))
	caller := ""
	for _, child := range slices.Backward(call.From) {
		list = append(list, part{scope{true, call.Model, caller}, child})
		caller = child
	}
	return append(list, part{scope{true, call.Model, caller}, ""})
}

// circuit is the state of one circuit.
type circuit struct {
	series  string
	past    []outcome // of the latest calls that ended while it was closed, the latest one last
	latest  time.Time // the last failure, or when it closed
	changed uint64    // the epoch in which it opened or closed: attempts of earlier ones do not count

	open   bool
	next   time.Time            // while it is open: when a call may try
	trial  bool                 // one is under way
	failed map[string]time.Time // by child whose trial failed: when it may try again
	passed map[string]int       // by child: trials that succeeded in a row
}

type outcome struct {
	child  string
	failed bool
	at     time.Time
}

func newCircuits(o Breaker) *circuits {
	return &circuits{
		failures: max(0, cmp.Or(o.Failures, 5)), open: cmp.Or(o.Open, 60*time.Second),
		successes: cmp.Or(o.Successes, 2),
		all:       map[scope]*circuit{},
	}
}

// attempt is a call that the circuits let through. Exactly one of succeeded, failed, unreachable
// and dropped is called.
type attempt struct {
	c      *circuits
	series string
	parts  []part
	epoch  uint64
	trials map[*circuit]bool // true: it is under way as the circuit's only trial
}

// ask returns the circuit that stops the call now, or nil. It claims nothing.
func (c *circuits) ask(call *Call, now time.Time) *Circuit {
	if c.failures == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) == 0 {
		return nil
	}
	return c.refusal(parts(call), now)
}

// begin lets a call through, or returns the circuit that stops it. In circuits that are half-open
// the call is the trial, until it ends or its answer begins.
func (c *circuits) begin(call *Call, now time.Time) (a attempt, stopped *Circuit) {
	a = attempt{c: c, series: cmp.Or(call.Series, call.Model)}
	if c.failures == 0 {
		return a, nil
	}
	a.parts = parts(call)
	c.mu.Lock()
	defer c.mu.Unlock()
	a.epoch = c.epoch
	if stopped = c.refusal(a.parts, now); stopped != nil {
		return a, stopped
	}
	for _, p := range a.parts {
		if k := c.all[p.scope]; k != nil && k.open {
			if a.trials == nil {
				a.trials = map[*circuit]bool{}
			}
			k.trial, a.trials[k] = true, true
		}
	}
	return a, nil
}

// refusal returns the circuit that stops a call for longest, or nil. The caller holds c.mu.
func (c *circuits) refusal(list []part, now time.Time) (stopped *Circuit) {
	for _, p := range list {
		k := c.all[p.scope]
		if k == nil {
			continue
		}
		if wait := k.wait(p.child, now); wait > 0 && (stopped == nil || wait > stopped.RetryAfter) {
			stopped = &Circuit{
				Model: p.model, Series: k.series, Caller: p.caller, State: k.state(now), RetryAfter: wait,
			}
		}
	}
	return stopped
}

// wait returns for how long a call may not be made. A trial that is under way may take any time:
// then it is the shortest wait that makes sense.
func (k *circuit) wait(child string, now time.Time) time.Duration {
	switch {
	case !k.open:
		return 0
	case k.next.After(now):
		return k.next.Sub(now)
	case k.failed[child].After(now):
		return k.failed[child].Sub(now)
	case k.trial:
		return time.Second
	}
	return 0
}

func (k *circuit) state(now time.Time) string {
	switch {
	case !k.open:
		return CircuitClosed
	case k.next.After(now):
		return CircuitOpen
	}
	return CircuitHalfOpen
}

// list returns the circuits that are not closed, the upstream's own first.
func (c *circuits) list(now time.Time) (list []Circuit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s, k := range c.all {
		if k.open {
			list = append(list, Circuit{
				Model: s.model, Series: k.series, Caller: s.caller, State: k.state(now),
				RetryAfter: max(0, k.next.Sub(now)),
			})
		}
	}
	slices.SortFunc(list, func(a, b Circuit) int {
		return cmp.Or(strings.Compare(a.Model, b.Model), strings.Compare(a.Series, b.Series),
			strings.Compare(a.Caller, b.Caller))
	})
	return list
}

// succeeded returns the circuits that the call closed.
func (a attempt) succeeded(now time.Time) (closed []Circuit) {
	return a.each(func(p part, k *circuit) bool { return k != nil && a.good(p, k, now) })
}

// failed returns the circuits that the call opened or, that of the connections, closed: it was
// sent.
func (a attempt) failed(now time.Time) (changed []Circuit) {
	return a.each(func(p part, k *circuit) bool {
		if p.scope == (scope{}) {
			return k != nil && a.good(p, k, now)
		}
		return a.bad(p, k, now)
	})
}

// unreachable returns the circuit that a call opened for which there was no connection.
func (a attempt) unreachable(now time.Time) (opened []Circuit) {
	return a.each(func(p part, k *circuit) bool { return p.scope == (scope{}) && a.bad(p, k, now) })
}

// dropped is for a call that says nothing about the upstream.
func (a attempt) dropped() { a.each(func(part, *circuit) bool { return false }) }

// each calls f with each circuit of the call, which is nil if it does not exist, and returns those
// of which f says that it has changed them. The call is no trial any more.
func (a attempt) each(f func(part, *circuit) bool) (changed []Circuit) {
	c := a.c
	if c.failures == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range a.parts {
		k := c.all[p.scope]
		if !f(p, k) {
			continue
		}
		k = c.all[p.scope]
		now := Circuit{Model: p.model, Series: k.series, Caller: p.caller, State: CircuitClosed}
		if k.open {
			now.State, now.RetryAfter = CircuitOpen, c.open
		}
		changed = append(changed, now)
	}
	a.release()
	return changed
}

// answered lets the next call try: the answer has begun, and may last for long.
func (a attempt) answered() {
	if len(a.trials) == 0 {
		return
	}
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	a.release()
}

// release says that the call is not under way as a trial any more. The caller holds c.mu.
func (a attempt) release() {
	for k, under := range a.trials {
		if under && a.counts(k) {
			k.trial = false
		}
		a.trials[k] = false
	}
}

// counts reports whether the call began in the state that the circuit is in now.
func (a attempt) counts(k *circuit) bool { return a.epoch >= k.changed }

// good counts a success, and reports whether that closed the circuit. The caller holds c.mu.
func (a attempt) good(p part, k *circuit, now time.Time) (closed bool) {
	switch _, trial := a.trials[k]; {
	case !a.counts(k):
		return false
	case !trial:
		if !k.open {
			a.c.remember(k, outcome{p.child, false, now})
		}
		return false
	}
	k.passed[p.child]++
	sum := 0
	for _, n := range k.passed {
		sum += n
	}
	if sum < a.c.successes {
		return false
	}
	a.c.epoch++
	*k = circuit{series: k.series, latest: now, changed: a.c.epoch}
	return true
}

// bad counts a failure, and reports whether that opened the circuit. The caller holds c.mu.
func (a attempt) bad(p part, k *circuit, now time.Time) (opened bool) {
	c := a.c
	if k == nil {
		if k = c.create(p.scope, now); k == nil {
			return false
		}
		if p.ofModel {
			k.series = a.series
		}
	}
	if !a.counts(k) {
		return false
	}
	if _, trial := a.trials[k]; trial {
		k.trialFailed(p.child, now, c)
		return false
	}
	if k.open {
		return false
	}
	k.latest = now
	c.remember(k, outcome{p.child, true, now})
	others := (c.failures + 1) / 2
	if p.caller != "" {
		others = max(1, c.failures/2)
	}
	if !k.failing(c.failures, others, now) {
		return false
	}
	c.epoch++
	*k = circuit{
		series: k.series, latest: now, changed: c.epoch,
		open: true, next: now.Add(c.open), failed: map[string]time.Time{}, passed: map[string]int{},
	}
	return true
}

// trialFailed makes the caller wait whose trial failed, or all, if they are not told apart or so
// many have tried.
func (k *circuit) trialFailed(child string, now time.Time, c *circuits) {
	k.latest = now
	delete(k.passed, child)
	for other, until := range k.failed {
		if !until.After(now) {
			delete(k.failed, other)
		}
	}
	k.failed[child] = now.Add(c.open)
	if child == "" || len(k.failed) >= c.failures {
		k.next = now.Add(c.open)
		clear(k.failed)
		clear(k.passed)
	}
}

// remember adds how a call ended.
func (c *circuits) remember(k *circuit, o outcome) {
	if len(k.past) >= pastSize*c.failures {
		k.past = slices.Delete(k.past, 0, len(k.past)/2)
	}
	k.past = append(k.past, o)
}

// failing reports whether, counted back from the latest call, failures outnumber successes by n,
// and by others whichever child is left out.
func (k *circuit) failing(n, others int, now time.Time) bool {
	sum, by := 0, map[string]int{}
	for _, o := range slices.Backward(k.past) {
		if now.Sub(o.at) > memory {
			return false
		}
		d := -1
		if o.failed {
			d = 1
		}
		sum += d
		if o.child != "" {
			by[o.child] += d
		}
		if sum < n {
			continue
		}
		most := 0
		for _, of := range by {
			most = max(most, of)
		}
		if sum-most >= others {
			return true
		}
	}
	return false
}

// create makes a closed circuit. If there are too many it takes the place of the closed one that
// failed longest ago; nil: all are open. The caller holds c.mu.
func (c *circuits) create(s scope, now time.Time) *circuit {
	oldest, found := scope{}, false
	for other, k := range c.all {
		switch {
		case k.open:
		case now.Sub(k.latest) > memory:
			delete(c.all, other)
		case !found || k.latest.Before(c.all[oldest].latest):
			oldest, found = other, true
		}
	}
	if len(c.all) >= maxCircuits {
		if !found {
			return nil
		}
		delete(c.all, oldest)
	}
	k := &circuit{latest: now}
	c.all[s] = k
	return k
}
