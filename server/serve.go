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
)

// The times that a client may take, and how long a stopping server waits for what is under way.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 10 * time.Second // after a take has waited
	idleTimeout   = 2 * time.Minute
	drainTimeout  = 10 * time.Second
	unreadTimeout = 2 * time.Second // of these, for requests that have not arrived
	drainPoll     = 50 * time.Millisecond
)

// maxHeader is how many bytes the headers of a request may have. Proxies pass on those of their
// clients.
const maxHeader = 64 << 10

// Serve answers requests on ln, but for administrators' paths, until ctx ends, then stops
// accepting, lets takes that wait go with a 503, finishes the others, and closes ln. Requests that
// are still being sent have two seconds to arrive. It returns nil when it was stopped by ctx.
//
// Without access tokens and client certificates only loopback addresses are served, unless
// Options.Insecure says otherwise; and there only requests whose Host is a loopback address, or
// localhost, are answered: see [api.CodeCrossOrigin].
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	return s.listen(ctx, ln, s)
}

// ServeAdmin is like Serve for everything, administrators' paths included. It may run beside Serve,
// under the same context.
func (s *Server) ServeAdmin(ctx context.Context, ln net.Listener) error {
	return s.listen(ctx, ln, s.AdminHandler())
}

func (s *Server) listen(ctx context.Context, ln net.Listener, h http.Handler) error {
	if err := s.mayListen(ln.Addr()); err != nil {
		return errors.Join(err, ln.Close())
	}
	s.serving.Add(1)
	defer func() {
		if s.serving.Add(-1) == 0 { // what the other listener has under way is finished first
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
	return s.stop(ctx, srv)
}

// stop finishes what is under way.
func (s *Server) stop(ctx context.Context, srv *http.Server) error {
	s.endWaits()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	go s.endUnread(end, cancel)
	err := srv.Shutdown(end)
	if err != nil && errors.Is(end.Err(), context.Canceled) {
		s.log.Warn("connections were closed whose requests had not arrived")
		return srv.Close()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("server: requests were cut off: %w", err), srv.Close())
	}
	return nil
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

// mayListen reports why an address may not be served.
func (s *Server) mayListen(addr net.Addr) error {
	certificates := s.opts.TLS != nil && s.opts.TLS.ClientAuth == tls.RequireAndVerifyClientCert
	if len(s.gate) > 0 || s.opts.Insecure || certificates || isLocal(addr) {
		return nil
	}
	return fmt.Errorf("server: everybody who reaches %s could take, settle and more: configure access tokens or client certificates, listen on a loopback address, "+
		"or say that it is meant to be insecure", addr)
}

// isLocal reports whether only programs of this machine can reach an address.
func isLocal(addr net.Addr) bool {
	if a, ok := addr.(*net.TCPAddr); ok {
		return a.IP.IsLoopback()
	}
	return addr.Network() == "unix"
}

// guard refuses requests to a loopback address that call it by another name: a web page can let its
// own name point here, and then its requests are not of another origin. Where access tokens are
// needed, such a page has none.
func (s *Server) guard(addr net.Addr, h http.Handler) http.Handler {
	if a, ok := addr.(*net.TCPAddr); !ok || !a.IP.IsLoopback() || len(s.gate) > 0 {
		return h
	}
	own := addr.String() // most callers call it by this
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != own && r.Host != "" && !isLoopback(r.Host) { // browsers always name it
			writeProblem(w, problem(api.CodeCrossOrigin,
				"this server is called localhost, not %q: send Host: %s, configure access tokens, or let it listen on an address that is not loopback", r.Host, own))
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
