// Package server answers takes over HTTP: see package api for the protocol.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/virtualkey"
)

// Options holds the optional settings of a Server. The zero value is ready to use on a loopback
// address.
type Options struct {
	// Tokens are the access tokens. Without any, everybody may do everything, and only loopback
	// addresses are served.
	Tokens []Token
	// Insecure also serves other addresses without access tokens or client certificates.
	Insecure bool
	// Tenant is the engine's own: see [engine.Options].
	Tenant string
	// TLS, if not nil, is used on all listeners. [LoadTLS] makes one from files.
	TLS *tls.Config
	// Fallback returns what limit i of a policy does during an outage, if the store is guarded: see
	// package guard. nil: nothing is decided then.
	Fallback func(policy *drawgate.Policy, i int) drawgate.Fallback
	// ReadyAll makes /readyz answer 503 while the store is unavailable and any policy cannot be
	// decided without it. Otherwise it does so if no policy can.
	ReadyAll bool
	// Reload puts a new configuration in force, if it is valid, and returns the keys whose new
	// values need a restart. Its error is answered and not logged. nil: /v1/reload is not
	// supported.
	Reload func(ctx context.Context) (restart []string, err error)
	// Class returns the class of a request from its headers, which have an API key. Rules can match
	// the class; it is not used if the request has one. "" means no class; nil: there are no
	// classes.
	Class func(h http.Header) string
	// Upstreams lists the upstreams of the gateway that this process runs, without the status of
	// their quotas; nil: it runs none.
	Upstreams func() []api.Upstream
	// Spend says how it is counted what calls of the gateway spend, and false if it is not; nil:
	// /v1/spend is not supported.
	Spend func() (Spend, bool)
	// Keys are the virtual keys of the gateway that the store keeps; nil: it keeps none.
	Keys *virtualkey.Book
	// UsageEvery is the shortest time between two readings of all buckets for /v1/usage; 0 means
	// one second. Choose more if each reading costs money.
	UsageEvery time.Duration
	// Metrics is served at /metrics of the admin handler; may be nil.
	Metrics http.Handler
	// Incidents returns the latest incidents of the gateway in this process, the newest first; nil:
	// there is no gateway.
	Incidents func() []api.Incident
	// Refusals returns what was refused lately, the latest first, and whether older ones were
	// dropped, as Refusals.List of package telemetry does; nil: /v1/refusals is not supported.
	Refusals func() (list []api.Refusal, dropped bool)
	// ForwardAuth configures /auth; nil means its defaults.
	ForwardAuth *ForwardAuth
	// Logger receives messages for operators; nil discards. Keys, costs and tokens are never
	// logged.
	Logger *slog.Logger
}

// cacheLine separates what every request writes from what every request reads.
const cacheLine = 64

// Server answers takes with an engine. It is safe for concurrent use.
type Server struct {
	engine    *engine.Engine
	store     drawgate.Store // for operations that the engine does not offer
	opts      Options
	gate      gatekeeper
	forward   forwarding
	log       *slog.Logger
	issued    *memory
	cancelled *memory   // takes that their clients cancelled by their grants: the newest
	pool      sync.Pool // of *work
	warned    warnings
	serving   atomic.Int64 // listeners
	closed    atomic.Bool
	start     time.Time
	read      time.Duration
	public    http.Handler
	admin     http.Handler
	reload    sync.Mutex    // held during a reload
	listing   chan struct{} // capacity 1: held during a listing
	usages    *usages
	giveUps   *giveUps

	_    [cacheLine]byte
	busy atomic.Int64 // requests that have arrived and are not answered yet
	_    [cacheLine]byte

	drain    context.Context //nolint:containedctx // it belongs to the server and not to a request: it ends when waiting must end, before the rest
	endWaits context.CancelFunc
}

// New returns a Server for engine e; store must be the engine's store. The caller closes both after
// Close. opts may be nil.
func New(e *engine.Engine, store drawgate.Store, opts *Options) (*Server, error) {
	if e == nil || store == nil {
		return nil, errors.New("server: the engine and the engine's store are required")
	}
	s := &Server{
		engine: e, store: store, issued: newMemory(remembered), cancelled: newMemory(remembered),
		start: time.Now(), read: readTimeout, listing: make(chan struct{}, 1), giveUps: newGiveUps(),
	}
	if opts != nil {
		s.opts = *opts
	}
	if s.log = s.opts.Logger; s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if s.gate, err = newGatekeeper(s.opts.Tokens); err != nil {
		return nil, err
	}
	if s.forward, err = newForwarding(s.opts.ForwardAuth); err != nil {
		return nil, err
	}
	s.forward.class = s.opts.Class
	s.pool.New = func() any { return new(work) }
	s.drain, s.endWaits = context.WithCancel(context.Background())
	s.usages = newUsages(s.drain, s.opts.UsageEvery)
	s.public, s.admin = s.mux(false), s.mux(true)
	return s, nil
}

// ServeHTTP implements [http.Handler]. It serves everything except administrators' paths.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.count(s.public, w, r) }

// AdminHandler returns the handler for all paths, including those of administrators.
func (s *Server) AdminHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.count(s.admin, w, r) })
}

func (s *Server) count(h http.Handler, w http.ResponseWriter, r *http.Request) {
	s.busy.Add(1)
	defer s.busy.Add(-1)
	h.ServeHTTP(w, r)
}

// Close ends all waiting takes, refuses further ones, and waits, for a few seconds at most, until
// reservations that nobody will settle are cancelled. It does not close the engine and the store.
func (s *Server) Close() error {
	s.closed.Store(true)
	s.endWaits()
	s.giveUps.wait()
	s.usages.close()
	return nil
}

// loopback returns the default trusted peers: programs on this machine.
func loopback() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}
