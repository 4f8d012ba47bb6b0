package httplimit_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
)

// listen starts a server on a loopback address, with HTTP/2 if h2.
func listen(t *testing.T, h http.Handler, h2 bool) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = quiet
	if srv.EnableHTTP2 = h2; h2 {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return srv
}

// reply is what a client sees.
type reply struct {
	status int
	header http.Header
	body   string
}

func get(ctx context.Context, srv *httptest.Server, path string) (reply, error) {
	return do(ctx, srv, http.MethodGet, path, http.NoBody)
}

func do(ctx context.Context, srv *httptest.Server, method, path string, body io.Reader) (r reply, err error) {
	req, err := http.NewRequestWithContext(ctx, method, srv.URL+path, body)
	if err != nil {
		return r, err
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(text)}, err
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func free(t *testing.T, l *drawgate.Limiter) func() bool {
	t.Helper()
	return func() bool {
		st, err := l.Status(t.Context(), "all")
		return err == nil && st.States[0].Used == 0
	}
}

// Streams of one HTTP/2 connection are limited separately, and the end of each is noticed.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	l := limiter(t, policy("slots", slots(1)))
	m := middleware(t, &httplimit.Options{Wait: time.Minute}, httplimit.Bucket{Limiter: l, Key: httplimit.Fixed("all")})
	in := make(chan string, 10)
	srv := listen(t, m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in <- r.Proto
		if r.URL.Path == "/block" {
			<-r.Context().Done()
		}
	})), true)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, _ = get(ctx, srv, "/block") }()
	if p := <-in; p != "HTTP/2.0" {
		t.Fatalf("protocol %s", p)
	}
	leaves, leave := context.WithCancel(t.Context())
	// a body that nobody reads
	go func() { _, _ = do(leaves, srv, http.MethodPost, "/", strings.NewReader(strings.Repeat("x", 1<<20))) }()
	eventually(t, "the second stream waits", func() bool { return m.Waiting() == 1 })
	leave()
	eventually(t, "its place is free", func() bool { return m.Waiting() == 0 })
	cancel()
	eventually(t, "the slot is free", free(t, l))
	if resp, err := get(t.Context(), srv, "/"); err != nil || resp.status != http.StatusOK ||
		resp.header.Get("RateLimit") != `"slots";r=0` {
		t.Errorf("got %v, %v, want 200 and no slot left", resp, err)
	}
}

// TestHijack: the response writer is passed on as it is, so that connections can be taken over, as
// websockets do. The slot is held until the handler returns.
func TestHijack(t *testing.T) {
	t.Parallel()
	l := limiter(t, policy("slots", slots(1)))
	m := middleware(t, nil, httplimit.Bucket{Limiter: l, Key: httplimit.Fixed("all")})
	srv := listen(t, m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Error(err)
		}
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		line, _ := rw.ReadString('\n')
		_, _ = rw.WriteString("echo " + line)
		_ = rw.Flush()
	})), false)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	r := bufio.NewReader(conn)
	if status, err := r.ReadString('\n'); err != nil || !strings.Contains(status, "101") {
		t.Fatalf("status %q, %v", status, err)
	}
	if resp, err := get(t.Context(), srv, "/"); err != nil || resp.status != http.StatusTooManyRequests {
		t.Errorf("while the socket is open: %v, %v", resp, err)
	}
	_, _ = io.WriteString(conn, "hello\n")
	if all, err := io.ReadAll(r); err != nil || !strings.HasSuffix(string(all), "echo hello\n") {
		t.Errorf("got %q, %v, want the echo of hello", all, err)
	}
	eventually(t, "the slot is free", free(t, l))
}

// A handler gets the response writer of the server.
func TestTheWriterIsPassedOn(t *testing.T) {
	t.Parallel()
	for _, p := range []drawgate.Policy{policy("p", rolling(10, time.Minute)), policy("p", slots(1))} {
		w := httptest.NewRecorder()
		one(t, nil, p).Handler(http.HandlerFunc(func(got http.ResponseWriter, _ *http.Request) {
			if got != http.ResponseWriter(w) {
				t.Errorf("the writer is a %T", got)
			}
		})).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	}
}

// A key func of the program can use the client's certificate.
func TestTLSKeys(t *testing.T) {
	t.Parallel()
	byTLS := httplimit.ByUser(func(r *http.Request) string { return tls.VersionName(r.TLS.Version) })
	l := limiter(t, policy("p", rolling(1, time.Hour)))
	srv := listen(t, middleware(t, nil, httplimit.Bucket{Limiter: l, Key: byTLS}).Handler(http.NotFoundHandler()), true)
	for _, want := range []int{http.StatusNotFound, http.StatusTooManyRequests} {
		if resp, err := get(t.Context(), srv, "/"); err != nil || resp.status != want {
			t.Errorf("status %v (%v), want %d", resp, err, want)
		}
	}
}

// A server whose limiter was closed says that it is stopping, also to requests that wait.
func TestClosing(t *testing.T) {
	t.Parallel()
	l := limiter(t, policy("slots", slots(1)))
	m := middleware(t, &httplimit.Options{Wait: time.Minute}, httplimit.Bucket{Limiter: l, Key: httplimit.Fixed("all")})
	srv := listen(t, m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })),
		false)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _, _ = get(ctx, srv, "/") }()
	eventually(t, "the slot is taken", func() bool { return !free(t, l)() })
	answers := make(chan int, 1)
	go func() {
		resp, err := get(t.Context(), srv, "/")
		if err != nil {
			answers <- 0
			return
		}
		answers <- resp.status
	}()
	eventually(t, "the second request waits", func() bool { return m.Waiting() == 1 })
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := <-answers; got != http.StatusServiceUnavailable {
		t.Errorf("status %d, want 503", got)
	}
	resp, err := get(t.Context(), srv, "/")
	if err != nil || resp.status != http.StatusServiceUnavailable || resp.header.Get("Retry-After") != "1" ||
		!strings.Contains(resp.body, `"closing"`) {
		t.Errorf("got %v, %v, want 503 closing with Retry-After: 1", resp, err)
	}
}

// A cancelled request gets no answer and holds nothing. Logs show 499.
func TestCancelledRequestIsNotAnswered(t *testing.T) {
	t.Parallel()
	l := limiter(t, policy("slots", slots(1)))
	m := middleware(t, &httplimit.Options{
		Wait:    time.Minute,
		OnError: func(_ *http.Request, err error) { t.Errorf("reported: %v", err) },
	},
		httplimit.Bucket{Limiter: l, Key: httplimit.Fixed("all")})
	_, first := ask(m)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan httplimit.Pass)
	go func() {
		done <- m.Begin(http.Header{}, httptest.NewRequest(http.MethodGet, "/", http.NoBody).WithContext(ctx))
	}()
	eventually(t, "it waits", func() bool { return m.Waiting() == 1 })
	cancel()
	if p := <-done; p.Problem == nil || p.Problem.Status != 499 || p.Problem.Code != httplimit.CodeCancelled {
		t.Errorf("problem %+v", p.Problem)
	}
	first.End()
	first.End() // again is no harm
	if !free(t, l)() {
		t.Error("something is held")
	}
}

// A handler can tell the end of its request from a lost hold.
func TestHandlersSeeWhyTheirContextEnds(t *testing.T) {
	t.Parallel()
	m := one(t, nil, policy("slots", slots(1)))
	_, p := ask(m)
	ctx := p.Context(t.Context())
	if !p.Held() || ctx.Err() != nil {
		t.Fatalf("held %v, %v", p.Held(), ctx.Err())
	}
	p.End()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, httplimit.ErrHoldLost) {
		t.Errorf("cause %v", err)
	}
	_, p = ask(one(t, nil, policy("p", rolling(1, time.Minute))))
	if p.Held() || p.Context(t.Context()) != t.Context() {
		t.Error("a request that holds nothing has a context of its own")
	}
	p.End()
}
