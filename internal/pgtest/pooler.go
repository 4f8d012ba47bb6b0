package pgtest

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
)

// Pooler starts a PgBouncer in front of the server, with further settings such as
// "default_pool_size = 1", and stops it at the test's end. It lends a connection to the server for
// one transaction at a time. Pooler returns a URL of the server, such as that of a schema, changed
// so that it leads through PgBouncer.
func (s *Server) Pooler(tb testing.TB, url string, settings ...string) string {
	tb.Helper()
	program := needs.Program(tb, "pgbouncer")
	dir, err := newFolder()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	server, serverPort, _ := net.SplitHostPort(s.Addr)
	file := filepath.Join(dir, "pgbouncer.ini")
	for range 5 { // a port that was free a moment ago may be taken
		addr := redistest.FreeAddr(tb)
		host, port, _ := net.SplitHostPort(addr)
		text := strings.Join(append([]string{
			"[databases]", "* = host=" + server + " port=" + serverPort + " user=postgres",
			"[pgbouncer]", "listen_addr = " + host, "listen_port = " + port, "unix_socket_dir =",
			"auth_type = any", "pool_mode = transaction",
		}, settings...), "\n") + "\n"
		if err = os.WriteFile(file, []byte(text), 0o644); err != nil { // another user reads it
			tb.Fatal(err)
		}
		var p *process
		p, err = start(dir, "process up", program, file)
		if err == nil {
			tb.Cleanup(p.kill)
			return strings.Replace(url, s.Addr, addr, 1)
		}
		p.kill()
	}
	tb.Fatal(err)
	return ""
}
