package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/drain"
)

// Time limits for clients, and for a server that is stopping.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 10 * time.Second // after a take has waited
	idleTimeout   = 2 * time.Minute
	drainTimeout  = 10 * time.Second
	unreadTimeout = 2 * time.Second // after that, for requests that have not arrived
	drainPoll     = 50 * time.Millisecond
)

// maxHeader is the maximum size of a request's headers, in bytes. Proxies pass on those of their
// clients.
const maxHeader = 64 << 10

// Serve answers requests on ln, except on administrators' paths, until ctx ends. Then it answers
// waiting takes with 503, closes ln within half a second, lets callers use their connections once
// more, as long as one comes at least every half second, and finishes what has begun. Requests that
// are still being sent have two seconds to arrive. It returns nil if it was stopped by ctx.
//
// Without access tokens and client certificates only loopback addresses are served, unless
// Options.Insecure is set; and there only requests whose Host is a loopback address, or localhost,
// are answered: see [api.CodeCrossOrigin].
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	return s.listen(ctx, ln, s)
}

// ServeAdmin is Serve for all paths, including those of administrators. It may run at the same time
// as Serve, with the same context.
func (s *Server) ServeAdmin(ctx context.Context, ln net.Listener) error {
	return s.listen(ctx, ln, s.AdminHandler())
}

func (s *Server) listen(ctx context.Context, ln net.Listener, h http.Handler) error {
	if err := s.mayListen(ln.Addr()); err != nil {
		return errors.Join(err, ln.Close())
	}
	s.serving.Add(1)
	defer func() {
		if s.serving.Add(-1) == 0 { // requests on the other listener finish first
			_ = s.Close()
		}
	}()
	srv := &http.Server{
		Handler:           s.guard(ln.Addr(), h),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       s.read,
		WriteTimeout:      s.read + writeTimeout, // a take that waits extends it
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          newErrorLog(s.log),
	}
	conns := drain.Watch(srv)
	serve := srv.Serve
	if s.opts.TLS != nil {
		srv.TLSConfig = s.opts.TLS.Clone()
		serve = func(ln net.Listener) error { return srv.ServeTLS(ln, "", "") }
	}
	done := make(chan error, 1)
	go func() { done <- serve(ln) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	waiting, _ := s.engine.Waiting()
	s.log.Info("stopping", "address", ln.Addr().String(), "waiting", waiting)
	return s.stop(ctx, srv, func(end context.Context) {
		conns.End(end, func() {
			_ = ln.Close() // it has no error that matters
			s.log.Debug("no longer listening", "address", ln.Addr().String(), "reason", <-done)
		}, func() bool { return s.busy.Load() > 0 })
	})
}

// stop finishes running requests. leave lets callers leave.
func (s *Server) stop(ctx context.Context, srv *http.Server, leave func(context.Context)) error {
	s.endWaits()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	unread := time.NewTimer(unreadTimeout)
	leave(end) // while callers use their connections, others are not closed
	go s.endUnread(end, unread, cancel)
	err := srv.Shutdown(end)
	if err != nil && errors.Is(end.Err(), context.Canceled) {
		s.log.Warn("connections were closed because their requests had not arrived")
		return srv.Close()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("server: running requests were cut off: %w", err), srv.Close())
	}
	return nil
}

// endUnread ends a shutdown when only requests that do not arrive are left, after t.
func (s *Server) endUnread(ctx context.Context, t *time.Timer, stop context.CancelFunc) {
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
		if idle == 2 { // in between, the last answers are sent
			stop()
			return
		}
		t.Reset(drainPoll)
	}
}

// mayListen returns an error if an address must not be served.
func (s *Server) mayListen(addr net.Addr) error {
	certificates := s.opts.TLS != nil && s.opts.TLS.ClientAuth == tls.RequireAndVerifyClientCert
	if len(s.gate) > 0 || s.opts.Insecure || certificates || isLocal(addr) {
		return nil
	}
	return fmt.Errorf("server: anybody who can reach %s could take, settle and more: configure access tokens or client certificates, listen on a loopback address, "+
		"or set insecure if that is intended", addr)
}

// isLocal reports whether only programs on this machine can reach an address.
func isLocal(addr net.Addr) bool {
	if a, ok := addr.(*net.TCPAddr); ok {
		return a.IP.IsLoopback()
	}
	return addr.Network() == "unix"
}

// guard refuses requests to a loopback address under another name: a web page can make its own name
// resolve to this address, and then its requests do not come from another origin. If access tokens
// are needed, such a page has none.
func (s *Server) guard(addr net.Addr, h http.Handler) http.Handler {
	if a, ok := addr.(*net.TCPAddr); !ok || !a.IP.IsLoopback() || len(s.gate) > 0 {
		return h
	}
	own := addr.String() // most callers use this name
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != own && r.Host != "" && !isLoopback(r.Host) { // browsers always send it
			writeProblem(w, problem(api.CodeCrossOrigin,
				"this server must be addressed as localhost, not %q: send Host: %s, configure access tokens, or listen on an address that is not loopback", r.Host, own))
			return
		}
		h.ServeHTTP(w, r)
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
