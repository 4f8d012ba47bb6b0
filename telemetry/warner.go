package telemetry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/outbox"
	"github.com/drawgate/drawgate/internal/sampler"
	"github.com/drawgate/drawgate/internal/sleep"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
)

// Defaults and bounds of warnings.
const (
	defaultEvery   = time.Minute
	defaultBackend = 5 * time.Minute
	pending        = 256 // warnings that wait for the sinks
)

// perEvery is how often each milestone of one limit is reported at most per interval: ten in all,
// most of them for the highest milestones.
var perEvery = [len(milestones)]int64{1, 2, 3, 4}

// WarnerOptions holds what a [Warner] can do without. The zero value is ready to use.
type WarnerOptions struct {
	// Hasher hides keys; nil means NewHasher(nil). Give [Metrics] the same one.
	Hasher *Hasher
	// Every is how often the refusals of one limit are reported: the first one at once, later ones
	// at most once per interval, with the number of those in between. Divergences of shadows are
	// also reported once per interval. 0 means a minute.
	Every time.Duration
	// BackendEvery is how often errors and outages of the store are reported, for each kind of
	// fault. 0 means 5 minutes.
	BackendEvery time.Duration
	// Metrics counts milestones, and which warnings were passed on; it may be nil.
	Metrics *Metrics
	// Store is asked, in the background, what a limit of a day or longer has used without what open
	// reservations hold, when that is all that a milestone depends on. nil: what they hold counts.
	Store store.Store
}

// Warner watches decisions for events that operators should know about, and passes them to its
// sinks: [Log], a [Webhook]. It is safe for concurrent use.
//
// Everything is bounded. Refusals, errors and milestones are sampled and counted. Which milestones
// were reached is remembered for some 32,000 limits of buckets that are at least half used. No
// decision waits for a sink: sinks run in a goroutine of the Warner, and warnings that they are too
// slow for are dropped and counted.
type Warner struct {
	opts  WarnerOptions
	sinks []func(*Warning)
	table *table[policyWatch]
	marks *marks

	looks     *looks                  // nil: there is no store
	circuits  *table[circuitWatch]    // by upstream, model and caller
	fallback  sampler.Sampler         // announcements of fallbacks
	backend   [faults]sampler.Sampler // errors and outages of the store, by kind of fault
	announced atomic.Bool             // an outage was reported that has not ended
	guarded   atomic.Bool             // the guard reports errors of the store

	box    *outbox.Outbox[func()] // calls of the sinks
	end    context.CancelFunc     // of sumUp
	closed sync.Once
}

// policyWatch is what is known of one policy.
type policyWatch struct {
	name   string
	limits row[limitWatch]

	wouldRefuse, wouldAllow atomic.Int64 // since they were reported
}

// limitWatch is what is known of one limit, of all buckets together.
type limitWatch struct {
	policy, limit, period string

	refusals   sampler.Sampler
	milestones [len(milestones)]sampler.Sampler
}

// NewWarner returns a Warner that passes warnings to each of sinks in turn. opts may be nil. It
// must be closed.
func NewWarner(opts *WarnerOptions, sinks ...func(*Warning)) *Warner {
	if opts == nil {
		opts = &WarnerOptions{}
	}
	w := &Warner{
		opts: *opts, sinks: sinks, table: newTable(maxPolicies, newPolicyWatch), marks: newMarks(),
		circuits: newTable(maxCircuits, newCircuitWatch),
		box: outbox.New(pending, func(_ context.Context, call func()) error {
			call()
			return nil
		}),
	}
	if w.opts.Hasher == nil {
		w.opts.Hasher = NewHasher(nil)
	}
	if w.opts.Every <= 0 {
		w.opts.Every = defaultEvery
	}
	if w.opts.BackendEvery <= 0 {
		w.opts.BackendEvery = defaultBackend
	}
	ctx, end := context.WithCancel(context.Background())
	w.end = end
	go w.sumUp(ctx)
	if opts.Store != nil {
		w.looks = newLooks(opts.Store, w.seen)
		go w.looks.run(ctx)
	}
	return w
}

func newPolicyWatch(policy string) *policyWatch {
	p := &policyWatch{name: policy}
	p.limits.create = func(limit, period string) *limitWatch {
		return &limitWatch{policy: policy, limit: limit, period: period}
	}
	return p
}

// Observer returns an observer that reports decisions to w: for [drawgate.Options.Observer].
func (w *Warner) Observer() *drawgate.Observer {
	o := &drawgate.Observer{Taken: w.taken, Called: w.called}
	if w.looks != nil {
		o.Settled = w.looks.settled
	}
	return o
}

// Flush waits until the warnings so far were passed to the sinks, or ctx ends. It does not wait for
// what they queue: see [Webhook.Flush]. The error is ctx's.
func (w *Warner) Flush(ctx context.Context) error {
	if w.looks != nil {
		w.looks.round(ctx)
	}
	if _, err := w.box.Flush(ctx); err != nil {
		return fmt.Errorf("telemetry: not all warnings were passed on yet: %w", err)
	}
	return nil
}

// Close passes the remaining warnings to the sinks, and ends. It waits for the sinks, but not for
// what they queue: see [Webhook.Close].
func (w *Warner) Close() error {
	w.closed.Do(func() {
		w.end()
		if w.looks != nil {
			ctx, cancel := context.WithTimeout(context.Background(), lookTime)
			w.looks.round(ctx)
			cancel()
		}
		w.box.Close(context.Background())
		w.sum(time.Now(), true)
	})
	return nil
}

// sumUp reports from time to time what was held back. If the sinks are too slow for that it is
// reported the next time.
func (w *Warner) sumUp(ctx context.Context) {
	for sleep.For(ctx, w.opts.Every) {
		_, _ = w.box.Add(func() { w.sum(time.Now(), false) })
	}
}

func (w *Warner) tell(e *Warning) {
	for _, sink := range w.sinks {
		sink(e)
	}
	w.opts.Metrics.warned(e.Kind, true)
}

// warn hands a warning to the goroutine of the sinks.
func (w *Warner) warn(e *Warning) {
	if _, err := w.box.Add(func() { w.tell(e) }); err != nil {
		w.opts.Metrics.warned(e.Kind, false)
	}
}

// Diverged counts a shadow that would have decided differently, for the next report: for
// engine.Options.
func (w *Warner) Diverged(d *engine.Divergence) {
	p := w.table.get(d.Policy)
	switch d.Way {
	case engine.WouldRefuse:
		p.wouldRefuse.Add(1)
	case engine.WouldAllow:
		p.wouldAllow.Add(1)
	}
}

// Incident passes an incident on to the sinks, as [Incident]: for the option Report of package
// incident. It never waits.
func (w *Warner) Incident(i *api.Incident) { w.warn(&Warning{Kind: Incident, At: i.At, Incident: i}) }

// faults is how many kinds of faults there are.
const faults = int(store.FaultPermanent) + 1

// Guard returns an observer of the store's guard that reports to w: for guard.Options, whose
// WarnEvery should then be negative, because w warns. From then on the guard's errors of the store
// are reported. Call it before anything is decided.
//
// One outage is one warning: that takes are decided here or, if none was decided, that the store
// failed. Further outages within BackendEvery are only counted.
func (w *Warner) Guard() *guard.Observer {
	w.guarded.Store(true)
	return &guard.Observer{
		BackendError: func(e *guard.BackendError) {
			if e.Op != "take" || e.Fault == store.FaultBucket { // FallbackActivated reports other takes
				w.failed(e.Err)
			}
		},
		FallbackActivated: func(f *guard.FallbackActivated) {
			if held, ok := w.mayAnnounce(f.Err, f.At); ok {
				w.announced.Store(true)
				w.warn(&Warning{Kind: FallbackActivated, At: f.At, Suppressed: held, Err: f.Err, Fault: faultOf(f.Err)})
			}
		},
		Lost: func(l *guard.Lost) { w.warn(&Warning{Kind: StoreLost, At: l.At}) },
		Closed: func(c *guard.Closed) {
			if w.announced.Swap(false) {
				w.warn(&Warning{Kind: FallbackEnded, At: c.At, Outage: c.Outage, Decided: int64(c.Decided)})
			}
		},
	}
}

// mayWarn reports whether an error of the store may be reported, and how many were held back before
// it.
func (w *Warner) mayWarn(err error, at time.Time) (held int64, ok bool) {
	return w.storeSampler(err).Pass(at, w.opts.BackendEvery, 1)
}

func (w *Warner) storeSampler(err error) *sampler.Sampler {
	fault := store.FaultTransient
	if se, ok := errors.AsType[*drawgate.StoreError](err); ok {
		fault = min(se.Fault, store.FaultPermanent)
	}
	return &w.backend[fault]
}

// mayAnnounce is mayWarn for the beginning of a fallback. It is reported once per BackendEvery even
// if another error of the store was reported shortly before, because an alarm may depend on it.
func (w *Warner) mayAnnounce(err error, at time.Time) (held int64, ok bool) {
	held, ok = w.mayWarn(err, at)
	if _, first := w.fallback.Pass(at, w.opts.BackendEvery, 1); first && !ok {
		w.storeSampler(err).Reported()
		return 0, true
	}
	return held, ok
}

func faultOf(err error) string {
	if err == nil {
		return ""
	}
	return classNames[classOf(err)]
}

// called watches for errors of the store.
func (w *Warner) called(e *drawgate.StoreCall) {
	if e.Err != nil && !w.guarded.Load() {
		w.failed(e.Err)
	}
}

// failed reports an error of the store: the first one at once, later ones once per BackendEvery.
func (w *Warner) failed(err error) {
	if !classOf(err).isBackend() {
		return
	}
	now := time.Now()
	if held, ok := w.mayWarn(err, now); ok {
		w.warn(&Warning{Kind: BackendError, At: now, Suppressed: held, Err: err, Fault: faultOf(err)})
	}
}
