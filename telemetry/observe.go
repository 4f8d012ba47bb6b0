package telemetry

import (
	"context"
	"errors"

	"github.com/drawgate/drawgate"
)

// ops are what a store is asked for.
var ops = [...]string{"take", "settle", "cancel", "renew", "charge", "refund", "peek", "reset", "ping", "list", "read", other}

// opOf returns the position in ops.
func opOf(op string) int {
	for i := range ops {
		if ops[i] == op {
			return i
		}
	}
	return len(ops) - 1
}

// class is why a store did not answer.
type class uint8

const (
	transient     class = iota // as drawgate.FaultTransient
	configuration              // as drawgate.FaultConfiguration
	bucket                     // as drawgate.FaultBucket
	lasting                    // as drawgate.FaultLasting
	timeout                    // it did not answer in time
	caller                     // the caller went away, or the process is stopping
	misused                    // it was asked for what cannot be
	classes
)

var classNames = [classes]string{"transient", "configuration", "bucket", "lasting", "timeout", "caller", "invalid"}

// classOf tells the errors of store calls apart.
func classOf(err error) class {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, drawgate.ErrClosed):
		return caller
	case errors.Is(err, context.DeadlineExceeded):
		return timeout
	case errors.Is(err, drawgate.ErrIDReused), errors.Is(err, drawgate.ErrInvalid), errors.Is(err, drawgate.ErrNeedsReserve):
		return misused
	}
	if e, ok := errors.AsType[*drawgate.StoreError](err); ok && e.Fault <= drawgate.FaultLasting {
		return class(e.Fault)
	}
	return transient
}

// isBackend reports whether an error of that class is the store's.
func (c class) isBackend() bool { return c != caller && c != misused }

// taken counts a take. It is called for every decision.
func (m *Metrics) taken(e *drawgate.Taken) {
	o := outcomeOf(e)
	if m.table.get(e.Take.Buckets[0].Plan.Name()).shadow.Load() {
		m.shadowed(e.Take, o)
		return
	}
	deciding := (e.Took - e.Queued).Seconds()
	m.check.Observe(deciding)
	m.deciding[o].Observe(deciding)
	if e.Queued > 0 {
		m.queued.Observe(e.Queued.Seconds())
	}
	d := decided(e)
	for i := range e.Take.Buckets {
		b := &e.Take.Buckets[i]
		p := m.table.get(b.Plan.Name())
		p.decisions[o].Inc()
		p.saw(b)
		if d != nil && d.Fallback {
			p.fallbacks[o].Inc()
		}
		if e.Queued > 0 {
			p.waits.Inc()
			p.waited.Observe(e.Queued.Seconds())
		}
	}
	if d != nil {
		m.looked(e.Take, d)
	}
	switch {
	case o == allowed && e.Take.Hold > 0 && !e.Decision.Replayed:
		m.holds.start(e.Take.ID, e.Take.Hold)
	case o == refused:
		m.refused(e.Take, d)
	case o == away:
		m.reasons[backendError].Inc()
	}
}

// shadowed counts a take of policies in shadow, which has no part in anything else.
func (m *Metrics) shadowed(t *drawgate.Take, o outcome) {
	for i := range t.Buckets {
		m.table.get(t.Buckets[i].Plan.Name()).shadows[o].Inc()
	}
}

// looked notes what a decision says is left of the tightest limit of each bucket.
func (m *Metrics) looked(t *drawgate.Take, d *drawgate.Decision) {
	if d.Reason == drawgate.Queued {
		return // it says nothing of limits
	}
	at, least, share := -1, int64(0), 0.0
	for r := range d.Limits() {
		if s := float64(r.Remaining) / float64(r.Limit.Amount); r.Bucket != at || s < share {
			if r.Bucket != at && at >= 0 {
				m.table.get(t.Buckets[at].Plan.Name()).remaining.Store(least)
			}
			at, least, share = r.Bucket, r.Remaining, s
		}
	}
	if at >= 0 {
		m.table.get(t.Buckets[at].Plan.Name()).remaining.Store(least)
	}
}

// refused counts a refused take once, and the keys and limits that refused it each. d is nil if it was refused without being asked for.
func (m *Metrics) refused(t *drawgate.Take, d *drawgate.Decision) {
	m.reasons[m.reason(d)].Inc()
	hit := -1
	if d != nil {
		for r := range d.Limits() {
			b := &t.Buckets[r.Bucket]
			if !r.Refused() && d.Reason != drawgate.Queued {
				continue
			}
			p := m.table.get(b.Plan.Name())
			if r.Refused() {
				p.limits.get(r.Limit).exceeded.Inc()
			}
			if hit != r.Bucket {
				hit = r.Bucket
				p.hits.hit(&b.Key)
			}
		}
	}
	if hit < 0 {
		b := &t.Buckets[0] // others wait in front of one of them; which, nobody says
		m.table.get(b.Plan.Name()).hits.hit(&b.Key)
	}
}

// called counts a store call. While the guard's breaker is open there are none: it answers by itself.
func (m *Metrics) called(e *drawgate.StoreCall) {
	if m.state.Load() == open {
		return
	}
	op := opOf(e.Op)
	m.calls[op].Observe(e.Took.Seconds())
	if e.Err != nil && !m.guarded.Load() {
		m.failed(op, e.Err)
	}
}

// settlements are what becomes of a reservation.
type settlement uint8

const (
	settled settlement = iota
	cancelled
	renewed
	charged
	refunded
	gone
	unsettled
	settlements
)

var settlementNames = [settlements]string{"settled", "cancelled", "renewed", "charged", "refunded", "gone", "error"}

// ended counts what became of a reservation.
func (m *Metrics) ended(e *drawgate.Settled) {
	s := e.Settlement
	switch {
	case e.Err != nil:
		m.settled[unsettled].Inc()
		return
	case e.Outcome.Gone:
		m.settled[gone].Inc()
	case s.Op == drawgate.OpRenew:
		m.settled[renewed].Inc()
		m.holds.start(s.ID, s.Hold)
		return
	case s.Op == drawgate.OpCharge:
		m.settled[charged].Inc()
		return
	case s.Op == drawgate.OpRefund:
		m.settled[refunded].Inc()
		return
	case s.Op == drawgate.OpCancel:
		m.settled[cancelled].Inc()
	default:
		m.settled[settled].Inc()
	}
	m.holds.stop(s.ID)
}
