package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/drawgate/drawgate/internal/drain"
)

// Time limits for clients. Requests and answers have their own, piece by piece.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
	cutTime       = 5 * time.Second // to tell callers whose answers are cut off
)

// errCut ends calls that have not ended when a handler that stops waits no longer.
var errCut = errors.New("gateway: this process is stopping, and the answer was cut off")

// Serve answers requests on ln until ctx ends. Then it refuses calls that wait in the queue, closes
// ln within half a second, lets running calls end for [Options].Drain, and their callers use their
// connections once more, and cuts off what is left. A stream of events that is cut off ends with an
// event that is an error. It returns nil if it was stopped by ctx and nothing was cut off.
func (h *Handler) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		// about connections, as often as clients like
		ErrorLog: slog.NewLogLogger(h.opts.Logger.Handler(), slog.LevelDebug),
	}
	conns := drain.Watch(srv)
	serve := srv.Serve
	if h.opts.TLS != nil {
		srv.TLSConfig = h.opts.TLS.Clone()
		serve = func(ln net.Listener) error { return srv.ServeTLS(ln, "", "") }
	}
	done := make(chan error, 1)
	go func() { done <- serve(ln) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	_ = h.Close() // it has no error
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.opts.Drain)
	defer cancel()
	conns.End(end, func() {
		_ = ln.Close() // it has no error that matters
		h.opts.Logger.Debug("no longer listening", "address", ln.Addr().String(), "reason", <-done)
	}, nil)
	err := srv.Shutdown(end)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("gateway: running answers were cut off after %v: %w", h.opts.Drain, err)
	h.cut(errCut)
	end, cancel = context.WithTimeout(context.WithoutCancel(ctx), cutTime)
	defer cancel()
	if srv.Shutdown(end) != nil { // callers that do not read
		return errors.Join(err, srv.Close())
	}
	return err
}

// Close refuses calls that wait in the queue, and all later ones that would. Running calls end by
// themselves.
func (h *Handler) Close() error {
	h.stop()
	h.notice.Lock()
	h.stopNotice()
	h.notice.Unlock()
	h.state.Load().closeKeys(nil)
	if h.asks != nil {
		h.asks.CloseIdleConnections()
	}
	if h.own != nil {
		h.own.CloseIdleConnections()
	}
	return nil
}
