package telemetry

import (
	"context"
	"errors"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/failure"
)

// ops are what a store is asked for.
var ops = [...]string{"take", "settle", "cancel", "renew", "charge", "refund", "pause", "peek", "reset", "ping", "list", "read", other}

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
	permanent                  // as drawgate.FaultPermanent
	timeout                    // it did not answer in time
	caller                     // the caller went away, or the process is stopping
	misused                    // it was asked for what cannot be
	classes
)

var classNames = [classes]string{"transient", "configuration", "bucket", "lasting", "timeout", "caller", "invalid"}

// classOf tells the errors of store calls apart.
func classOf(err error) class {
	switch kind := failure.Of(err); {
	case kind == failure.Cancelled, kind == failure.Closed:
		return caller
	case kind.Mistake():
		return misused
	case errors.Is(err, context.DeadlineExceeded):
		return timeout
	}
	if e, ok := errors.AsType[*drawgate.StoreError](err); ok && e.Fault <= drawgate.FaultPermanent {
		return class(e.Fault)
	}
	return transient
}

// isBackend reports whether an error of that class is the store's.
func (c class) isBackend() bool { return c != caller && c != misused }

// series are those of the policies of a take's buckets.
type series []*policySeries

// usual is how many buckets a take has at most as a rule: for their series nothing is allocated.
const usual = 8

// taken counts a take. It is called for every decision.
func (m *Metrics) taken(e *drawgate.Taken) {
	var few [usual]*policySeries
	s := series(few[:])
	if n := len(e.Take.Buckets); n > usual {
		s = make(series, n)
	}
	for i := range e.Take.Buckets {
		s[i] = m.table.get(e.Take.Buckets[i].Plan.Name())
	}
	o := outcomeOf(e)
	m.deciding.all[o].observe(e.Took - e.Queued)
	if e.Queued > 0 {
		m.queued.Observe(e.Queued.Seconds())
	}
	d := decided(e)
	by := refusers(0)
	if o == refused {
		by = s.refused(e, d)
	}
	for i := range e.Take.Buckets {
		own := o
		if o == refused && !by.has(i) {
			own = refusedByOther
		}
		s[i].took(&e.Take.Buckets[i], e.Queued, own, d != nil && d.Fallback)
	}
	if d != nil {
		s.looked(d)
	}
	switch {
	case o == allowed && e.Take.Hold > 0 && !e.Decision.Replayed:
		m.holds.start(e.Take.ID, e.Take.Hold)
	case o == refused:
		m.reasons[m.reason(d)].Inc()
	case o == unavailable:
		m.reasons[backendError].Inc()
	}
}

// took counts a take for the policy of one of its buckets.
func (p *policySeries) took(b *drawgate.BucketCost, queued time.Duration, o outcome, fallback bool) {
	p.decisions[o].Inc()
	p.saw(b)
	if fallback {
		p.fallbacks[o].Inc()
	}
	if queued > 0 {
		p.waits.Inc()
		p.waited.Observe(queued.Seconds())
	}
}

// looked notes what a decision says is left of the tightest limit of each bucket.
func (s series) looked(d *drawgate.Decision) {
	if d.Reason == drawgate.Queued {
		return // it says nothing of limits
	}
	at, least, share := -1, int64(0), 0.0
	for r := range d.Limits() {
		f := r.Part()
		switch {
		case r.Bucket == at && f >= share:
			continue
		case r.Bucket != at && at >= 0:
			s[at].remaining.Store(least)
		}
		at, least, share = r.Bucket, r.Remaining, f
	}
	if at >= 0 {
		s[at].remaining.Store(least)
	}
}

// refusers are the positions of the buckets that refused a take.
type refusers uint64

func (r refusers) has(bucket int) bool { return r&(1<<bucket) != 0 }

// refused counts the keys and limits that refused a take, each, and returns whose they are. d is
// nil if it was refused without being asked for. That the store is away is no limit's doing, nor
// hits it a key; that a bucket is paused is no limit's doing.
func (s series) refused(e *drawgate.Taken, d *drawgate.Decision) (by refusers) {
	unavailable, paused := false, false
	if d != nil {
		unavailable, paused = d.Reason == drawgate.Unavailable, d.Reason == drawgate.Paused
		for r := range d.Limits() {
			if r.Refused() && !unavailable && !paused {
				s[r.Bucket].limits.get(r.Limit).exceeded.Inc()
			}
			if r.Refused() || d.Reason == drawgate.Queued {
				by |= 1 << r.Bucket
			}
		}
	}
	switch {
	case d != nil && (paused || by == 0):
		by = ^refusers(0) // a bucket is paused; of which, a decision does not say
	case by != 0:
	default:
		by = 1 << e.QueuedAt // others wait in front
	}
	for i := range e.Take.Buckets {
		if by.has(i) && !unavailable {
			s[i].hits.hit(&e.Take.Buckets[i].Key)
		}
	}
	return by
}

// called counts a store call. While the guard's breaker is open there are none: it answers by
// itself.
func (m *Metrics) called(e *drawgate.StoreCall) {
	if m.state.Load() == open {
		return
	}
	op := opOf(e.Op)
	m.calls.all[op].observe(e.Took)
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
	pausedBucket
	gone
	unsettled
	settlements
)

var settlementNames = [settlements]string{"settled", "cancelled", "renewed", "charged", "refunded", "paused", "gone", "error"}

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
	case s.Op == drawgate.OpPause:
		m.settled[pausedBucket].Inc()
		return
	case s.Op == drawgate.OpCancel:
		m.settled[cancelled].Inc()
	default:
		m.settled[settled].Inc()
	}
	m.holds.stop(s.ID)
}
