package main

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/server"
)

// attributeNames are the names of --attr that stand for themselves.
var attributeNames = []string{"method", "path", "host", "route", "ip", "user", "class"}

// attributes reads --attr.
func attributes(list []string) (*api.Attributes, error) {
	at := &api.Attributes{Headers: map[string]string{}, Attrs: map[string]string{}}
	fields := []*string{&at.Method, &at.Path, &at.Host, &at.Route, &at.IP, &at.User, &at.Class}
	given := map[string]bool{}
	for _, text := range list {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, usage("--attr %q is not of the form NAME=VALUE, such as path=/v1/x", text)
		}
		if given[name] {
			return nil, usage("--attr %s is given twice", name)
		}
		given[name] = true
		if i := slices.Index(attributeNames, name); i >= 0 {
			*fields[i] = value
			continue
		}
		kind, part, _ := strings.Cut(name, ".")
		switch {
		case kind == "headers" && part != "":
			at.Headers[part] = value
		case kind == "attrs" && part != "":
			at.Attrs[part] = value
		default:
			return nil, usage("--attr %s: the names are %s, headers.NAME for a header, and attrs.NAME for an attribute of your own", name, strings.Join(attributeNames, ", "))
		}
	}
	return at, nil
}

// explainByRules says which rules match a request, and what the buckets that they choose would answer: those of a server, or those of the store that the
// configuration names.
func (a *app) explainByRules(cmd *cobra.Command, f *askFlags, attrs []string) error {
	at, err := attributes(attrs)
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("policy") || cmd.Flags().Changed("key") {
		return usage("give either --attr, by which the rules choose, or --policy and --key")
	}
	costs, err := f.cost(cmd.Flags().Changed("requests"))
	if err != nil {
		return err
	}
	q := api.ExplainRequest{Bucket: api.Bucket{Costs: costsOf(costs)}, Attributes: at, Priority: f.priority}
	if a.serverURL() == "" {
		return a.explainHere(cmd, q)
	}
	if a.tenant != "" {
		return usage("give either --attr or --tenant: a server's rules say whose buckets they choose")
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	w, err := c.Explain(cmd.Context(), q)
	return a.explanation(&w, err)
}

// explainHere asks a server that nobody else can reach: what it says is what drawgate serve would.
func (a *app) explainHere(cmd *cobra.Command, q api.ExplainRequest) error {
	s, err := a.resolve(a.flags)
	if err != nil {
		return err
	}
	if s.off {
		a.answer(allowedOff)
		return nil
	}
	log := slog.New(slog.NewTextHandler(a.errOut, &slog.HandlerOptions{Level: slog.LevelWarn}))
	store, err := s.store(log)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }() // nothing was changed
	rules, err := a.inProcess(&s, store, log)
	if err != nil {
		return err
	}
	a.caution(&s)
	c, err := client.New("http://drawgate", &client.Options{HTTPClient: &http.Client{Transport: rules}})
	if err != nil {
		return err
	}
	w, err := c.Explain(cmd.Context(), q)
	result := a.explanation(&w, err)
	if err == nil && !a.json {
		a.printf("Store: %s.\n", config.RedactURL(s.Store))
	}
	return result
}

// inProcess returns a server of the rules and policies in s, which is asked without a network.
func (a *app) inProcess(s *settings, store drawgate.Store, log *slog.Logger) (*inProcess, error) {
	c, _, err := compile(s.Config)
	if err != nil {
		return nil, err
	}
	e, err := engine.New(store, c, &engine.Options{Tenant: a.tenant, StoreTimeout: storeTimeout, Logger: log})
	if err != nil {
		return nil, err
	}
	h, err := server.New(e, store, &server.Options{Tenant: a.tenant, Class: s.APIKeys.Class, Logger: log})
	if err != nil {
		return nil, err
	}
	return &inProcess{h}, switchOff(e, s)
}

// inProcess is a server that is asked without a network, for one client.
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
