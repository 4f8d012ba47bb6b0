package telemetry

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/failure"
	"github.com/drawgate/drawgate/store"
)

// ops are the operations of a store.
var ops = [...]string{
	"take", "settle", "cancel", "renew", "charge", "refund", "pause", "unpause", "peek", "reset", "ping",
	"list", "read", other,
}

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
	transient     class = iota // as store.FaultTransient
	configuration              // as store.FaultConfiguration
	bucket                     // as store.FaultBucket
	permanent                  // as store.FaultPermanent
	timeout                    // it did not answer in time
	caller                     // the caller gave up, or the process is stopping
	misused                    // the request was not valid
	classes
)

var classNames = [classes]string{"transient", "configuration", "bucket", "permanent", "timeout", "caller", "invalid"}

// classOf classifies the errors of store calls.
func classOf(err error) class {
	switch kind := failure.Of(err); {
	case kind == failure.Cancelled, kind == failure.Closed:
		return caller
	case kind.Mistake():
		return misused
	case errors.Is(err, context.DeadlineExceeded):
		return timeout
	}
	if e, ok := errors.AsType[*drawgate.StoreError](err); ok && e.Fault <= store.FaultPermanent {
		return class(e.Fault)
	}
	return transient
}

// isBackend reports whether an error of that class is the store's.
func (c class) isBackend() bool { return c != caller && c != misused }

// series are the series of the policies of a take's buckets; nil of one that this module made for
// itself.
type series []*policySeries

// usual is how many buckets most takes have at most. For so many, nothing is allocated.
const usual = 8

// taken counts a take. It is called for every decision.
func (m *Metrics) taken(e *drawgate.Taken) {
	var few [usual]*policySeries
	s := series(few[:])
	if n := len(e.Take.Buckets); n > usual {
		s = make(series, n)
	}
	for i := range e.Take.Buckets {
		if name := e.Take.Buckets[i].Plan.Name(); !strings.HasPrefix(name, store.OwnPolicies) {
			s[i] = m.table.get(name)
		}
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
		if s[i] == nil {
			continue
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
func (p *policySeries) took(b *store.BucketCost, queued time.Duration, o outcome, fallback bool) {
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

// looked records what is left, by a decision, of the tightest limit of each bucket.
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

// refused counts each key and limit that refused a take, and returns the positions of their
// buckets. d is nil if no store was asked. A refusal because the store is unavailable counts for no
// limit and no key. A refusal by a pause counts for no limit.
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
		by = ^refusers(0) // a bucket is paused; the decision does not say which
	case by != 0:
	default:
		by = 1 << e.QueuedAt // others are ahead in the queue
	}
	for i := range e.Take.Buckets {
		if by.has(i) && !unavailable && s[i] != nil {
			s[i].hits.hit(&e.Take.Buckets[i].Key)
		}
	}
	return by
}

// called counts a store call. While the guard's breaker is open there are none: the guard answers.
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

// settlement is what a call did to a reservation or a bucket, for the metrics.
type settlement uint8

const (
	settled settlement = iota
	cancelled
	renewed
	charged
	refunded
	pausedBucket
	unpausedBucket
	gone
	unsettled
	settlements
)

var settlementNames = [settlements]string{
	"settled", "cancelled", "renewed", "charged", "refunded", "paused",
	"unpaused", "gone", "error",
}

// ended counts how a reservation ended.
func (m *Metrics) ended(e *drawgate.Settled) {
	s := e.Settlement
	switch {
	case e.Err != nil:
		m.settled[unsettled].Inc()
		return
	case e.Outcome.Gone:
		m.settled[gone].Inc()
	case s.Op == store.OpRenew:
		m.settled[renewed].Inc()
		m.holds.start(s.ID, s.Hold)
		return
	case s.Op == store.OpCharge:
		m.settled[charged].Inc()
		return
	case s.Op == store.OpRefund:
		m.settled[refunded].Inc()
		return
	case s.Op == store.OpPause:
		m.settled[pausedBucket].Inc()
		return
	case s.Op == store.OpUnpause:
		m.settled[unpausedBucket].Inc()
		return
	case s.Op == store.OpCancel:
		m.settled[cancelled].Inc()
	default:
		m.settled[settled].Inc()
	}
	m.holds.stop(s.ID)
}
