package httplimittest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/store/memstore"
)

// site is a server with a limited page, and a client of it.
type site struct {
	t      *testing.T
	url    string
	client *http.Client
	served atomic.Int64 // requests that reached the plain page
}

// pages are the routes that every test has.
func (s *site) pages(more []Route) []Route {
	plain := func(c *Call) {
		s.served.Add(1)
		c.Write("served")
	}
	return append([]Route{
		{Pattern: "/", Serve: plain},
		{Pattern: "/health", Serve: plain},
		{Pattern: "/healthz/live", Serve: plain},
		{Pattern: "/things/{id}", Serve: plain},
		{Pattern: "/others/{id}", Serve: plain},
		{Pattern: "/panic", Serve: func(*Call) { panic("a test: the handler panics") }}, //nolint:forbidigo // it is what is tested
	}, more...)
}

func open(t *testing.T, h Harness, opts *httplimit.Options, buckets []httplimit.Bucket, more ...Route) *site {
	t.Helper()
	m, err := httplimit.New(buckets, opts)
	if err != nil {
		t.Fatal(err)
	}
	return openWith(t, h, m, more...)
}

func openWith(t *testing.T, h Harness, m *httplimit.Middleware, more ...Route) *site {
	t.Helper()
	s := &site{t: t}
	s.url = h.Serve(t, m, s.pages(more))
	transport := &http.Transport{}
	s.client = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	return s
}

// reply is what a client sees.
type reply struct {
	status  int
	header  http.Header
	body    string
	problem httplimit.Problem
}

// get asks for a path; headers are names and values in turn.
func (s *site) get(path string, headers ...string) reply {
	s.t.Helper()
	return s.do(s.t.Context(), http.MethodGet, path, headers...)
}

func (s *site) do(ctx context.Context, method, path string, headers ...string) reply {
	s.t.Helper()
	r, err := s.try(ctx, method, path, headers...)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

func (s *site) try(ctx context.Context, method, path string, headers ...string) (r reply, err error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, http.NoBody)
	if err != nil {
		return r, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return r, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	r = reply{status: resp.StatusCode, header: resp.Header, body: string(body)}
	if resp.Header.Get("Content-Type") == httplimit.ProblemType && len(body) > 0 {
		err = errors.Join(err, json.Unmarshal(body, &r.problem))
	}
	return r, err
}

// expect fails the test unless a request has this status.
func (s *site) expect(want int, path string, headers ...string) reply {
	s.t.Helper()
	r := s.get(path, headers...)
	if r.status != want {
		s.t.Fatalf("GET %s %v: status %d (%s), want %d", path, headers, r.status, r.body, want)
	}
	return r
}

// patience is how long is waited for what a busy machine may be late with.
const patience = time.Minute

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// newLimiter returns a limiter over a store of its own in memory, which wrap may change.
func newLimiter(t *testing.T, wrap func(drawgate.Store) drawgate.Store, name string,
	limits ...drawgate.Limit,
) *drawgate.Limiter {
	t.Helper()
	mem := memstore.New(nil)
	var store drawgate.Store = mem
	if wrap != nil {
		store = wrap(mem)
	}
	l, err := drawgate.New(store, drawgate.Policy{Name: name, Limits: limits}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(); _ = mem.Close() })
	return l
}

func with(t *testing.T, l *drawgate.Limiter, name string, limits ...drawgate.Limit) *drawgate.Limiter {
	t.Helper()
	o, err := l.With(drawgate.Policy{Name: name, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func rate(n int64, window time.Duration, burst int64) drawgate.Limit {
	return drawgate.Limit{Name: "rate", Kind: drawgate.Bucket, Amount: n, Window: window, Burst: burst}
}

func slots(n int64) drawgate.Limit {
	return drawgate.Limit{Name: "slots", Kind: drawgate.Concurrency, Amount: n}
}

func one(l *drawgate.Limiter) []httplimit.Bucket { return []httplimit.Bucket{{Limiter: l}} }
