package incident_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/incident"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store/memstore"
)

// rig calls a provider whose answers a test chooses, within a quota, and records incidents.
type rig struct {
	*testing.T
	file   string
	rec    *incident.Recorder
	client *outbound.Client
	rt     *outbound.Transport

	mu       sync.Mutex
	answers  func(n int) (status int, body string) // guarded by mu: of the n-th call, from 1
	delay    func(n int) time.Duration             // guarded by mu: until then
	limit    string                                // guarded by mu: of requests a minute, in a header; "" for none
	calls    int                                   // guarded by mu
	reported []api.Incident                        // guarded by mu
	log      bytes.Buffer                          // guarded by mu
}

// Write collects the log.
func (r *rig) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

// quota is a policy of requests and tokens a minute, and of requests a day.
func quota() drawgate.Policy {
	return drawgate.Policy{Name: "gpt-4o", Limits: []drawgate.Limit{
		drawgate.RollingLimit("rpm", 10, time.Minute),
		drawgate.RollingLimit("tpm", 1_000_000, time.Minute).Of(llm.UnitTokens),
		drawgate.RollingLimit("rpd", 1000, 24*time.Hour),
	}}
}

// newRig makes one. opts may be nil.
func newRig(t *testing.T, p drawgate.Policy, opts *incident.Options) *rig {
	t.Helper()
	r := &rig{
		T: t, file: filepath.Join(t.TempDir(), "incidents.jsonl"),
		answers: func(int) (int, string) { return fine() },
	}
	o := incident.Options{Instance: "node-1"}
	if opts != nil {
		o = *opts
	}
	o.File, o.Logger = r.file, slog.New(slog.NewTextHandler(r, nil))
	o.Report = func(in *api.Incident) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.reported = append(r.reported, *in)
	}
	r.rec = incident.New(&o)
	store := memstore.New(nil)
	t.Cleanup(func() { store.Close() })
	lim, err := drawgate.New(store, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lim.Close() })
	quota := outbound.Buckets(func(*outbound.Call) ([]drawgate.Ask, error) {
		return []drawgate.Ask{{Limiter: lim, Key: "project"}}, nil
	})
	r.client = outbound.New(quota, &outbound.Options{
		Upstream: "openai", Observer: r.rec.Observer(),
		Breaker: outbound.Breaker{Failures: -1},
	})
	r.rt = outbound.NewTransport(r.client, llm.OpenAI(), &outbound.TransportOptions{Base: r})
	return r
}

// RoundTrip is the provider.
func (r *rig) RoundTrip(req *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, req.Body)
	r.mu.Lock()
	r.calls++
	n := r.calls
	status, body := r.answers(n)
	delay := r.delay
	header := http.Header{"Content-Type": {"application/json"}}
	if r.limit != "" {
		header.Set("X-Ratelimit-Limit-Requests", r.limit)
	}
	r.mu.Unlock()
	if delay != nil {
		time.Sleep(delay(n))
	}
	return &http.Response{
		StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)),
		Request: req,
	}, nil
}

// answer makes the provider answer so from now on.
func (r *rig) answer(status int, body string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = func(int) (int, string) { return status, body }
}

func fine() (status int, body string) {
	return http.StatusOK, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}`
}

// limited is an error of OpenAI.
func limited(what string, limit, used int, after string) string {
	return fmt.Sprintf(`{"error":{"message":"Rate limit reached for gpt-4o in organization org-x on %s: Limit %d, Used %d, Requested 1. Please try again in %s.","type":"x","code":"rate_limit_exceeded"}}`,
		what, limit, used, after)
}

// call makes a call and reads its answer to the end.
func (r *rig) call(ctx context.Context, prompt string) {
	r.Helper()
	body := fmt.Sprintf(`{"model":"gpt-4o","max_tokens":20,"messages":[{"role":"user","content":%q}]}`, prompt)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://api.openai.com/v1/chat/completions",
		strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.rt.RoundTrip(req)
	if err != nil {
		r.Errorf("the call failed: %v", err)
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
}

// close ends the recorder, so that everything is written, and returns what the file has.
func (r *rig) close() []api.Incident {
	r.Helper()
	if err := r.rec.Close(); err != nil {
		r.Error(err)
	}
	list, skipped, err := incident.Read(r.file)
	if err != nil || skipped != 0 {
		r.Fatalf("%v, %d lines were skipped", err, skipped)
	}
	return list
}

// logged returns the log.
func (r *rig) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}
