package guard

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/internal/ledger"
	"github.com/drawgate/drawgate/store"
)

// Observer receives a guard's events. Each func may be nil. Callers and the guard's goroutine call
// the funcs, possibly several at once: they must be quick and must not block.
type Observer struct {
	BackendError      func(*BackendError)      // an attempt failed
	FallbackActivated func(*FallbackActivated) // the guard starts to decide takes
	Opened            func(*Opened)            // callers are no longer sent to the store
	Probed            func(*Probe)             // the guard tried the store
	Closed            func(*Closed)            // callers are sent to the store again
	// the store lost its data. The guard itself does not call it: whoever opens the store passes it
	// on
	Lost    func(*Lost)
	Charged func(*Charged) // the store has been charged with what the guard admitted
	// the store has again what it had lost of this process, or some of it: see [Options.NoRecovery]
	Recovered func(*Recovered)
}

// BackendError is a failed attempt. rate_limit_backend_errors_total counts it.
type BackendError struct {
	Op    string // "take", "settle", "cancel", "renew", "charge", "peek", "ping", "reset", "list" or "read"
	Err   error  // a *store.Error
	Fault store.Fault
}

// FallbackActivated is the first take that the guard decides since the store last answered. Many
// more may follow; each decision says so itself.
type FallbackActivated struct {
	At    time.Time
	Err   error
	Fault store.Fault
}

// Opened says that an outage starts.
type Opened struct {
	At    time.Time
	Err   error
	Fault store.Fault
}

// Probe is one attempt of the guard to reach the store in the background.
type Probe struct {
	Err  error // nil: it can be written, and decides
	Took time.Duration
}

// Closed says that the store is back.
type Closed struct {
	At      time.Time
	Outage  time.Duration // length of the outage
	Decided uint64        // takes that the guard decided since the store's first failure
	Pending int           // buckets with something pending for the store
}

// Lost says that the store lost its data: what was used before may be granted again.
type Lost struct {
	At      time.Time
	Refused bool // the store is unavailable until it is initialized
}

// Charged lists units that the guard admitted and that have now been charged to the store.
type Charged struct {
	Buckets []store.BucketCost // must not be changed
}

// Recovered says what the store has again that it had lost.
type Recovered struct {
	At           time.Time
	Buckets      []store.BucketCost // units that were charged again; must not be changed
	Reservations int                // reservations that were opened, renewed, settled or charged again
	// recoveries that were not carried out, because something else had happened to the bucket. What
	// is still lost then is recovered after that
	NotDone int
}

// Units returns the number of units that were charged again: of each bucket those of the limit with
// most.
func (r *Recovered) Units() (n int64) {
	for i := range r.Buckets {
		n += slices.Max(r.Buckets[i].N[:])
	}
	return n
}

const defaultWarnEvery = 5 * time.Minute

// reporter writes to the observer and the log.
type reporter struct {
	to      *Observer
	log     *slog.Logger
	every   time.Duration
	decided atomic.Uint64 // takes that the guard decided, in total
	episode atomic.Uint64 // the same, since the store last answered

	active atomic.Bool // the guard is deciding takes

	mu          sync.Mutex
	outageStart time.Time            // guarded by mu: zero if the store is available
	said        map[string]time.Time // guarded by mu: last warning, by cause
	loss        loss                 // guarded by mu: what was recovered since the last line about it
}

// loss is what a line of the log says of one loss.
type loss struct {
	buckets, reservations int
	units                 int64
}

func newReporter(o *Options) *reporter {
	r := &reporter{to: o.Observer, log: o.Logger, every: o.WarnEvery, said: make(map[string]time.Time)}
	if r.to == nil {
		r.to = &Observer{}
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	switch {
	case r.every == 0:
		r.every = defaultWarnEvery
	case r.every > -time.Second && r.every < 0:
		r.every = -defaultWarnEvery
	}
	return r
}

// started logs once how the guard is configured for an outage.
func (r *reporter) started(o *Options) {
	const text = "guard: during an outage, limits that name no fallback use the default"
	switch {
	case o.CountInstances:
		after := "40 s"
		if o.CountInCalls {
			after = "two minutes"
		}
		r.log.Info(text+"; instances are counted in the store, and this one has a share after "+after+" of contact",
			"fallback", store.FallbackShare.String(), "instances", "auto", "at_least", max(1, o.Instances))
	case o.Instances > 0:
		r.log.Info(text, "fallback", store.FallbackShare.String(), "instances", o.Instances)
	default:
		r.log.Info(text+": the number of instances is unknown", "fallback", store.FallbackClosed.String())
	}
}

// hasty logs that a limiter gives up before the guard has asked the store and decided.
func (r *reporter) hasty(set, needs time.Duration) {
	r.log.Warn("guard: a limiter is set to less time than the guard waits for the store: leave StoreTimeout out, or shorten Timeout as well", "timeout", set, "needs", needs)
}

// uncounted logs that this process has no slot among the counted instances.
func (r *reporter) uncounted(err error) {
	r.log.Error("guard: this instance is not counted, and has no share while the store is unavailable: set instances to the number of instances", "err", err)
}

// mayWarn reports whether enough time has passed to warn of this cause again. It is always false if
// somebody else warns. There are only a few causes, because callers cannot choose them.
func (r *reporter) mayWarn(cause string) bool { return r.every > 0 && r.mayWarnEvery(cause, r.every) }

func (r *reporter) mayWarnEvery(cause string, every time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if last, ok := r.said[cause]; ok && now.Sub(last) < every {
		return false
	}
	r.said[cause] = now
	return true
}

// failed reports a failed attempt. It does not warn of a failed take, unless the failure concerns
// one bucket: [reporter.decidedHere] does that, once per outage.
func (r *reporter) failed(e *BackendError) {
	if r.to.BackendError != nil {
		r.to.BackendError(e)
	}
	if e.Fault == store.FaultBucket {
		if r.mayWarn(e.Fault.String()) {
			r.log.Error("guard: the store cannot decide about one bucket; the guard decides", "op", e.Op, "fault",
				e.Fault.String(), "err", e.Err)
		}
	} else if e.Op != "take" {
		r.warn(e.Op, e.Err, e.Fault)
	}
}

// warn logs that the store is unavailable, and why.
func (r *reporter) warn(op string, err error, fault store.Fault) {
	mayWarn := r.mayWarn(fault.String())
	if op == "take" { // warn even if another operation just did: an alarm may wait for this event
		mayWarn = r.mayWarn(FallbackEvent) || mayWarn
	}
	if !mayWarn {
		return
	}
	if fault == store.FaultTransient {
		r.log.Warn("guard: the store is unavailable; the guard decides takes by each limit's fallback", "event",
			FallbackEvent, "op", op, "fault", fault.String(), "err", err)
		return
	}
	r.log.Error("guard: the store needs repair; the guard decides takes until then", "event", FallbackEvent, "op", op,
		"fault", fault.String(), "err", err)
}

// FallbackEvent is the name by which logs and metrics report that a process decides locally.
const FallbackEvent = "RateLimiterFallbackActivated"

// decidedHere counts takes that the guard decided. n leaves out those of shadows, which nobody acts
// on.
func (r *reporter) decidedHere(cause *store.Error, n int) {
	r.decided.Add(uint64(n))
	if cause.Fault == store.FaultBucket {
		return // the store as a whole works
	}
	r.episode.Add(uint64(n))
	if !r.active.CompareAndSwap(false, true) {
		return
	}
	r.warn(cause.Op, cause.Err, cause.Fault)
	if r.to.FallbackActivated != nil {
		r.to.FallbackActivated(&FallbackActivated{At: time.Now(), Err: cause, Fault: cause.Fault})
	}
}

// calm ends a series of local decisions that did not open the breaker.
func (r *reporter) calm(closed bool) {
	if closed {
		r.active.Store(false)
		r.episode.Store(0)
	}
}

func (r *reporter) opened(se *store.Error) {
	now := time.Now()
	r.mu.Lock()
	r.outageStart = now
	r.mu.Unlock()
	if r.to.Opened != nil {
		r.to.Opened(&Opened{At: now, Err: se, Fault: se.Fault})
	}
}

func (r *reporter) since() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outageStart
}

func (r *reporter) probed(p *Probe) {
	if r.to.Probed != nil {
		r.to.Probed(p)
	}
}

func (r *reporter) closed(pending int) {
	now := time.Now()
	r.mu.Lock()
	c := &Closed{At: now, Outage: now.Sub(r.outageStart), Decided: r.episode.Swap(0), Pending: pending}
	r.outageStart = time.Time{}
	r.mu.Unlock()
	r.active.Store(false)
	r.log.Info("guard: the store is available again", "outage", c.Outage, "decided", c.Decided, "pending", c.Pending)
	if r.to.Closed != nil {
		r.to.Closed(c)
	}
}

func (r *reporter) charged(buckets []store.BucketCost) {
	if r.to.Charged != nil {
		r.to.Charged(&Charged{Buckets: buckets})
	}
}

// RecoveredEvent is the name by which logs report that a store lost something, and has it again.
const RecoveredEvent = "store_recovered"

// recovered reports what was recovered. The line in the log is for one loss: it waits until nothing
// more has to be.
func (r *reporter) recovered(rep *ledger.Report, more bool) {
	e := &Recovered{At: time.Now(), Buckets: rep.Recovered, Reservations: rep.Reservations, NotDone: rep.Unmet}
	if r.to.Recovered != nil && (len(e.Buckets) > 0 || e.Reservations > 0 || e.NotDone > 0) {
		r.to.Recovered(e)
	}
	r.mu.Lock()
	r.loss.buckets += len(e.Buckets)
	r.loss.units += e.Units()
	r.loss.reservations += e.Reservations
	all := r.loss
	r.mu.Unlock()
	if more || all == (loss{}) || !r.mayWarnEvery(RecoveredEvent, r.every.Abs()) {
		return
	}
	r.mu.Lock()
	r.loss = loss{}
	r.mu.Unlock()
	r.log.Warn("guard: the store had lost what this process was admitted, and has it again", "event", RecoveredEvent,
		"buckets", all.buckets, "units", all.units, "reservations", all.reservations)
}

// refused logs something that the store will never accept.
func (r *reporter) refused(err error) {
	if r.mayWarn("refused") {
		r.log.Error("guard: the store does not accept what was admitted during the outage", "err", err)
	}
}

// lost logs what was still pending when the guard was closed.
func (r *reporter) lost(buckets int) {
	r.log.Error("guard: closed during an outage: what was admitted without the store is not charged", "buckets",
		buckets)
}
