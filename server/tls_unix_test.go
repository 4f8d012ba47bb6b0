//go:build unix

package server_test

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/drawgate/drawgate/internal/syncbuffer"
	"github.com/drawgate/drawgate/server"
)

// A named pipe in the place of a certificate would keep all handshakes waiting for a writer. The
// test's time-out is what would notice.
func TestTLSOpensNoNamedPipes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"server.pem", "server.key", "ca.pem"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAuthority(t)
			a.issue("server", "first")
			a.issue("client", "client")
			var log syncbuffer.Buffer
			files := server.TLSFiles{
				Cert: a.path("server.pem"), Key: a.path("server.key"), ClientCA: a.path("ca.pem"),
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
			}.Often()
			cfg, err := server.LoadTLS(files)
			if err != nil {
				t.Fatal(err)
			}
			f, stop := serve(t, setup{options: &server.Options{TLS: cfg}}.make(t))
			if err := errors.Join(os.Remove(a.path(name)), syscall.Mkfifo(a.path(name), 0o600)); err != nil {
				t.Fatal(err)
			}
			if who, _, err := get(t, a.client("client"), strings.Replace(f.url, "http:", "https:", 1)); err != nil ||
				who != "first" {
				t.Errorf("got %q, %v", who, err)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			if text := log.String(); !strings.Contains(text, "the old one stays") ||
				!strings.Contains(text, "a named pipe") {
				t.Errorf("log:\n%s", text)
			}
			if _, err := server.LoadTLS(files); err == nil || !strings.Contains(err.Error(), "a named pipe") {
				t.Errorf("at the start: %v", err)
			}
		})
	}
}
