package server_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/pipetest"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

func TestStoppingLetsWaitersGo(t *testing.T) {
	t.Parallel()
	s := setup{}.make(t)
	f, stop := serve(t, s)
	f.take(`{"policy":"slots","hold_ms":600000}`)
	type result struct {
		status int
		p      api.Problem
	}
	done := make(chan result, 1)
	go func() {
		var r result
		r.status = f.do("POST", "/v1/take", `{"policy":"slots","hold_ms":1000,"wait_ms":600000}`, &r.p)
		done <- r
	}()
	f.waitFor(func(h api.Health) bool { return h.Waiting == 1 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if r := <-done; r.status != 503 || r.p.Code != api.CodeClosing {
		t.Errorf("got %d %+v", r.status, r.p)
	}
	if _, err := f.ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it still listens: %v", err)
	}
}

// Requests that do not arrive neither keep a server that has to stop, nor are they a failure; those
// that have arrived are finished.
func TestStoppingDoesNotWaitForWhatIsNotSent(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	store := newSlow()
	s := setup{
		store: store, engine: &engine.Options{StoreTimeout: -1},
		options: &server.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))},
	}.make(t)
	f, stop := serve(t, s)
	for _, text := range []string{
		"", "POST /v1/ta",
		"POST /v1/take HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
	} {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(f.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	done := later(f)
	<-store.asked
	if err := stop(); err != nil { // also if it waited for as long as it may
		t.Error(err)
	}
	if a := <-done; !a.Allowed {
		t.Errorf("got %+v", a)
	}
	if !strings.Contains(log.String(), "had not arrived") {
		t.Errorf("log: %s", &log)
	}
}

// A take that is sent over an idle connection of a server that stops is answered, and the answer
// says that it is the last one.
func TestStoppingAnswersOnOpenConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := setup{store: remote{memstore.New(nil)}}.make(t)
		ln := pipetest.Listen()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx, ln) }()
		conns := 0
		rt := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conns++
			return ln.DialContext(ctx, network, addr)
		}}
		take := func() bool {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v1/take",
				strings.NewReader(`{"policy":"llm","wait_ms":60000}`))
			if err != nil {
				t.Fatal(err)
			}
			res, err := rt.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }()
			if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
				t.Errorf("got %s, %v", res.Status, err)
			}
			return res.Close
		}
		if take() {
			t.Error("the server closes a connection before it stops")
		}
		stop()
		synctest.Wait()
		if !take() {
			t.Error("the last answer does not say that it is the last one")
		}
		if conns != 1 {
			t.Errorf("%d connections, want one", conns)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Callers that use their connections one after another are all answered, however long that takes
// them in all, and nothing is said about requests that did not arrive.
func TestStoppingWaitsForConnectionsInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &bytes.Buffer{}
		s := setup{
			store: memstore.New(nil), options: &server.Options{Logger: slog.New(slog.NewTextHandler(log, nil))},
		}.make(t)
		ln := pipetest.Listen()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx, ln) }()
		take := func(conn net.Conn, in *bufio.Reader) {
			t.Helper()
			const text = "POST /v1/take HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\n\r\n" + `{"policy":"llm"}`
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatalf("the take was not read: %v", err)
			}
			res, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("the take has no answer: %v", err)
			}
			defer func() { _ = res.Body.Close() }()
			if _, err := io.Copy(io.Discard, res.Body); err != nil {
				t.Fatal(err)
			}
		}
		conns := map[net.Conn]*bufio.Reader{}
		for range 20 {
			conn, err := ln.DialContext(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			conns[conn] = bufio.NewReader(conn)
			take(conn, conns[conn])
		}
		stop()
		for conn, in := range conns {
			time.Sleep(400 * time.Millisecond)
			take(conn, in)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if strings.Contains(log.String(), "not arrived") {
			t.Errorf("log: %s", log)
		}
	})
}

// later takes in the background. The answer is the zero one if there is none.
func later(f fixture) <-chan api.Answer {
	answer := make(chan api.Answer, 1)
	go func() {
		defer close(answer)
		answer <- f.take(`{"policy":"llm"}`)
	}()
	return answer
}

// slow is a store that needs longer than requests have to arrive.
type slow struct {
	store.Store
	asked chan struct{} // one for each take that has begun
}

func newSlow() slow { return slow{memstore.New(nil), make(chan struct{}, 10)} }

func (s slow) Take(ctx context.Context, takes []store.Take, out []store.Verdict) error {
	s.asked <- struct{}{}
	time.Sleep(3 * time.Second)
	return s.Store.Take(ctx, takes, out)
}

// remote is a store that takes a while, and nothing if nobody waits for it.
type remote struct{ store.Store }

func (r remote) Take(ctx context.Context, takes []store.Take, out []store.Verdict) error {
	select {
	case <-time.After(5 * time.Millisecond):
		return r.Store.Take(ctx, takes, out)
	case <-ctx.Done():
		return &drawgate.StoreError{Store: "test", Op: "take", Err: ctx.Err()}
	}
}

// A page whose own name points at this machine must not spend its units.
func TestOtherNamesOfALoopbackAddressAreNotServed(t *testing.T) {
	t.Parallel()
	s := setup{}.make(t)
	f, stop := serve(t, s)
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:7878": 200, "127.0.0.1:1": 200, "127.9.9.9": 200, "[::1]:7878": 200, "[::1]": 200,
		"rebound.example": 403, "rebound.example:7878": 403, "localhost.example": 403, "192.0.2.1": 403,
		"127.0.0.1.example:80": 403,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != want || want == 403 && !strings.Contains(string(body), "localhost") {
			t.Errorf("%s: %d %s", host, res.StatusCode, body)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// What one listener has under way is finished though the other has stopped.
func TestListenersStopTogether(t *testing.T) {
	t.Parallel()
	store := newSlow()
	s := setup{store: store, engine: &engine.Options{StoreTimeout: -1}}.make(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	var urls []string
	for _, run := range []func(context.Context, net.Listener) error{s.Serve, s.ServeAdmin} {
		ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, "http://"+ln.Addr().String())
		go func() { done <- run(ctx, ln) }()
	}
	public, admin := fixture{t: t, url: urls[0], srv: s}, fixture{t: t, url: urls[1], srv: s}
	var p api.Problem
	if got := public.do("POST", "/v1/reload", "", &p); got != 404 || !strings.Contains(p.Detail, "admin listener") {
		t.Errorf("got %d %+v", got, p)
	}
	if got := admin.do("POST", "/v1/reload", "", &p); got != 501 {
		t.Errorf("got %d %+v", got, p)
	}
	answer := later(admin)
	<-store.asked
	cancel()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if a := <-answer; !a.Allowed {
		t.Errorf("got %+v", a)
	}
	if w := ask(s, "POST", "/v1/take", `{"policy":"llm"}`); w.Code != 503 ||
		!strings.Contains(w.Body.String(), string(api.CodeClosing)) {
		t.Errorf("a server that has stopped: %d %s", w.Code, w.Body)
	}
}
