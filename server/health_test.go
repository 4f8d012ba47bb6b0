package server_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/server"
)

// away is a store that does not answer.
type away struct{ drawgate.Store }

func (away) err() error {
	return &drawgate.StoreError{Store: "test", Op: "take", Err: errors.New("secret-host: connection refused")}
}

func (s away) Take(context.Context, []drawgate.Take, []drawgate.Decision) error { return s.err() }

func (s away) Peek(context.Context, []drawgate.BucketCost, int8, []drawgate.Status) error {
	return s.err()
}
func (s away) Ping(context.Context) error { return s.err() }

// req: D8
func TestStoreAway(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	f := setup{store: away{}, options: &server.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}}.start(t)
	var p api.Problem
	if got := f.do("POST", "/v1/take", `{"policy":"llm","key":"secret-key"}`, &p); got != 503 || p.Code != api.CodeStoreAway || strings.Contains(p.Detail, "secret") {
		t.Errorf("got %d %+v", got, p)
	}
	var h api.Health
	if got := f.do("GET", "/readyz", "", &h); got != 503 || h.Status != "away" || h.Store.Status != "away" || len(h.Policies) != 3 {
		t.Errorf("got %d %+v", got, h)
	}
	if got := f.do("GET", "/healthz", "", &h); got != 200 {
		t.Errorf("a process whose store is away is alive: got %d", got)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "connection refused") || strings.Contains(text, "secret-key") {
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
