// Package server answers takes over HTTP: see package api for the protocol.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
)

// Options holds what a Server can do without. The zero value is ready to use.
type Options struct {
	Tenant       string        // part of every key
	StoreTimeout time.Duration // of a take that does not wait: 0 means 1s, negative means none. This server has no fallback: late is better than not
	Logger       *slog.Logger  // nil discards. No key, cost or token is ever logged
}

// The times that a client may take, and how long a stopping server waits for what is under way.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 10 * time.Second // after a take has waited
	idleTimeout   = 2 * time.Minute
	drainTimeout  = 10 * time.Second
	unreadTimeout = 2 * time.Second // of these, for requests that have not arrived
	drainPoll     = 50 * time.Millisecond
	defaultStore  = time.Second
)

// Server answers takes under a set of policies, all in one store. It is safe for concurrent use.
type Server struct {
	store    drawgate.Store
	limiters map[string]*drawgate.Limiter
	names    []string // of the policies, sorted
	log      *slog.Logger
	given    *memory
	warned   atomic.Int64 // Unix ns of the last warning about the store
	waiting  atomic.Int64
	busy     atomic.Int64 // requests that have arrived and are not answered
	start    time.Time
	read     time.Duration
	mux      http.Handler

	drain     context.Context //nolint:containedctx // it is the server's, not a request's: it ends when waiting has to
	endWaits  context.CancelFunc
	anyPolicy *drawgate.Limiter // the one that is closed
}

// New returns a Server over store, which stays the caller's to close after Close. opts may be nil.
func New(store drawgate.Store, policies []drawgate.Policy, opts *Options) (*Server, error) {
	if opts == nil {
		opts = &Options{}
	}
	s := &Server{store: store, limiters: map[string]*drawgate.Limiter{}, log: opts.Logger, given: newMemory(remembered), start: time.Now(), read: readTimeout}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if s.limiters, err = Limiters(store, policies, &drawgate.Options{Tenant: opts.Tenant, StoreTimeout: cmp.Or(opts.StoreTimeout, defaultStore)}); err != nil {
		return nil, err
	}
	for name, l := range s.limiters {
		s.names, s.anyPolicy = append(s.names, name), l
	}
	slices.Sort(s.names)
	s.drain, s.endWaits = context.WithCancel(context.Background())
	s.mux = s.routes()
	return s, nil
}

// Limiters returns a limiter for each policy, by name. They share a store and a queue, and may be mixed in one take.
func Limiters(store drawgate.Store, policies []drawgate.Policy, opts *drawgate.Options) (map[string]*drawgate.Limiter, error) {
	all := make(map[string]*drawgate.Limiter, len(policies))
	var first *drawgate.Limiter
	for i := range policies {
		name := policies[i].Name
		if all[name] != nil {
			return nil, fmt.Errorf("drawgate: two policies are named %q", name)
		}
		var l *drawgate.Limiter
		var err error
		if first == nil {
			l, err = drawgate.New(store, policies[i], opts)
			first = l
		} else {
			l, err = first.With(policies[i])
		}
		if err != nil {
			return nil, err
		}
		all[name] = l
	}
	if first == nil {
		return nil, errors.New("drawgate: there is no policy")
	}
	return all, nil
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v1/take", post(s.take))
	mux.Handle("/v1/settle", post(s.settle))
	mux.HandleFunc("/v1/status", s.status)
	mux.HandleFunc("/healthz", s.healthz)
	mux.HandleFunc("/readyz", s.readyz)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, problem(api.CodeNotFound, "there is no %s here: see /v1/take, /v1/settle, /v1/status, /healthz, /readyz", r.URL.Path))
	})
	// A page of another site must not spend units by making its visitor's browser post here.
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, problem(api.CodeCrossOrigin, "requests of web pages of another origin are not served"))
	}))
	return guard.Handler(mux)
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.busy.Add(1)
	defer s.busy.Add(-1)
	s.mux.ServeHTTP(w, r)
}

// Close ends all waiting takes and refuses to decide further ones. The store stays open.
func (s *Server) Close() error {
	s.endWaits()
	return s.anyPolicy.Close()
}

// Serve answers requests on ln until ctx ends, then stops accepting, lets takes that wait go with a 503, finishes the others, and closes ln. Requests
// that are still being sent have two seconds to arrive. It returns nil when it was stopped by ctx.
//
// If ln is on a loopback address, only requests whose Host is one, or localhost, are answered: see [api.CodeCrossOrigin].
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler:           s.guard(ln.Addr()),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       s.read,
		WriteTimeout:      s.read + writeTimeout, // a take that waits extends it
		IdleTimeout:       idleTimeout,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	select {
	case err := <-done:
		return errors.Join(err, s.Close())
	case <-ctx.Done():
	}
	s.log.Info("stopping", "waiting", s.waiting.Load())
	s.endWaits()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	go s.endUnread(end, cancel)
	err := srv.Shutdown(end)
	if err != nil && errors.Is(end.Err(), context.Canceled) {
		s.log.Warn("connections were closed whose requests had not arrived")
		err = srv.Close()
	} else if err != nil {
		err = errors.Join(fmt.Errorf("server: requests were cut off: %w", err), srv.Close())
	}
	return errors.Join(err, s.Close())
}

// endUnread ends a shutdown when there is nothing left but requests that do not arrive.
func (s *Server) endUnread(ctx context.Context, stop context.CancelFunc) {
	t := time.NewTimer(unreadTimeout)
	defer t.Stop()
	for idle := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if idle++; s.busy.Load() > 0 {
			idle = 0
		}
		if idle == 2 { // between the two, what was answered last is sent
			stop()
			return
		}
		t.Reset(drainPoll)
	}
}

// guard refuses requests to a loopback address that call it by another name: a web page can let its own name point here, and then its requests are not
// of another origin.
func (s *Server) guard(addr net.Addr) http.Handler {
	if a, ok := addr.(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		return s
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "" && !isLoopback(r.Host) { // browsers always name it
			writeProblem(w, problem(api.CodeCrossOrigin, "this server is called localhost, not %q: use http://%s, or let it listen on an address that is not loopback", r.Host, addr))
			return
		}
		s.ServeHTTP(w, r)
	})
}

func isLoopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// limiter returns the limiter of a policy; "" means the only one.
func (s *Server) limiter(policy string) (*drawgate.Limiter, *api.Problem) {
	if policy == "" && len(s.names) == 1 {
		policy = s.names[0]
	}
	l := s.limiters[policy]
	switch {
	case l == nil && policy == "":
		return nil, problem(api.CodeUnknownPolicy, "the policy is missing: one of %s", strings.Join(s.names, ", "))
	case l == nil:
		return nil, problem(api.CodeUnknownPolicy, "there is no policy %q: one of %s", policy, strings.Join(s.names, ", "))
	}
	return l, nil
}
