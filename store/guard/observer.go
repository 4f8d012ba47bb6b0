package guard

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
)

// Observer is told what a guard does. Each func may be nil, and is called by callers and in the
// background, perhaps by several goroutines at once: it must be quick and must not block.
type Observer struct {
	BackendError      func(*BackendError)      // an attempt failed
	FallbackActivated func(*FallbackActivated) // takes begin to be decided here
	Opened            func(*Opened)            // callers are not sent to the store any more
	Probed            func(*Probe)             // the store was tried
	Closed            func(*Closed)            // callers are sent to the store again
	Charged           func(*Charged)           // the store was told what was admitted here
}

// BackendError is an attempt that failed. It is one of rate_limit_backend_errors_total.
type BackendError struct {
	Op    string // "take", "settle", "cancel", "renew", "charge", "peek", "ping", "reset", "list" or "read"
	Err   error  // a *drawgate.StoreError
	Fault drawgate.Fault
}

// FallbackActivated tells of the first take that is decided here since the store was asked last
// with success. There may be many more; each decision says it of itself.
type FallbackActivated struct {
	At    time.Time
	Err   error
	Fault drawgate.Fault
}

// Opened tells that the store is away.
type Opened struct {
	At    time.Time
	Err   error
	Fault drawgate.Fault
}

// Probe is one try of the store in the background.
type Probe struct {
	Err  error // nil: it can be written, and decides
	Took time.Duration
}

// Closed tells that the store is back.
type Closed struct {
	At      time.Time
	Outage  time.Duration // since it was found to be away
	Decided uint64        // takes that were decided here since the first that it did not answer
	Pending int           // buckets of which it has yet to be told something
}

// Charged tells of units that were admitted here, and of which the store knows now.
type Charged struct {
	Buckets []drawgate.BucketCost // must not be changed
}

const defaultWarnEvery = 5 * time.Minute

// reporter tells the observer and the log.
type reporter struct {
	to      *Observer
	log     *slog.Logger
	every   time.Duration
	decided atomic.Uint64 // takes that were decided here, in all
	episode atomic.Uint64 // and since the store answered last

	active atomic.Bool // takes are being decided here

	mu          sync.Mutex
	outageStart time.Time            // guarded by mu: since when the store is; zero if it is not
	said        map[string]time.Time // guarded by mu: warnings, by cause
}

func newReporter(o *Options) *reporter {
	r := &reporter{to: o.Observer, log: o.Logger, every: o.WarnEvery, said: make(map[string]time.Time)}
	if r.to == nil {
		r.to = &Observer{}
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if r.every == 0 {
		r.every = defaultWarnEvery
	}
	return r
}

// started says once what happens while the store is unavailable.
func (r *reporter) started(o *Options) {
	const text = "guard: while the store is unavailable, limits that name no fallback admit by the default"
	switch {
	case o.CountInstances:
		r.log.Info(text+"; instances are counted in the store, and this one has a share after 40 s of contact",
			"fallback", drawgate.FallbackShare.String(), "instances", "auto", "at_least", max(1, o.Instances))
	case o.Instances > 0:
		r.log.Info(text, "fallback", drawgate.FallbackShare.String(), "instances", o.Instances)
	default:
		r.log.Info(text+": nobody knows how many instances there are", "fallback", drawgate.FallbackClosed.String())
	}
}

// uncounted tells that this process has no slot among those that are counted.
func (r *reporter) uncounted(err error) {
	r.log.Error("guard: this instance is not counted, and has no share while the store is unavailable: set instances to their number", "err", err)
}

// mayWarn reports whether a warning may be given again; never, if somebody else warns. Causes are few:
// nothing that a caller chooses is in them.
func (r *reporter) mayWarn(cause string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if last, ok := r.said[cause]; r.every < 0 || ok && now.Sub(last) < r.every {
		return false
	}
	r.said[cause] = now
	return true
}

// failed tells of an attempt that failed.
//
// It does not warn of a take, unless it is about one bucket: [reporter.fell] does, which is called
// for each that failed. So one outage is one warning.
func (r *reporter) failed(e *BackendError) {
	if r.to.BackendError != nil {
		r.to.BackendError(e)
	}
	if e.Fault == drawgate.FaultBucket {
		if r.mayWarn(e.Fault.String()) {
			r.log.Error("guard: the store cannot decide about one bucket: it is decided here", "op", e.Op, "fault", e.Fault.String(), "err", e.Err)
		}
	} else if e.Op != "take" {
		r.warn(e.Op, e.Err, e.Fault)
	}
}

// warn says that the store is unavailable, and why.
func (r *reporter) warn(op string, err error, fault drawgate.Fault) {
	mayWarn := r.mayWarn(fault.String())
	if op == "take" { // told even if a look at the store was told of before: an alarm may wait for the event
		mayWarn = r.mayWarn(FallbackEvent) || mayWarn
	}
	if !mayWarn {
		return
	}
	if fault == drawgate.FaultTransient {
		r.log.Warn("guard: the store is unavailable: takes are decided here", "event", FallbackEvent, "op", op, "fault", fault.String(), "err", err)
		return
	}
	r.log.Error("guard: the store must be put right: takes are decided here until then", "event", FallbackEvent, "op", op, "fault", fault.String(), "err", err)
}

// FallbackEvent is the name under which logs and metrics tell that a process decides by itself.
const FallbackEvent = "RateLimiterFallbackActivated"

// fell counts takes that were decided here. n does not count shadows, which are evaluated beside
// what is enforced.
func (r *reporter) fell(cause *drawgate.StoreError, n int) {
	r.decided.Add(uint64(n))
	if cause.Fault == drawgate.FaultBucket {
		return // the store answers
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

// calm ends an episode of fallback that did not open the breaker.
func (r *reporter) calm(closed bool) {
	if closed {
		r.active.Store(false)
		r.episode.Store(0)
	}
}

func (r *reporter) opened(se *drawgate.StoreError) {
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
	r.log.Info("guard: the store is back", "away", c.Outage, "decided", c.Decided, "owed", c.Pending)
	if r.to.Closed != nil {
		r.to.Closed(c)
	}
}

func (r *reporter) charged(buckets []drawgate.BucketCost) {
	if r.to.Charged != nil {
		r.to.Charged(&Charged{Buckets: buckets})
	}
}

// refused tells of something that the store will never accept.
func (r *reporter) refused(err error) {
	if r.mayWarn("refused") {
		r.log.Error("guard: the store does not accept what was admitted while it was away", "err", err)
	}
}

// lost tells of what the store was not told before the guard was closed.
func (r *reporter) lost(buckets int) {
	r.log.Error("guard: closed while the store is away: what was admitted meanwhile is not charged", "buckets", buckets)
}
