package server_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/internal/syncbuffer"
	"github.com/drawgate/drawgate/server"
)

func TestFailuresOfClientsAreSampledInTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		l := server.NewErrorLog(slog.New(slog.NewTextHandler(&b, nil)))
		flood := func(n int) (text string) {
			b.Reset()
			for i := range n {
				l.Printf("http: TLS handshake error from 192.0.2.1:%d: EOF", i)
			}
			return b.String()
		}
		if text := flood(1000); strings.Count(text, "\n") != 1 || !strings.Contains(text, "192.0.2.1:0") ||
			!strings.Contains(text, "not_logged=0") {
			t.Errorf("the first ones:\n%s", text)
		}
		time.Sleep(10*time.Second - time.Millisecond)
		if text := flood(1); text != "" {
			t.Errorf("too early:\n%s", text)
		}
		time.Sleep(time.Millisecond)
		if text := flood(1000); strings.Count(text, "\n") != 1 || !strings.Contains(text, "not_logged=1000") {
			t.Errorf("ten seconds later:\n%s", text)
		}
		b.Reset()
		for range 3 {
			l.Print("http: panic serving 192.0.2.1:1: oops\ngoroutine 1")
			l.Print("http2: panic serving 192.0.2.1:1: oops\ngoroutine 1")
			l.Print("http: Accept error: too many open files; retrying in 1s")
		}
		if n := strings.Count(b.String(), "level=WARN"); n != 9 {
			t.Errorf("%d of 9 lines that are no client's doing:\n%s", n, b.String())
		}
	})
}

// TestFailedHandshakesAreSampled with real connections that speak no TLS.
func TestFailedHandshakesAreSampled(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("server", "server")
	cfg, err := server.LoadTLS(server.TLSFiles{Cert: a.path("server.pem"), Key: a.path("server.key")})
	if err != nil {
		t.Fatal(err)
	}
	var b syncbuffer.Buffer
	f, stop := serve(t, setup{options: &server.Options{
		TLS:    cfg,
		Logger: slog.New(slog.NewTextHandler(&b, nil)),
	}}.make(t))
	const n = 40
	start := time.Now()
	for range n {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(f.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprint(c, "GET / HTTP/1.1\r\n\r\n")
		_, _ = c.Read(make([]byte, 100)) // until the server has seen it
		_ = c.Close()
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	most := 1 + int(time.Since(start)/(10*time.Second))
	if logged := strings.Count(b.String(), "TLS handshake error"); logged < 1 || logged > most {
		t.Errorf("%d of %d failures are logged, want 1 to %d:\n%s", logged, n, most, b.String())
	}
}
