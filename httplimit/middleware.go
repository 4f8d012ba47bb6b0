package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/hold"
)

// Bucket says what is taken for a request: units of the bucket of its key under a limiter's policy.
type Bucket struct {
	// Limiter is required. All limiters of a middleware must have been made from one another, by
	// With, and have different policies.
	Limiter *drawgate.Limiter
	// Policy chooses the policy of a request, by the tier of its caller, say: a limiter that was
	// made once from Limiter, by With. Nil, and a limiter that is nil, mean Limiter.
	Policy func(r *http.Request) *drawgate.Limiter
	// Key says who is counted; nil means ByIP(nil).
	Key Key
	// Costs says what a request costs; nil means one request. A unit that is not named costs 0,
	// requests 1; if none is named, one of the buckets must count requests.
	Costs func(r *http.Request) []drawgate.Cost
	// Shared says that all callers share the bucket. A refusal then says that the API's limit was
	// hit and not the caller's own, and the headers do not tell how busy the others are.
	Shared bool
}

// Options holds what a Middleware can do without. The zero value is ready to use.
type Options struct {
	// Exempt are paths that are not limited: "/health" that one, "/health/*" all that start with
	// "/health/", "/health*" whatever starts like this. A path that is not in its shortest form
	// (/health/../login) is never exempt.
	Exempt []string
	// Skip reports requests that are not limited. Nil means none.
	Skip func(r *http.Request) bool
	// Priority of a request, 0 to drawgate.MaxPriority: limits may keep a share for high ones,
	// which also wait in front. Nil means 0.
	Priority func(r *http.Request) int

	// Wait is how long a request that does not pass may wait until it does, instead of being
	// refused. 0 means that none waits. A bucket's policy may allow less. A client that goes away
	// gives up its place; that of a request whose body has not been read is seen on HTTP/2 only.
	Wait time.Duration
	// Queue is how many requests may wait at once: 0 means 1000. Each keeps its goroutine and its
	// connection. A bucket's policy may allow fewer.
	Queue int

	// Hold is how long units of a policy with a concurrency limit are held without being renewed: 0
	// means 30s. They are renewed while the handler runs and given back when it ends. This is how
	// long the slots of a process that dies stay taken.
	Hold time.Duration

	// FailOpen lets requests pass when the store cannot decide, marked with X-RateLimit-Fallback.
	// Otherwise they get 503, with Retry-After: 1. What package guard decides while the store is
	// away is a decision, to which this does not apply.
	FailOpen bool
	// OnError is told of what went wrong: the store did not decide, a hold was lost, a policy does
	// not have what was asked for. Nil ignores it. It must be quick. No key is in an error.
	OnError func(r *http.Request, err error)

	// Describe names the policy whose limits the headers describe. "" means those of all buckets
	// that are not Shared; of all, if all are.
	Describe string
	// Fields says which headers are written; 0 means AllFields.
	Fields Fields
	// HeaderNames gives the X-RateLimit headers other names, or another way to say the reset.
	HeaderNames HeaderNames
	// Refuse writes the answer to a request that is not served. Headers with the limits and
	// Retry-After have been set. Nil means p.ServeHTTP, which writes application/problem+json.
	Refuse func(w http.ResponseWriter, r *http.Request, p *Problem)
}

// Defaults of Options.
const (
	defaultHold  = 30 * time.Second
	defaultQueue = 1000
)

// Middleware limits the requests to a handler. It is safe for concurrent use, and may stand in
// front of several handlers, which then share its limits.
type Middleware struct {
	buckets []Bucket
	opts    Options
	exempt  []pattern
	headers *Headers
	hidden  bool              // of the shared buckets nothing is described
	lone    *drawgate.Limiter // of the only bucket, if nothing else is asked of it than one request
	key     Key               // of lone
	holds   bool
	waiting atomic.Int64
}

// New returns a Middleware that takes of all buckets, or of none, for each request. opts may be
// nil. It reports what cannot work here, so that no request has to.
func New(buckets []Bucket, opts *Options) (*Middleware, error) {
	m := &Middleware{buckets: slices.Clone(buckets)}
	if opts != nil {
		m.opts = *opts
	}
	if err := m.checkBuckets(); err != nil {
		return nil, err
	}
	if err := m.checkOptions(); err != nil {
		return nil, err
	}
	describe := HeaderOptions{Fields: m.opts.Fields, Names: m.opts.HeaderNames}
	if m.opts.Describe != "" {
		describe.Policies = []string{m.opts.Describe}
	}
	m.headers = NewHeaders(&describe)
	m.hidden = m.opts.Describe == "" && slices.ContainsFunc(m.buckets, func(b Bucket) bool { return !b.Shared })
	if b := &m.buckets[0]; len(buckets) == 1 && b.Costs == nil && b.Policy == nil && !m.holds && m.opts.Priority == nil {
		m.lone, m.key = b.Limiter, b.Key
	}
	return m, nil
}

func (m *Middleware) checkBuckets() error {
	if n := len(m.buckets); n == 0 || n > drawgate.MaxBuckets {
		return fmt.Errorf("httplimit: %d buckets, but 1 to %d are allowed", n, drawgate.MaxBuckets)
	}
	names := map[string]bool{}
	for i := range m.buckets {
		b := &m.buckets[i]
		if b.Limiter == nil {
			return fmt.Errorf("httplimit: bucket %d has no limiter", i+1)
		}
		plan := b.Limiter.Plan()
		if names[plan.Name()] {
			return fmt.Errorf("httplimit: two buckets are of policy %q: give one of them another name", plan.Name())
		}
		names[plan.Name()] = true
		m.holds = m.holds || plan.NeedsHold()
		if b.Key == nil {
			b.Key = ByIP(nil)
		}
	}
	return nil
}

func (m *Middleware) checkOptions() error {
	o := &m.opts
	if o.Hold == 0 {
		o.Hold = defaultHold
	}
	if o.Queue == 0 {
		o.Queue = defaultQueue
	}
	if o.Hold < hold.Min || o.Hold > drawgate.MaxHold {
		return fmt.Errorf("httplimit: hold %v is not between %v and %v", o.Hold, hold.Min, drawgate.MaxHold)
	}
	if o.Wait < 0 || o.Queue < 0 {
		return fmt.Errorf("httplimit: wait %v and queue %d must not be negative", o.Wait, o.Queue)
	}
	if o.Describe != "" && !slices.ContainsFunc(m.buckets, func(b Bucket) bool { return b.Policy != nil || b.Limiter.Plan().Name() == o.Describe }) {
		return fmt.Errorf("httplimit: describe: no bucket is of policy %q", o.Describe)
	}
	if err := o.HeaderNames.check(); err != nil {
		return err
	}
	for _, e := range o.Exempt {
		p, err := newPattern(e)
		if err != nil {
			return err
		}
		m.exempt = append(m.exempt, p)
	}
	return m.checkTogether()
}

// checkTogether asks for nothing of all buckets together: the library knows best which limiters can
// be mixed, and whether requests that name no unit take any.
func (m *Middleware) checkTogether() error {
	var asks []drawgate.Ask
	for i := range m.buckets {
		b := &m.buckets[i]
		ask := drawgate.Ask{Limiter: b.Limiter, Key: "httplimit"}
		if b.Costs != nil {
			ask.Costs = []drawgate.Cost{{Unit: b.Limiter.Plan().Policy().Limits[0].Unit, N: 1}}
		}
		asks = append(asks, ask)
	}
	if _, err := asks[0].Limiter.Resume("httplimit", 1, time.Now(), asks...); err != nil {
		return fmt.Errorf("httplimit: the buckets cannot be taken together: %w", err)
	}
	return nil
}

// Handler returns a handler that limits the requests to next. The response writer is passed on as
// it is.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := m.Begin(w.Header(), r)
		if p.Problem != nil {
			m.Refuse(w, r, p.Problem)
			return
		}
		if p.hold == nil {
			next.ServeHTTP(w, r)
			return
		}
		defer p.End() //nolint:contextcheck // what is held is given back whatever has become of the request
		next.ServeHTTP(w, r.WithContext(p.Context(r.Context())))
	})
}

// Waiting returns how many requests wait.
func (m *Middleware) Waiting() int { return int(m.waiting.Load()) }

// Refuse answers a request that is not served, as [Options.Refuse] says: for adapters.
func (m *Middleware) Refuse(w http.ResponseWriter, r *http.Request, p *Problem) {
	if m.opts.Refuse == nil {
		p.ServeHTTP(w, r)
		return
	}
	p.setRetry(w.Header())
	m.opts.Refuse(w, r, p)
}

func (m *Middleware) report(r *http.Request, err error) {
	if m.opts.OnError != nil {
		m.opts.OnError(r, err)
	}
}

// skips reports whether r is not limited.
func (m *Middleware) skips(r *http.Request) bool {
	for i := range m.exempt {
		if m.exempt[i].matches(r.URL.Path) {
			return true
		}
	}
	return m.opts.Skip != nil && m.opts.Skip(r)
}

// pattern is an exempt path, or the start of some.
type pattern struct {
	text   string
	prefix bool
}

func newPattern(text string) (pattern, error) {
	p := pattern{}
	p.text, p.prefix = strings.CutSuffix(text, "*")
	if !strings.HasPrefix(p.text, "/") || strings.Contains(p.text, "*") {
		return p, errors.New("httplimit: exempt: " + text + " is not a path such as /health, or the start of some such as /health/*")
	}
	return p, nil
}

// matches reports whether a path is exempt. A handler may take a path with .. or // for its
// shortest form: such a path must not slip by as another.
func (p *pattern) matches(name string) bool {
	if p.prefix {
		return strings.HasPrefix(name, p.text) && isShortest(name)
	}
	return name == p.text
}

func isShortest(name string) bool {
	short := path.Clean(name)
	return short == name || len(name) == len(short)+1 && name[len(name)-1] == '/' && strings.HasPrefix(name, short)
}
