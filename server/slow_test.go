package server_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/server"
)

// connect opens a connection and sends text.
func (f fixture) connect(text string) net.Conn {
	f.t.Helper()
	c, err := (&net.Dialer{}).DialContext(f.t.Context(), "tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		f.t.Fatal(err)
	}
	return c
}

// Clients that do not get on do not disturb others: they say nothing, half of a header, half of a
// body, or never read what is answered.
func TestSlowClientsDoNotDisturbOthers(t *testing.T) {
	t.Parallel()
	f, stop := serve(t, setup{}.make(t))
	const each = 50
	for range each {
		f.connect("")
		f.connect("POST /v1/ta")
		f.connect("POST /v1/take HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
		// a megabyte that nobody reads
		f.connect(strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n", 20))
	}
	took := make([]time.Duration, 50)
	for i := range took {
		begin := time.Now()
		if a := f.take(fmt.Sprintf(`{"policy":"llm","key":"k%d"}`, i)); !a.Allowed {
			t.Errorf("got %+v", a)
		}
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	if most := took[len(took)*9/10]; most > 2*time.Second { // a busy machine may keep some of them
		t.Errorf("a tenth of the others took %v and more", most)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// What does not arrive in time is cut off, so that half-open connections do not pile up.
func TestWhatDoesNotArriveIsCutOff(t *testing.T) {
	t.Parallel()
	s := setup{}.make(t)
	s.SetReadTimeout(100 * time.Millisecond)
	f, stop := serve(t, s)
	for _, text := range []string{
		"POST /v1/ta",
		"POST /v1/take HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
	} {
		c := f.connect(text)
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		// What has come and was not read when the time was over is answered with a reset.
		if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%q: it was not closed: %v", text, err)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestHugeHeadersAreRefused(t *testing.T) {
	t.Parallel()
	f, stop := serve(t, setup{}.make(t))
	for size, want := range map[int]int{32 << 10: 200, 1 << 20: 431} {
		c := f.connect("")
		go func() {
			_, _ = fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nCookie: %s\r\n\r\n",
				strings.Repeat("c", size))
		}()
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%d bytes: %v", size, err)
			continue
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%d bytes: %d, want %d", size, res.StatusCode, want)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A client that announces a megabyte and vanishes, and one that says nothing sensible at all.
func TestBrokenRequestsAreNotAnErrorOfOurs(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	f, stop := serve(t, setup{options: &server.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}}.make(t))
	for _, text := range []string{
		"POST /v1/take HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n\r\n{", "\x16\x03\x01\x00\xa5\x01",
		"GET\r\n\r\n",
		"POST /v1/take HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"POST /v1/take HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
	} {
		_ = f.connect(text).Close()
	}
	if a := f.take(`{"policy":"llm"}`); !a.Allowed {
		t.Errorf("got %+v", a)
	}
	if got := f.used("llm", api.DefaultKey)["rpm"]; got != 1 {
		t.Errorf("%d used, want 1", got)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if strings.Contains(log.String(), "level=ERROR") || strings.Contains(log.String(), "panic") {
		t.Errorf("log:\n%s", &log)
	}
}
