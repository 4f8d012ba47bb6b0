package drain

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/internal/pipetest"
)

// caller has one connection, and never makes a second one.
type caller struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func call(t *testing.T, ln *pipetest.Listener) *caller {
	t.Helper()
	conn, err := ln.DialContext(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	return &caller{t, conn, bufio.NewReader(conn)}
}

// ask sends a request, and reports whether its answer closes the connection.
func (c *caller) ask() (last bool) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		c.t.Fatalf("the request was not taken: %v", err)
	}
	res, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Fatalf("the request has no answer: %v", err)
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		c.t.Fatal(err)
	}
	return res.Close
}

// serve starts a server, and returns what ends it.
func serve(t *testing.T, h http.Handler) (ln *pipetest.Listener, end func() time.Duration) {
	t.Helper()
	ln = pipetest.Listen()
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Hour}
	conns := Watch(srv)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	return ln, func() time.Duration {
		began := time.Now()
		deaf := false
		conns.End(context.Background(), func() {
			deaf = true
			_ = ln.Close()
			<-done
		}, nil)
		took := time.Since(began)
		if deaf != (took > 0) {
			t.Errorf("after %v it listens: %v", took, !deaf)
		}
		if err := srv.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		return took
	}
}

// nothing answers at once.
var nothing = http.NotFoundHandler()

// Requests that arrive over idle connections while a server ends are answered, and the answers say
// that they are the last ones. When nobody is connected any more, the server does not wait.
func TestRequestsOnIdleConnectionsAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln, end := serve(t, nothing)
		var all []*caller
		for range 10 {
			c := call(t, ln)
			if c.ask() {
				t.Fatal("the connection is closed before the server ends")
			}
			all = append(all, c)
		}
		took := make(chan time.Duration)
		go func() { took <- end() }()
		synctest.Wait()
		all = append(all, call(t, ln)) // it still listens
		for _, c := range all {
			if !c.ask() {
				t.Error("the answer does not close the connection")
			}
		}
		if d := <-took; d != 0 {
			t.Errorf("it ended after %v, when nobody was connected", d)
		}
	})
}

// An answer that had begun before the server ended could not say that it is the last one: the next
// one on its connection does.
func TestLongAnswersAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln, end := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * time.Second)
		}))
		c := call(t, ln)
		answered := make(chan bool)
		go func() { answered <- c.ask() }()
		synctest.Wait()
		took := make(chan time.Duration)
		go func() { took <- end() }()
		if <-answered {
			t.Error("the answer that had begun closes its connection")
		}
		time.Sleep(grace - 1)
		if !c.ask() {
			t.Error("the next answer does not close the connection")
		}
		if d := <-took; d != 20*time.Second+grace-1 {
			t.Errorf("it ended after %v", d)
		}
	})
}

// Connections that nobody uses keep a server for half a second.
func TestIdleConnectionsKeepNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln, end := serve(t, nothing)
		call(t, ln).ask()
		if d := end(); d != grace {
			t.Errorf("it ended after %v, want %v", d, grace)
		}
	})
}

// A server without connections ends at once, and one that has no more time than that as well.
func TestNothingToWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, end := serve(t, nothing)
		if d := end(); d != 0 {
			t.Errorf("it ended after %v", d)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		srv := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Hour}
		conns := Watch(srv)
		conns.state(nil, http.StateNew)
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		began := time.Now()
		if conns.End(ctx, nil, nil); time.Since(began) != time.Millisecond {
			t.Errorf("it ended after %v", time.Since(began))
		}
	})
}
