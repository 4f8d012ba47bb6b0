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
	"github.com/drawgate/drawgate/engine"
)

// Options holds what a Server can do without. The zero value is ready to use on a loopback address.
type Options struct {
	// Tokens are the access tokens. With none, everybody may do everything, and only loopback
	// addresses are served.
	Tokens []Token
	// Insecure serves other addresses without access tokens or client certificates too.
	Insecure bool
	// Tenant is the engine's own: see [engine.Options].
	Tenant string
	// TLS, if not nil, is spoken on all listeners. [LoadTLS] makes one of files.
	TLS *tls.Config
	// Fallback says what limit i of a policy does while the store is away, where the store is
	// guarded: package guard has it. nil: nothing is decided then.
	Fallback func(policy *drawgate.Policy, i int) drawgate.Fallback
	// Reload puts a new configuration in force, if it has no mistake, and names the keys of it
	// whose new values need a restart. Its error is answered and not logged. nil: /v1/reload is not
	// supported.
	Reload func(ctx context.Context) (restart []string, err error)
	// Class returns the class of a request by its headers, which carry an API key: for what rules
	// match, where nobody has said the class. "" is none; nil: there are no classes.
	Class func(h http.Header) string
	// Metrics is served at /metrics of the admin handler; nil: nothing is.
	Metrics http.Handler
	// ForwardAuth is the door for proxies; nil means its defaults.
	ForwardAuth *ForwardAuth
	// Logger is told what operators should know; nil discards. No key, cost or token is ever
	// logged.
	Logger *slog.Logger
}

// cacheLine keeps what every request writes away from what every request reads.
const cacheLine = 64

// Server answers takes by what an engine decides. It is safe for concurrent use.
type Server struct {
	engine  *engine.Engine
	store   drawgate.Store // for what engines do not do
	opts    Options
	gate    gatekeeper
	forward forwarding
	log     *slog.Logger
	issued  *memory
	pool    sync.Pool    // of *work
	warned  atomic.Int64 // Unix ns of the last warning about the store
	serving atomic.Int64 // listeners
	closed  atomic.Bool
	start   time.Time
	read    time.Duration
	public  http.Handler
	admin   http.Handler
	reload  sync.Mutex    // held while the configuration is read again
	listing chan struct{} // of one: who goes through the store
	giveUps *giveUps

	_    [cacheLine]byte
	busy atomic.Int64 // requests that have arrived and are not answered
	_    [cacheLine]byte

	drain    context.Context //nolint:containedctx // it is the server's, not a request's: it ends when waiting has to, before the rest
	endWaits context.CancelFunc
}

// New returns a Server for what e decides; store is the one that e decides with. Both stay the
// caller's, to close after Close. opts may be nil.
func New(e *engine.Engine, store drawgate.Store, opts *Options) (*Server, error) {
	if e == nil || store == nil {
		return nil, errors.New("server: it needs an engine and the engine's store")
	}
	s := &Server{engine: e, store: store, issued: newMemory(remembered), start: time.Now(), read: readTimeout, listing: make(chan struct{}, 1), giveUps: newGiveUps()}
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
	s.public, s.admin = s.mux(false), s.mux(true)
	return s, nil
}

// ServeHTTP implements [http.Handler]: it answers what is not for administrators.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.count(s.public, w, r) }

// AdminHandler returns the handler that answers everything, administrators' paths included.
func (s *Server) AdminHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.count(s.admin, w, r) })
}

func (s *Server) count(h http.Handler, w http.ResponseWriter, r *http.Request) {
	s.busy.Add(1)
	defer s.busy.Add(-1)
	h.ServeHTTP(w, r)
}

// Close ends all waiting takes and refuses to decide further ones, and waits until what nobody will
// settle is cancelled, for a few seconds at most. The engine and the store stay open.
func (s *Server) Close() error {
	s.closed.Store(true)
	s.endWaits()
	s.giveUps.wait()
	return nil
}

// loopback is who is trusted by default: programs of this machine.
func loopback() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}
