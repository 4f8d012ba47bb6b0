package main

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store"
)

// inProcess returns a server with the rules and policies of s that is called without a network.
func (a *app) inProcess(s *settings, store store.Store, log *slog.Logger) (*inProcess, error) {
	e, err := a.engine(s, store, log)
	if err != nil {
		return nil, err
	}
	h, err := server.New(e, store, &server.Options{Tenant: a.tenant, Class: s.APIKeys.Class, Logger: log})
	if err != nil {
		return nil, err
	}
	return &inProcess{h}, nil
}

// administer returns a server of an open store with the paths for administrators, called without a
// network, and what ends it.
func (s *session) administer(ups []api.Upstream) (_ *inProcess, end func(), err error) {
	h, err := server.New(s.engine, s.opened, &server.Options{
		Tenant: s.tenant, UsageEvery: usageEvery(s.Store),
		Upstreams: func() []api.Upstream { return ups },
	})
	if err != nil {
		return nil, nil, err
	}
	return &inProcess{h.AdminHandler()}, func() { _ = h.Close() }, nil
}

// engine returns an engine with the rules and policies of s, as a server uses it.
func (a *app) engine(s *settings, store store.Store, log *slog.Logger) (*engine.Engine, error) {
	if _, err := loadEnvoy(s.Config); err != nil {
		return nil, err
	}
	return engine.New(store, s.Engine(), &engine.Options{
		Tenant: a.tenant, StoreTimeout: storeTimeout,
		ShadowGrace: storeTimeout, Logger: log,
	})
}

// inProcess is a server that one client calls without a network.
type inProcess struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (p *inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &written{header: http.Header{}, status: http.StatusOK}
	p.handler.ServeHTTP(w, r)
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r,
	}, nil
}

// written is an answer that was written to memory.
type written struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *written) Header() http.Header         { return w.header }
func (w *written) WriteHeader(status int)      { w.status = status }
func (w *written) Write(b []byte) (int, error) { return w.body.Write(b) }
