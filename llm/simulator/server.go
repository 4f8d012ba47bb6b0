package simulator

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Options holds the optional settings of a Server. The zero value is ready to use: it has no
// limits.
//
// Output, Thoughts, Delay, ChunkDelay and ChunkTokens are defaults. A prompt changes them with the
// words output, thoughts, delay, chunk and size of a line such as "simulate: output=200 size=5".
// More words: cache_read and cache_write are how many tokens of the input come from a cache and go
// to it; fault, after and stall are a [Fault] with its After and Delay.
type Options struct {
	// Quotas are the limits. A provider with quotas knows no other models than theirs; one without
	// knows all models, and refuses nothing.
	Quotas []Quota
	// Keys are the API keys that are known, and whose they are. If there are none, every key will
	// do, even none, and everybody is one organization.
	Keys []Key
	// Charging replaces [DefaultCharging] of some providers.
	Charging map[Provider]Charging
	// Windows is [Rolling] or [Aligned], and changes all limits that are one of both; "" changes
	// none.
	Windows Window
	// Zone changes the time zone of all days and months; "" leaves them.
	Zone string
	// Tokens counts the tokens of a text of the input; nil means [CountTokens]. It may be called
	// concurrently.
	Tokens func(model, text string) int
	// Faults hit calls by their Rate. Seed chooses which.
	Faults []Fault
	Seed   uint64
	// Travel is the longest time from the sending of a call until its arrival; 0 means none. Each
	// call takes another part of it, by Seed. One that is given up on its way never arrives.
	Travel time.Duration
	// MaxCalls is how many calls, and later entries of calls, the ledger keeps; 0 means
	// [DefaultMaxCalls]. The oldest are dropped, and counted.
	MaxCalls int
	// MaxBody is the longest body of a request, in bytes; 0 means 32 MiB.
	MaxBody int64

	// Output is how many words an answer has, if its request allows as many; 0 means 32.
	Output int64
	// Thoughts is how many tokens of thoughts precede them.
	Thoughts int64
	// Delay is how long the first word takes, and ChunkDelay each further chunk of a stream.
	Delay, ChunkDelay time.Duration
	// ChunkTokens is how many words a chunk of a stream has; 0 means 4.
	ChunkTokens int64

	// UsageField, InputField, OutputField and TotalField name, in answers of the generic API, the
	// object with the usage and the numbers in it; "" means usage, input_tokens, output_tokens and
	// total_tokens.
	UsageField, InputField, OutputField, TotalField string
}

// Key is an API key, and whose it is.
type Key struct {
	Secret       string `json:"key"`
	Name         string `json:"name"`                   // in the ledger; unique
	Organization string `json:"organization,omitempty"` // "" means the default one
	Project      string `json:"project,omitempty"`      // of that organization; "" means the default one
}

const (
	defaultOwner  = "default"
	defaultOutput = 32
	defaultSize   = 4
	defaultBody   = 32 << 20
)

// Server is the simulator. It is safe for concurrent use.
type Server struct {
	options Options
	quotas  []Quota // with their defaults
	limits  [][]limit
	keys    map[string]Key

	mu       sync.Mutex
	counters map[counterKey]*keptCounter // guarded by mu
	prune    int                         // guarded by mu: counters to have before the empty ones are removed
	ledger   *ledger                     // guarded by mu
	faults   *faults                     // guarded by mu
	travel   *rand.Rand                  // guarded by mu
	kept     map[string]*keptThing       // guarded by mu: what is stored, by its id
}

// limit is a limit of a quota, with its time zone.
type limit struct {
	Limit
	zone *time.Location
}

// counterKey says which limit a counter is of, and whose.
type counterKey struct {
	quota, limit                 int
	model, organization, project string
}

// New returns a simulator. opts may be nil.
func New(opts *Options) (*Server, error) {
	if opts == nil {
		opts = &Options{}
	}
	s := &Server{options: *opts, keys: map[string]Key{}, kept: map[string]*keptThing{}}
	s.options.defaults()
	if err := s.options.check(); err != nil {
		return nil, err
	}
	for _, k := range opts.Keys {
		if k.Secret == "" || k.Name == "" || slices.ContainsFunc(opts.Keys,
			func(o Key) bool { return o != k && (o.Name == k.Name || o.Secret == k.Secret) }) {
			return nil, fmt.Errorf("simulator: key %q: each key needs a secret and a name that no other key has",
				k.Name)
		}
		k.Organization, k.Project = orDefault(k.Organization), orDefault(k.Project)
		s.keys[k.Secret] = k
	}
	for _, q := range opts.Quotas {
		limits, err := s.add(q)
		if err != nil {
			return nil, err
		}
		s.limits = append(s.limits, limits)
	}
	s.Reset()
	return s, nil
}

func orDefault(name string) string {
	if name == "" {
		return defaultOwner
	}
	return name
}

func (o *Options) defaults() {
	if o.Tokens == nil {
		o.Tokens = func(_, text string) int { return CountTokens(text) }
	}
	charging := map[Provider]Charging{}
	for _, p := range providers {
		charging[p] = DefaultCharging(p)
	}
	maps.Copy(charging, o.Charging)
	o.Charging = charging
	setDefault(&o.MaxCalls, DefaultMaxCalls)
	setDefault(&o.MaxBody, defaultBody)
	setDefault(&o.Output, defaultOutput)
	setDefault(&o.ChunkTokens, defaultSize)
	setDefault(&o.UsageField, "usage")
	setDefault(&o.InputField, "input_tokens")
	setDefault(&o.OutputField, "output_tokens")
	setDefault(&o.TotalField, "total_tokens")
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (o *Options) check() error {
	switch {
	case o.Windows != "" && o.Windows != Rolling && o.Windows != Aligned:
		return fmt.Errorf("simulator: the windows %q are neither rolling nor aligned", o.Windows)
	case o.MaxCalls < 0 || o.MaxBody < 0:
		return fmt.Errorf("simulator: the ledger's size %d and the longest body %d must be positive", o.MaxCalls,
			o.MaxBody)
	case o.Output < 0 || o.Output > maxOutput || o.Thoughts < 0 || o.Thoughts > maxOutput || o.ChunkTokens < 0 ||
		o.ChunkTokens > maxSize:
		return fmt.Errorf("simulator: answers of %d words in chunks of %d after %d thoughts: at most %d, %d and %[4]d",
			o.Output, o.ChunkTokens, o.Thoughts, maxOutput, maxSize)
	case o.Delay < 0 || o.ChunkDelay < 0 || o.Travel < 0:
		return errors.New("simulator: delays must not be negative")
	}
	for p, c := range o.Charging {
		if !slices.Contains(providers, p) {
			return fmt.Errorf("simulator: charging: there is no provider %q (have: %s)", p, list(providers))
		}
		if c.Tokens != MaxOrEstimate && c.Tokens != Total || c.Output != Produced && c.Output != MaxTokens {
			return fmt.Errorf("simulator: charging of %s: tokens must be %s or %s, and output %s or %s", p,
				MaxOrEstimate, Total, Produced, MaxTokens)
		}
	}
	for _, f := range o.Faults {
		if err := f.check(); err != nil {
			return err
		}
	}
	return nil
}

// add checks a quota and keeps it with its defaults.
func (s *Server) add(q Quota) (limits []limit, err error) {
	if slices.ContainsFunc(s.quotas, func(o Quota) bool { return o.Provider == q.Provider && o.Name == q.Name }) {
		return nil, fmt.Errorf("simulator: two quotas of %s are called %s", q.Provider, q.Name)
	}
	q.Limits = slices.Clone(q.Limits)
	for i := range q.Limits {
		l := &q.Limits[i]
		if s.options.Windows != "" && (l.Window == Rolling || l.Window == Aligned) {
			l.Window = s.options.Windows
		}
		if s.options.Zone != "" && (l.Window == Day || l.Window == Month) {
			l.Zone = s.options.Zone
		}
	}
	if err := q.check(); err != nil {
		return nil, err
	}
	for i := range q.Limits {
		l, zone, err := q.Limits[i].check()
		if err != nil {
			return nil, err
		}
		q.Limits[i] = l
		limits = append(limits, limit{l, zone})
	}
	s.quotas = append(s.quotas, q)
	return limits, nil
}

// Reset forgets all calls, what the limits have counted, and the faults that wait for calls. The
// faults by rate begin again with the seed. Calls that are running do not count any more.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counters = map[counterKey]*keptCounter{}
	s.kept = map[string]*keptThing{}
	s.prune = pruneAt
	s.ledger = newLedger(s.options.MaxCalls)
	s.faults = newFaults(s.options.Faults, s.options.Seed)
	s.travel = rand.New(rand.NewPCG(s.options.Seed, travelStream)) //nolint:gosec // it need not be hard to guess
}

// travelStream makes the times of travel independent of the faults.
const travelStream = 1

// travelTime returns how long a call takes until its arrival.
func (s *Server) travelTime() time.Duration {
	if s.options.Travel == 0 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.travel.Int64N(int64(s.options.Travel) + 1))
}

// Inject lets faults hit the next calls that they are for, in this order, one fault per call. They
// precede the faults by rate.
func (s *Server) Inject(faults ...Fault) error {
	for _, f := range faults {
		if err := f.check(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.faults.queue) + len(faults); n > MaxInjected {
		return fmt.Errorf("simulator: %d faults would wait for calls; at most %d may", n, MaxInjected)
	}
	s.faults.queue = append(s.faults.queue, faults...)
	return nil
}

// Calls returns the calls in the ledger, in the order of their arrival.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.after(0, len(s.ledger.calls))
}

// Dropped returns how many calls the ledger no longer has.
func (s *Server) Dropped() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.dropped
}

// Violations returns the calls that found a limit full.
func (s *Server) Violations() Violations {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := Violations{Total: s.ledger.summary.violating, ByDimension: maps.Clone(s.ledger.summary.violations)}
	for _, c := range s.ledger.calls {
		if c.Outcome == Refused {
			v.Calls = append(v.Calls, c.clone())
		}
	}
	return v
}

// Report counts again what the calls used, until an instant; the zero time means now. Calls that
// arrive meanwhile wait: that is about a second for a million calls in the ledger.
func (s *Server) Report(until time.Time) Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until.IsZero() {
		until = time.Now()
	}
	r := report(s.quotas, s.limits, s.ledger.calls, until)
	sum := s.ledger.summary
	r.Calls, r.Admitted, r.Outcomes = s.ledger.lastID, sum.admitted, maps.Clone(sum.outcomes)
	r.Violations, r.ByDimension, r.Dropped = sum.violating, maps.Clone(sum.violations), s.ledger.dropped
	return r
}

var _ http.Handler = (*Server)(nil)
