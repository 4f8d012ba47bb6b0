package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

// downStore is a store that does not answer.
type downStore struct{ drawgate.Store }

func (downStore) err() error {
	return &drawgate.StoreError{Store: "test", Op: "take", Err: errors.New("secret-host: connection refused")}
}

func (s downStore) Take(context.Context, []store.Take, []store.Verdict) error { return s.err() }

func (s downStore) Peek(context.Context, []store.BucketCost, int8, []store.State) error {
	return s.err()
}
func (s downStore) Ping(context.Context) error { return s.err() }

// req: D8
func TestStoreUnavailable(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	f := setup{store: downStore{}, options: &server.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}}.start(t)
	var p api.Problem
	if got := f.do("POST", "/v1/take", `{"policy":"llm","key":"secret-key"}`, &p); got != 503 ||
		p.Code != api.CodeStoreUnavailable || strings.Contains(p.Detail, "secret") {
		t.Errorf("got %d %+v", got, p)
	}
	var h api.Health
	if got := f.do("GET", "/readyz", "", &h); got != 503 || h.Status != "unavailable" ||
		h.Store.Status != "unavailable" || len(h.Policies) != 3 {
		t.Errorf("got %d %+v", got, h)
	}
	if got := f.do("GET", "/healthz", "", &h); got != 200 {
		t.Errorf("/healthz without the store: got %d, want 200", got)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "connection refused") ||
		strings.Contains(text, "secret-key") {
		t.Errorf("log: %s", text)
	}
}

// req: D8
func TestReady(t *testing.T) {
	t.Parallel()
	f := plain(t)
	var h api.Health
	if got := f.do("GET", "/readyz", "", &h); got != 200 || h.Status != "ok" || h.Store.Status != "ok" {
		t.Errorf("got %d %+v", got, h)
	}
}

// A process some of whose policies are decided by fallbacks can decide: it must not be taken out of
// service with all of its like, unless the options say so.
//
// req: D8, B11
func TestReadyWithFallbacks(t *testing.T) {
	t.Parallel()
	limit := policies()[0].Limits[0]
	named := func(name string, fs ...drawgate.Fallback) (p drawgate.Policy) {
		p.Name = name
		for i, f := range fs {
			l := limit
			l.Name, l.Fallback = fmt.Sprintf("l%d", i), f
			p.Limits = append(p.Limits, l)
		}
		return p
	}
	open, share, mixed := named("open", drawgate.FallbackOpen),
		named("share", drawgate.FallbackShare, drawgate.FallbackOpen),
		named("mixed", drawgate.FallbackOpen, drawgate.FallbackClosed)
	mode := func(p *drawgate.Policy, i int) drawgate.Fallback { return p.Limits[i].Fallback }
	for _, c := range []struct {
		store  drawgate.Store
		ps     []drawgate.Policy
		status int
		health api.Status
		states string
		strict bool
	}{
		{
			downStore{},
			[]drawgate.Policy{open, share},
			200, api.StatusDegraded,
			"open:degraded:open share:degraded:sharel1 ", true,
		},
		{
			downStore{},
			[]drawgate.Policy{open, mixed},
			200, api.StatusDegraded,
			"mixed:unavailable:closed open:degraded:open ", false,
		},
		{
			downStore{},
			[]drawgate.Policy{open, mixed},
			503, api.StatusUnavailable,
			"mixed:unavailable:closed open:degraded:open ", true,
		},
		{downStore{}, []drawgate.Policy{mixed}, 503, api.StatusUnavailable, "mixed:unavailable:closed ", false},
		{memstore.New(nil), []drawgate.Policy{open, mixed}, 200, api.StatusOK, "mixed:ok:closed open:ok:open ", true},
	} {
		f := setup{
			store: c.store, config: engine.Config{Policies: enforced(c.ps...)},
			options: &server.Options{Fallback: mode, ReadyAll: c.strict},
		}.start(t)
		var h api.Health
		states := ""
		got := f.do("GET", "/readyz", "", &h)
		for _, s := range h.States {
			states += s.Name + ":" + string(s.Status) + ":" + s.Fallback + strings.Join(s.NotApplied, "-") + " "
		}
		if got != c.status || h.Status != c.health || states != c.states {
			t.Errorf("got %d %+v, want %+v", got, h, c)
		}
	}
	f := setup{
		store: downStore{}, config: engine.Config{Policies: enforced(mixed)},
		options: &server.Options{Fallback: mode},
	}.start(t)
	var p api.Policy
	f.do("POST", "/v1/policies/mixed/disable", `{"for_ms":60000}`, &p)
	var h api.Health
	if got := f.do("GET", "/readyz", "", &h); got != 503 || h.States[0].Status != api.StatusDisabled ||
		h.Store.Status != api.StatusUnavailable {
		t.Errorf("got %d %+v", got, h)
	}
}

// hanging is a store that never answers.
type hanging struct{ drawgate.Store }

func (hanging) Take(ctx context.Context, _ []store.Take, _ []store.Verdict) error {
	<-ctx.Done()
	return ctx.Err()
}

// PEERS.md, line 19: a store that hangs is an answer in time, through every interface, and never a
// yes. In time is when the store's time is over: the clock is the bubble's, in which nothing else
// takes any.
func TestPeers19StoreThatHangsIsAnsweredInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const patience = 50 * time.Millisecond
		s := setup{
			store: hanging{memstore.New(nil)}, config: ruled(),
			engine: &engine.Options{StoreTimeout: patience},
		}.make(t)
		answers := func(method, path, body string, headers ...string) {
			t.Helper()
			begin := time.Now()
			w := ask(s, method, path, body, headers...)
			if w.Code != 503 || !strings.Contains(w.Body.String(), `"code":"`+string(api.CodeStoreUnavailable)+`"`) {
				t.Errorf("%s %s: %d %s", path, body, w.Code, w.Body)
			}
			if d := time.Since(begin); d != patience {
				t.Errorf("%s %s: answered after %v, want %v", path, body, d, patience)
			}
		}
		for _, body := range []string{
			`{"policy":"llm"}`, `{"policy":"slots","hold_ms":1000}`,
			`{"attributes":{"host":"api.example.com"}}`,
		} {
			answers("POST", "/v1/take", body)
		}
		answers("GET", "/auth", "", site("/x", "192.0.2.1")...)
	})
}
