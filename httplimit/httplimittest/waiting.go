package httplimittest

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
)

// req: B7.
func testWaits(e *env) {
	t, h := e.t, e.h
	s := open(t, h, &httplimit.Options{Wait: 10 * time.Second},
		one(newLimiter(t, nil, "per-ip", rate(4, time.Second, 1))))
	start := time.Now()
	for range 4 { // one at once, and three a quarter of a second apart
		s.expect(http.StatusOK, "/").wantHeaders(t, map[string]string{
			"X-RateLimit-Limit":     "4",
			"X-RateLimit-Remaining": "0",
		})
	}
	if d := time.Since(start); d < 600*time.Millisecond {
		t.Errorf("four requests took %v: three of them should have waited", d)
	}
}

// req: B7.
func testWaitsInVain(e *env) {
	t, h := e.t, e.h
	s := open(t, h, &httplimit.Options{Wait: 100 * time.Millisecond},
		one(newLimiter(t, nil, "per-ip", rate(1, time.Hour, 1))))
	s.expect(http.StatusOK, "/")
	if r := s.expect(http.StatusTooManyRequests, "/"); r.problem.Code != httplimit.CodeLimited {
		t.Errorf("problem %s", r.body)
	}
	block := newGate()
	s = open(t, h, &httplimit.Options{Wait: 100 * time.Millisecond}, one(newLimiter(t, nil, "slots", slots(1))),
		Route{Pattern: "/block", Serve: block.serve})
	first := s.begin(t.Context(), "/block")
	block.waitFor(t, 1)
	r := s.expect(http.StatusTooManyRequests, "/") // it may become free at any time, so it waits, and does not
	if after, err := strconv.Atoi(r.header.Get("Retry-After")); err != nil || after != 1 {
		t.Errorf("Retry-After %q, want 1: a slot may become free at any time", r.header.Get("Retry-After"))
	}
	block.open()
	if r := <-first; r.err != nil || r.status != http.StatusOK {
		t.Errorf("the first: %v, %v", r.status, r.err)
	}
}

// req: B7.
func testQueueFull(e *env) {
	t, h := e.t, e.h
	block := newGate()
	m, err := httplimit.New(one(newLimiter(t, nil, "slots", slots(1))),
		&httplimit.Options{Wait: 30 * time.Second, Queue: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := openWith(t, h, m, Route{Pattern: "/block", Serve: block.serve})
	first := s.begin(t.Context(), "/block")
	block.waitFor(t, 1)
	second := s.begin(t.Context(), "/")
	eventually(t, "the second request waits", func() bool { return m.Waiting() == 1 })
	if r := s.expect(http.StatusTooManyRequests, "/"); r.problem.Code != httplimit.CodeQueueFull ||
		r.header.Get("Retry-After") == "" {
		t.Errorf("problem %s", r.body)
	}
	block.open()
	for _, c := range []<-chan result{first, second} {
		if r := <-c; r.err != nil || r.status != http.StatusOK {
			t.Errorf("%v, %v", r.status, r.err)
		}
	}
}

// req: B7.
func testGivesUp(e *env) {
	t, h := e.t, e.h
	block := newGate()
	wait := 30 * time.Second
	if h.Deaf {
		wait = 3 * time.Second // nobody tells it: it gives up by itself, after it was seen to wait
	}
	m, err := httplimit.New(one(newLimiter(t, nil, "slots", slots(1))), &httplimit.Options{Wait: wait})
	if err != nil {
		t.Fatal(err)
	}
	s := openWith(t, h, m, Route{Pattern: "/block", Serve: block.serve})
	first := s.begin(t.Context(), "/block")
	block.waitFor(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	second := s.begin(ctx, "/")
	eventually(t, "the second request waits", func() bool { return m.Waiting() == 1 })
	cancel()
	<-second
	eventually(t, "its place is free", func() bool { return m.Waiting() == 0 })
	block.open()
	<-first
	if s.served.Load() != 0 {
		t.Error("the request of a client that is gone was served")
	}
}

// result is what became of a request that was begun.
type result struct {
	reply
	err error
}

// begin sends a request and does not wait for its answer.
func (s *site) begin(ctx context.Context, path string) <-chan result {
	c := make(chan result, 1)
	go func() {
		r, err := s.try(ctx, http.MethodGet, path)
		c <- result{r, err}
	}()
	return c
}

// gate is a handler that runs until it is opened, or its context ends.
type gate struct {
	in     chan struct{}
	opened chan struct{}
	causes chan error // why contexts ended
}

func newGate() *gate {
	return &gate{in: make(chan struct{}, 100), opened: make(chan struct{}), causes: make(chan error, 100)}
}

func (g *gate) serve(c *Call) {
	g.in <- struct{}{}
	select {
	case <-g.opened:
	case <-c.Context.Done():
		g.causes <- context.Cause(c.Context)
	}
	c.Write("served")
}

func (g *gate) open() { close(g.opened) }

// waitFor waits until n requests are in.
func (g *gate) waitFor(t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case <-g.in:
		case <-time.After(patience):
			t.Fatalf("a request did not reach its handler within %v", patience)
		}
	}
}

// underWay returns how many slots of a limiter are taken, by all who share the key of held.
func underWay(t *testing.T, l *drawgate.Limiter) int64 {
	t.Helper()
	st, err := l.Status(t.Context(), everybody)
	if err != nil {
		t.Fatal(err)
	}
	return st.States[0].Used
}
