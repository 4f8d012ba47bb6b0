// Package redistest runs real Redis servers for tests.
package redistest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
)

// Server is its own redis-server process on a free port of the loopback interface, without
// persistence unless its arguments say so.
type Server struct {
	Addr string // host:port

	tb   testing.TB
	dir  string
	args []string
	env  []string
	// it is a Sentinel, which keeps what it knows in its configuration
	sentinel bool
	cmd      *exec.Cmd
	out      *Output
	done     chan struct{} // closed when the process has ended
}

// program is the command that is run: redis-server, or the value of DRAWGATE_REDIS_SERVER, for
// example another version or Valkey.
var program = cmp.Or(os.Getenv("DRAWGATE_REDIS_SERVER"), "redis-server")

// Start starts a server, with further arguments for redis-server, and stops it at the test's end.
// The test is left out where package needs leaves it out.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return launch(&Server{tb: tb, dir: tb.TempDir(), args: args})
}

// StartWith is Start for a server with further variables in its environment.
func StartWith(tb testing.TB, env []string, args ...string) *Server {
	tb.Helper()
	return launch(&Server{tb: tb, dir: tb.TempDir(), args: args, env: env})
}

// launch starts a server on a port that is free.
func launch(s *Server) *Server {
	tb := s.tb
	tb.Helper()
	needs.Program(tb, program)
	tb.Cleanup(s.stop)
	var err error
	for range 5 { // a port that was free a moment ago may be taken
		s.Addr = FreeAddr(tb)
		if err = s.start(); err == nil {
			return s
		}
		s.stop()
	}
	tb.Fatalf("redis-server does not start: %v\n%s", err, s.out)
	return nil
}

// given are the ports that this process was given before.
var given sync.Map

// FreeAddr returns a loopback address on which nobody listens, for a process that is told its port
// and may later use it again. It returns each address once. The system assigns none of these ports
// automatically, as other tests ask it to do all the time; and those above them, by 10,000, are for
// the talk of a cluster's nodes.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	const least, most = 12_000, 22_000
	var err error
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", least+rand.IntN(most-least))
		if _, was := given.LoadOrStore(addr, true); was {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err == nil {
			_ = l.Close()
			return addr
		}
	}
	tb.Fatal(err)
	return ""
}

// start starts the process and waits until it answers.
func (s *Server) start() error {
	_, port, _ := net.SplitHostPort(s.Addr)
	args := append([]string{
		"--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no", "--daemonize", "no",
	}, s.args...)
	ready := "Ready to accept connections"
	if s.sentinel {
		file := filepath.Join(s.dir, "sentinel.conf")
		if err := os.WriteFile(file, []byte("port "+port+"\nbind 127.0.0.1\ndir "+s.dir+"\n"), 0o600); err != nil {
			return err
		}
		args, ready = []string{file, "--sentinel"}, "Sentinel ID is"
	}
	// Another test's server may have taken the port: only what this one writes shows that it has
	// it.
	s.out = NewOutput(ready)
	s.cmd = exec.Command(program, args...)
	s.cmd.Env = append(os.Environ(), s.env...)
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.out
	s.cmd.SysProcAttr = DieWithParent()
	if err := s.cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	s.done = done
	go func(cmd *exec.Cmd) { // ends with the process
		_ = cmd.Wait() // it is killed: its exit code says nothing
		close(done)
	}(s.cmd)
	select {
	case <-s.out.Shown():
		return nil
	case <-done:
		return fmt.Errorf("it ended")
	case <-time.After(patience):
		return fmt.Errorf("it does not come up on %s", s.Addr)
	}
}

const patience = 2 * time.Minute

func (s *Server) stop() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may have ended already
	<-s.done
}

// URL returns the server's URL.
func (s *Server) URL() string { return "redis://" + s.Addr }

// PID returns the server's process id.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Kill9 ends the server as a crash would.
func (s *Server) Kill9() { s.stop() }

// Restart starts the server again, on the same port, after Kill9 or in place of the running one.
func (s *Server) Restart() {
	s.tb.Helper()
	s.stop()
	if err := s.start(); err != nil {
		s.tb.Fatalf("redis-server does not start again: %v\n%s", err, s.out)
	}
}

// Stop makes the server hang (SIGSTOP): connections stay open, and nothing answers.
func (s *Server) Stop() {
	s.tb.Helper()
	Hang(s.tb, s.PID())
}

// Continue lets a stopped server continue.
func (s *Server) Continue() {
	s.tb.Helper()
	Resume(s.tb, s.PID())
}

// CPU returns the processor time that the server has used.
func (s *Server) CPU() time.Duration {
	s.tb.Helper()
	return cpuTime(s.tb, s.PID())
}
