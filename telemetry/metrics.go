package telemetry

import (
	"fmt"
	"hash/maphash"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/outbox"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
)

// Options holds what [Metrics] can do without. The zero value is ready to use.
type Options struct {
	// Hasher shows keys in the label "identifier"; nil means NewHasher(nil). Give a [Warner] the
	// same one.
	Hasher *Hasher
	// RawIdentifiers shows keys as they are. They may be personal data or secrets, such as
	// addresses and API keys.
	RawIdentifiers bool
	// Identifiers is how many keys of each policy rate_limit_hits_total tells apart: 0 means 20,
	// negative none, at most 1000. All others are "other".
	Identifiers int
	// Local says that buckets live in this process alone, so that a refusal counts as
	// local_exhausted, not as distributed_exhausted.
	Local bool
	// Store is asked about the buckets to watch when metrics are read; nil: their usage is not
	// shown.
	Store drawgate.Store
	// Watch are buckets of policies with many keys, at most MaxWatched. The one bucket of a policy
	// with a single key is watched anyway.
	Watch []Watched
	// Plan returns the policy that a key is counted under at present, with its overrides, or nil if
	// there is none. If Plan itself is nil, the policy that was last seen is used.
	Plan func(drawgate.Key) *store.Plan
	// Lines is [drawgate.Limiter.Lines], or an engine's; nil: it is not shown who waits.
	Lines func() []drawgate.Line
	// Guard is the State of the store's guard; nil: what the guard has recorded is not shown.
	Guard func() guard.State
	// StoreTimeout is how long Store has for a take that does not wait; 0: not shown.
	StoreTimeout time.Duration
	// ScrapeTimeout bounds the reading of Store: 0 means one second.
	ScrapeTimeout time.Duration
	// Version and Revision are of the program, for drawgate_build_info.
	Version, Revision string
}

// Metrics counts for Prometheus. Its methods are safe for concurrent use and never wait. They
// allocate only for policies and keys that are new.
//
// docs/metrics.md says what each metric means, and how its labels are bounded.
type Metrics struct {
	opts  Options
	seed  maphash.Seed // hashes keys, where they are counted separately
	vecs  vectors
	table *table[policySeries]
	holds *holds

	toUpstreams *calls
	upstreams   atomic.Pointer[func() []outbound.State] // nil: not shown

	deciding *durationsBy // by outcome; all together are rate_limit_check_duration_seconds
	queued   prometheus.Histogram
	reasons  [reasons]prometheus.Counter
	backend  prometheus.Counter
	calls    *durationsBy // by op
	failures [len(ops)][classes]prometheus.Counter
	settled  [settlements]prometheus.Counter
	loads    [2]prometheus.Counter // failed, done
	loaded   prometheus.Gauge      // when, last
	lastLoad prometheus.Gauge      // 1: it went well
	guarded  atomic.Bool           // the guard reports errors of the store
	state    atomic.Uint32         // of the guard's breaker
	charges  prometheus.Counter
	losses   prometheus.Counter
	unmet    prometheus.Counter

	recoveredUnits        prometheus.Counter
	recoveredReservations prometheus.Counter

	batches     prometheus.Histogram
	batchTime   prometheus.Histogram
	activations prometheus.Counter
	restart     prometheus.Gauge // 1: a change waits for it
	undecided   [len(undecidedCodes)]prometheus.Counter
	unanswered  [len(unansweredReasons)]prometheus.Counter
	probes      [2]prometheus.Counter // failed, done
	breakers    [states]prometheus.Gauge
	transitions [states]prometheus.Counter
	reported    [len(kinds)]prometheus.Counter
	lost        [len(kinds)]prometheus.Counter

	posts, published map[outbox.Result]prometheus.Counter
}

// NewMetrics makes the metrics and registers them. opts may be nil. The error comes from reg: two
// of them cannot share a registry.
func NewMetrics(reg prometheus.Registerer, opts *Options) (*Metrics, error) {
	if opts == nil {
		opts = &Options{}
	}
	m := &Metrics{
		opts: *opts, seed: maphash.MakeSeed(), holds: newHolds(), toUpstreams: newCalls(),
		posts: map[outbox.Result]prometheus.Counter{}, published: map[outbox.Result]prometheus.Counter{},
	}
	if m.opts.Hasher == nil {
		m.opts.Hasher = NewHasher(nil)
	}
	switch {
	case m.opts.Identifiers == 0:
		m.opts.Identifiers = defaultIdentifiers
	case m.opts.Identifiers < 0:
		m.opts.Identifiers = 0
	}
	m.opts.Identifiers = min(m.opts.Identifiers, maxIdentifiers)
	if m.opts.ScrapeTimeout == 0 {
		m.opts.ScrapeTimeout = time.Second
	}
	if n := len(m.opts.Watch); n > MaxWatched {
		return nil, fmt.Errorf("telemetry: %d buckets to watch are more than %d", n, MaxWatched)
	}
	m.table = newTable(maxPolicies, m.newPolicy)
	for _, c := range m.collectors() {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("telemetry: %w", err)
		}
	}
	m.resolve()
	return m, nil
}

// Observer returns an observer that reports decisions to m: for [drawgate.Options.Observer].
func (m *Metrics) Observer() *drawgate.Observer {
	return &drawgate.Observer{Taken: m.taken, Settled: m.ended, Called: m.called}
}

// Declare names the policies in force, those of an engine's configuration. Their series then start
// at zero before anything is decided, so that rates show the first event. Call it at the start and
// after each change of the configuration.
func (m *Metrics) Declare(policies ...engine.Policy) {
	for i := range policies {
		p := m.table.get(policies[i].Name)
		for j := range policies[i].Limits {
			p.limits.get(&policies[i].Limits[j])
		}
	}
}

// Bounds of reading metrics, so that a reader cannot keep the process busy.
const (
	maxScrapes    = 4
	scrapeTimeout = 10 * time.Second
)

// Handler serves the metrics of g, a [prometheus.Registry], for GET /metrics. At most four callers
// are served at once; others get 503. What cannot be collected is left out, and the rest is served.
func Handler(g prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout,
	})
}
