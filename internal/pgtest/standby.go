package pgtest

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

// Standby starts a server that follows this one, with further settings, and stops it at the test's
// end. Commits do not wait for it. It answers queries that only read.
func (s *Server) Standby(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	standby := &Server{tb: tb, bin: s.bin}
	tb.Cleanup(standby.remove)
	host, port, _ := net.SplitHostPort(s.Addr)
	var err error
	if standby.dir, err = newFolder(); err != nil {
		tb.Fatal(err)
	}
	err = runIn(standby.dir, filepath.Join(s.bin, "pg_basebackup"), "-D", standby.data(), "-R", "--no-sync",
		"--checkpoint=fast", "-h", host, "-p", port, "-U", "postgres", "-w")
	if err == nil {
		err = standby.launch(settings)
	}
	if err != nil {
		tb.Fatal(err)
	}
	until(tb, "the standby follows", func() bool {
		return standby.Do("SELECT status FROM pg_stat_wal_receiver") == "streaming"
	})
	return standby
}

// Promote makes a standby a primary, with what has reached it.
func (s *Server) Promote() {
	s.tb.Helper()
	if s.Do("SELECT pg_promote(true, 120)") != "t" {
		s.tb.Fatalf("the standby is not promoted\n%s", s.proc.out)
	}
}

// until calls f until it reports true.
func until(tb testing.TB, what string, f func() bool) {
	tb.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("not after %v: %s", patience, what)
		}
	}
}
