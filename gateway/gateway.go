package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/internal/sampler"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/spend"
)

// Options holds what a [Handler] can do without. The zero value is ready to use.
type Options struct {
	// Base makes the calls; nil means a transport of its own. It must not follow redirects or
	// decompress answers.
	Base http.RoundTripper
	// Issuers fetches the keys of the issuers of tokens; nil means a transport of its own.
	Issuers http.RoundTripper
	MaxBody int64 // largest request in bytes; 0 means 32 MiB
	// Bodies is the memory of all requests whose answers have not begun, in bytes, beyond which
	// more are refused; one team may have half of it; 0 means 1 GiB
	Bodies int64
	Wait   time.Duration // longest wait in the queue, which policies and callers can shorten; 0 means 90s
	Cache  int64         // bytes of answers that are kept, of all upstreams; 0 means 64 MiB
	TLS    *tls.Config   // for [Handler.Serve]; nil serves without TLS
	Drain  time.Duration // how long running answers may take when Serve stops; 0 means 30s
	// Proxies are those that are trusted to name a caller's address, for rules, [Key].Addresses and
	// the log; nil: none, so that it is whoever opened the connection.
	Proxies  *httplimit.Proxies
	Observer *outbound.Observer
	// Answered is called with how a call that a quota counts was answered: one of the results
	// below. model is the [Model] that the call was meant for, as the configuration names it. It
	// runs on the caller's path, in many goroutines at once; may be nil.
	Answered func(upstream, model, result string)
	// WrongKey is called for each call whose key is missing or unknown, has expired, is disabled or
	// may not be used from its caller's address, like Answered; may be nil.
	WrongKey func(upstream string)
	// Stored says that keys are kept in the store as well, which [Handler.UseStored] puts in force,
	// and reports whether it has told all of them: otherwise calls with unknown keys are answered
	// with 503. nil: there are none but those of the Config.
	Stored func() (all bool)
	Spend  *spend.Book  // counts what calls spend; nil: nothing does. The engine needs [spend.Policy]
	Logger *slog.Logger // nil discards
}

// Results of calls that a quota counts, for [Options.Answered].
const (
	ResultAnswered   = "answered"    // by the model that was asked for
	ResultCacheHit   = "cache_hit"   // from the cache
	ResultCacheStale = "cache_stale" // from the cache, with an answer that is too old, because the quota is exhausted
	ResultOtherModel = "other_model" // by another model
	ResultError      = "error"       // with an error of the provider
	ResultRefused    = "refused"     // with an error of this gateway
	ResultCut        = "cut"         // the provider's answer broke off
	ResultLeft       = "left"        // the caller did not wait for the end
)

const (
	defaultBody  = 32 << 20
	defaultAll   = 1 << 30
	defaultWait  = 90 * time.Second // longer than a minute with its margin: behind a burst calls wait
	defaultCache = 64 << 20
	defaultDrain = 30 * time.Second
)

// Handler is the gateway. It is safe for concurrent use.
type Handler struct {
	engine  *engine.Engine
	opts    Options
	state   atomic.Pointer[state]
	cache   *cache
	headers *httplimit.Headers
	logged  sampler.Sampler
	wrong   sampler.Sampler // lines about wrong keys, which must not keep others out of the log
	refused sampler.Sampler // the same about keys that have expired, and the like
	bodies  bodies
	journal journal
	answers answers
	stored  *stored // nil: no keys are kept in the store
	noted   noted   // of what is stored at upstreams

	notice      sync.Mutex
	noticeTimer *time.Timer // guarded by notice; nil: no key will end

	own  *http.Transport // nil: Options had one
	asks *http.Transport // for the keys of issuers; nil: Options had one
	life context.Context //nolint:containedctx // ends waits in the queue when the handler stops
	stop context.CancelFunc
	rest context.Context //nolint:containedctx // ends the calls that are left when the handler waits no longer
	cut  context.CancelCauseFunc
}

// state is a configuration in force.
type state struct {
	config    Config
	upstreams map[string]*upstream
	aliases   map[string]*Alias
	secrets   map[[sha256.Size]byte]credential
	named     map[string]*Key    // the Config's, by their names
	stored    *stored            // the Handler's
	issuers   map[string]*issuer // of tokens, by what their claim iss says
	teams     int                // teams, and keys without one
}

// New returns a Handler that takes from an engine, which the caller closes later. opts may be nil.
// The error is about the configuration.
func New(e *engine.Engine, c Config, opts *Options) (*Handler, error) {
	h := &Handler{engine: e}
	if opts != nil {
		h.opts = *opts
	}
	o := &h.opts
	o.MaxBody, o.Wait = cmp.Or(o.MaxBody, defaultBody), cmp.Or(o.Wait, defaultWait)
	o.Bodies = max(o.MaxBody, cmp.Or(o.Bodies, defaultAll))
	o.Cache, o.Drain = cmp.Or(o.Cache, defaultCache), cmp.Or(o.Drain, defaultDrain)
	if o.Base == nil {
		h.own = newBase()
		o.Base = h.own
	}
	if o.Issuers == nil {
		h.asks = newBase()
		o.Issuers = h.asks
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	h.cache = newCache(o.Cache)
	// Callers see how much is left of the tightest limit, and no other one.
	h.headers = httplimit.NewHeaders(&httplimit.HeaderOptions{Fields: httplimit.RateLimit, MaxBytes: 1})
	if o.Stored != nil {
		h.stored = &stored{all: o.Stored, names: map[string]*Key{}, sums: map[[sha256.Size]byte]credential{}}
	}
	h.life, h.stop = context.WithCancel(context.Background())
	h.rest, h.cut = context.WithCancelCause(context.Background())
	if err := h.Use(c); err != nil {
		h.stop()
		return nil, err
	}
	return h, nil
}

// newBase returns what makes calls to providers.
func newBase() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		WriteBufferSize:       16 << 10, // most prompts go out with their headers in one piece
		DisableCompression:    true,     // answers pass as they are
	}
}

// Use puts another configuration in force for calls that begin from now on. Running calls end as
// they began. An upstream that stays as it is keeps the state of its circuit, and what it has
// learned. After an error nothing has changed.
func (h *Handler) Use(c Config) error {
	if err := c.check(); err != nil {
		return err
	}
	s := &state{
		config: c, upstreams: map[string]*upstream{}, aliases: map[string]*Alias{}, secrets: credentialsOf(c.Keys),
		named: map[string]*Key{}, stored: h.stored,
	}
	for i := range c.Keys {
		s.named[c.Keys[i].Name] = &c.Keys[i]
	}
	old := h.state.Load()
	for i := range c.Upstreams {
		u := &c.Upstreams[i]
		if old != nil && old.upstreams[u.Name] != nil && reflect.DeepEqual(*old.upstreams[u.Name].config, *u) &&
			reflect.DeepEqual(old.config.Prices, c.Prices) {
			s.upstreams[u.Name] = old.upstreams[u.Name]
			continue
		}
		s.upstreams[u.Name] = h.upstream(u, c.Prices)
	}
	for i := range c.Aliases {
		s.aliases[c.Aliases[i].Name] = &c.Aliases[i]
	}
	if s.teams = c.countTeams(); h.stored != nil {
		s.teams += 2 // nobody knows how many there will be
	}
	s.issuers = h.issuers(c.Tokens, old)
	h.state.Store(s)
	old.closeKeys(s)
	h.watchKeys(s, time.Now())
	return nil
}

// Circuit returns the state of an upstream's circuit, and after which time a call may try: see
// [outbound.Client.Circuit]. ok is false if there is no such upstream.
func (h *Handler) Circuit(upstream string) (state string, retryAfter time.Duration, ok bool) {
	u := h.state.Load().upstreams[upstream]
	if u == nil {
		return "", 0, false
	}
	state, retryAfter = u.client.Circuit()
	return state, retryAfter, true
}

// from returns who makes the calls of a key, as in [outbound.Call]. A level of which there is only
// one is left out: its circuit is everybody's.
func (s *state) from(k *Key) (list []string) {
	if len(s.config.Keys) > 1 || len(s.issuers) > 0 || s.stored != nil {
		list = append(list, "key "+k.Name)
	}
	if k.Team != "" && s.teams > 1 {
		list = append(list, k.team())
	}
	return list
}

// team names a key's team, or the key if it has none.
func (k *Key) team() string {
	if k.Team == "" {
		return "key " + k.Name
	}
	return "team " + k.Team
}

// countTeams returns how many teams there are, and keys without one. Tokens whose claims name them
// count as two: nobody knows how many there will be.
func (c *Config) countTeams() int {
	teams, more := map[string]bool{}, 0
	for i := range c.Keys {
		teams[c.Keys[i].team()] = true
	}
	for i := range c.Tokens {
		if t := &c.Tokens[i]; t.TeamClaim == "" && t.Key.Team != "" {
			teams[t.Key.team()] = true
		} else {
			more = 2
		}
	}
	return len(teams) + more
}

// UnderWay returns how many calls hold units now.
func (h *Handler) UnderWay() (calls int) {
	for _, u := range h.state.Load().upstreams {
		calls += u.client.UnderWay()
	}
	return calls
}

// logEvery is the shortest time between two lines about failures that callers or providers cause.
const logEvery = 10 * time.Second

// wrongKey counts and logs a call that is refused for its key, which is nil if it is missing or
// unknown: then somebody may be trying keys. The secret is not logged: it may be a real one of
// another place.
func (h *Handler) wrongKey(upstream string, k *Key, why *refusal, r *http.Request) {
	if h.opts.WrongKey != nil {
		h.opts.WrongKey(upstream)
	}
	if k != nil {
		if skipped, ok := h.refused.Pass(time.Now(), logEvery, 4); ok {
			h.opts.Logger.Warn("a call was refused: its key does not allow it", "upstream", upstream, "key", k.Name,
				"client", h.client(r), "reason", why.message, "not_logged", skipped)
		}
		return
	}
	skipped, ok := h.wrong.Pass(time.Now(), logEvery, 1)
	switch {
	case !ok:
	case why.token != nil:
		h.opts.Logger.Warn("a call was refused: its token is not valid", "upstream", upstream, "client", h.client(r),
			"reason", why.token, "not_logged", skipped)
	default:
		h.opts.Logger.Warn("a call was refused: its key is missing or unknown", "upstream", upstream,
			"client", h.client(r), "shown", secretOf(r) != "", "not_logged", skipped)
	}
}

// warn logs what went wrong with a call, though not every time.
func (h *Handler) warn(message string, args ...any) {
	if skipped, ok := h.logged.Pass(time.Now(), logEvery, 4); ok {
		h.opts.Logger.Warn(message, append(args, "not_logged", skipped)...)
	}
}
