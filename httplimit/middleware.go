package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/admit"
)

// Bucket says what is taken for a request: units from the bucket of its key, under a limiter's
// policy.
type Bucket struct {
	// Limiter is required. All limiters of a middleware must be derived from each other by With,
	// and have different policies.
	Limiter *drawgate.Limiter
	// Policy chooses the policy of a request, for example by the tier of its caller. It returns a
	// limiter that was made once from Limiter, by With. Limiter is used if Policy is nil, or
	// returns nil.
	Policy func(r *http.Request) *drawgate.Limiter
	// Key says who is counted; nil means ByIP(nil).
	Key Key
	// Costs says what a request costs; nil means one request. A unit that is not named costs 0,
	// requests 1; if none is named, one of the buckets must count requests.
	Costs func(r *http.Request) []drawgate.Cost
	// Shared says that all callers share the bucket. A refusal then says that the API's limit was
	// reached, not the caller's own. The headers do not show how much other callers use.
	Shared bool
}

// Options holds what a Middleware can do without. The zero value is ready to use.
type Options struct {
	// Exempt are paths that are not limited: "/health" means that path, "/health/*" all that start
	// with "/health/", and "/health*" all that start with "/health". A path that is not in its
	// shortest form (/health/../login) is never exempt.
	Exempt []string
	// Skip reports requests that are not limited. Nil means none.
	Skip func(r *http.Request) bool
	// Priority of a request, 0 to drawgate.MaxPriority. Limits may reserve a share for high
	// priorities, which also come first in the queue. Nil means 0.
	Priority func(r *http.Request) int

	// Wait is how long a request may wait for its units instead of being refused. 0 means that no
	// request waits. A bucket's policy may allow less. A client that leaves gives up its place in
	// the queue. If the body of its request has not been read, this is noticed only on HTTP/2.
	Wait time.Duration
	// Queue is how many requests may wait at once: 0 means 1000. Each keeps its goroutine and its
	// connection. A bucket's policy may allow fewer.
	Queue int

	// Hold is how long units of a policy with a concurrency limit are held without being renewed: 0
	// means 30s. They are renewed while the handler runs and given back when it ends. This is how
	// long the slots of a process that dies stay taken.
	Hold time.Duration

	// FailOpen lets requests pass when the store cannot decide, marked with X-RateLimit-Fallback.
	// Otherwise they get 503, with Retry-After: 1. It does not apply to decisions that package
	// guard makes while the store is unavailable.
	FailOpen bool
	// OnError is called with errors: the store did not decide, a hold was lost, a policy does not
	// have the unit that was asked for. Nil ignores them. It must be quick. Errors contain no keys.
	OnError func(r *http.Request, err error)

	// Describe names the policy whose limits the headers describe. "" means those of all buckets
	// that are not Shared, or of all buckets if all are Shared.
	Describe string
	// Fields says which headers are written; 0 means AllFields.
	Fields Fields
	// HeaderNames gives the X-RateLimit headers other names, or the reset another form.
	HeaderNames HeaderNames
	// Refuse writes the answer to a request that is not served. Headers with the limits and
	// Retry-After have been set. Nil means p.ServeHTTP, which writes application/problem+json.
	Refuse func(w http.ResponseWriter, r *http.Request, p *Problem)
}

// Middleware limits the requests to a handler. It is safe for concurrent use, and may stand in
// front of several handlers, which then share its limits.
type Middleware struct {
	buckets []Bucket
	opts    Options
	exempt  []pattern
	headers *Headers
	hidden  bool              // shared buckets are not described in headers
	lone    *drawgate.Limiter // the only bucket's limiter, if each take is one request
	key     Key               // key of the bucket of lone
	limiter *admit.Limiter    // decides requests
	engine  *engine.Engine    // nil: units are taken from buckets
	rules   RuleOptions       // with an engine
}

// New returns a Middleware that takes from all buckets, or from none, for each request. opts may be
// nil. Mistakes are reported here, so that no request has to report them.
func New(buckets []Bucket, opts *Options) (*Middleware, error) {
	m := &Middleware{buckets: slices.Clone(buckets)}
	if opts != nil {
		m.opts = *opts
	}
	if err := m.checkOptions(); err != nil {
		return nil, err
	}
	holds, err := m.checkBuckets()
	if err != nil {
		return nil, err
	}
	m.hidden = m.opts.Describe == "" && slices.ContainsFunc(m.buckets, func(b Bucket) bool { return !b.Shared })
	if b := &m.buckets[0]; len(buckets) == 1 && b.Costs == nil && b.Policy == nil && !holds && m.opts.Priority == nil {
		m.lone, m.key = b.Limiter, b.Key
	}
	return m, nil
}

func (m *Middleware) checkBuckets() (holds bool, err error) {
	var list []admit.Bucket
	for i := range m.buckets {
		b := &m.buckets[i]
		list = append(list, admit.Bucket{Limiter: b.Limiter, Costs: b.Costs != nil})
		if b.Key == nil {
			b.Key = ByIP(nil)
		}
	}
	if err := m.limiter.Check(list); err != nil {
		return false, err
	}
	found := m.opts.Describe == ""
	for i := range m.buckets {
		plan := m.buckets[i].Limiter.Plan()
		found = found || m.buckets[i].Policy != nil || plan.Name() == m.opts.Describe
		holds = holds || plan.NeedsHold()
	}
	if !found {
		return false, fmt.Errorf("httplimit: describe: no bucket is of policy %q", m.opts.Describe)
	}
	return holds, nil
}

// checkOptions checks the options that apply to buckets and to rules alike.
func (m *Middleware) checkOptions() (err error) {
	o := &m.opts
	m.limiter, err = admit.New(admit.Options{
		Package: "httplimit", Wait: o.Wait, Queue: o.Queue, Hold: o.Hold,
		FailOpen: o.FailOpen, Lost: ErrHoldLost,
	})
	if err != nil {
		return err
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
	describe := HeaderOptions{Fields: o.Fields, Names: o.HeaderNames}
	if o.Describe != "" {
		describe.Policies = []string{o.Describe}
	}
	m.headers = NewHeaders(&describe)
	return nil
}

// Handler returns a handler that limits the requests to next. The response writer is passed on
// unchanged.
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
		defer p.End() //nolint:contextcheck // units are given back even if the client has left
		next.ServeHTTP(w, r.WithContext(p.Context(r.Context())))
	})
}

// Waiting returns how many requests wait.
func (m *Middleware) Waiting() int { return m.limiter.Waiting() }

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
		return p, errors.New("httplimit: exempt: " + text +
			" is not a path such as /health, or the start of some such as /health/*")
	}
	return p, nil
}

// matches reports whether a path is exempt. A handler may shorten a path with .. or //, so such a
// path must not be exempt under another name.
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
