// Package awstest runs stand-ins for AWS in tests: dynalite and moto, which "make deps" installs.
//
// Neither is DynamoDB. Dynalite's conditional updates are atomic, and it counts capacity; it has no
// transactions and no TTL, and does not send the old item when a condition fails. moto has all of
// these, and CloudWatch, SNS and CloudFormation; it handles one request at a time here, because its
// conditional updates are not atomic otherwise.
package awstest

import (
	"bufio"
	_ "embed"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
)

// Server is a process of its own on a free port of the loopback interface. Any credentials and any
// region will do.
type Server struct {
	URL  string
	Name string // "dynalite" or "moto"

	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

//go:embed moto.py
var moto string

// lostRequests lets a dynalite go on after a request has been cut off while it came in, which it
// throws as an error that nothing catches.
const lostRequests = "data:text/javascript,process.on('uncaughtException',(err)=>" +
	"{if(err.code!=='ECONNRESET'){console.error(err);process.exit(1)}})"

// Dynalite starts a dynalite, and stops it at the test's end.
func Dynalite(tb testing.TB) *Server {
	tb.Helper()
	var s *Server
	for range 5 { // a port that was free a moment ago may be taken
		addr := redistest.FreeAddr(tb)
		host, port, _ := net.SplitHostPort(addr)
		s = start(tb, "dynalite", regexp.MustCompile(`listening at: (http://\S+)`), needs.Tool(tb, "node/bin/node"),
			"--import", lostRequests, needs.Tool(tb, "aws-node/node_modules/dynalite/cli.js"), "--host", host, "--port", port, "--createTableMs",
			"0", "--deleteTableMs", "0", "--updateTableMs", "0")
		if s.URL != "" {
			return s
		}
	}
	tb.Fatal("dynalite does not start")
	return nil
}

// Moto starts a moto, and stops it at the test's end.
func Moto(tb testing.TB) *Server {
	tb.Helper()
	s := start(tb, "moto", regexp.MustCompile(`listening on (\d+)`), needs.Tool(tb, "aws-python/bin/python"), "-I",
		"-c", moto)
	if s.URL == "" {
		tb.Fatal("moto does not start")
	}
	s.URL = "http://127.0.0.1:" + s.URL
	return s
}

// CFNLint returns the path of cfn-lint.
func CFNLint(tb testing.TB) string {
	tb.Helper()
	return needs.Tool(tb, "aws-python/bin/cfn-lint")
}

// patience is how long to wait for something that must happen.
const patience = 5 * time.Minute

// start starts a program and waits for a line of its output that matches. The first group is the
// server's URL; that is empty if the program ends instead.
func start(tb testing.TB, name string, ready *regexp.Regexp, program string, args ...string) *Server {
	tb.Helper()
	s := &Server{Name: name, cmd: exec.Command(program, args...), done: make(chan struct{})} //nolint:gosec,noctx // one of the programs above, which ends with the test
	s.cmd.SysProcAttr = redistest.DieWithParent()
	s.cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test")
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	var complaints strings.Builder
	s.cmd.Stderr = &complaints
	if err := s.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	up := make(chan string, 1)
	go func() { // ends with the process
		defer close(s.done)
		for l := bufio.NewScanner(out); l.Scan(); {
			if m := ready.FindStringSubmatch(l.Text()); m != nil {
				up <- m[1]
			}
		}
		_ = s.cmd.Wait() // it is killed: its exit code says nothing
	}()
	stop := sync.OnceFunc(func() {
		select {
		case <-s.done:
			tb.Logf("%s had ended before its test: %v\n%s", name, s.cmd.ProcessState, complaints.String())
		default:
		}
		_ = s.cmd.Process.Kill() // it may have ended already
		<-s.done
	})
	tb.Cleanup(stop)
	select {
	case s.URL = <-up:
	case <-s.done:
		tb.Logf("%s has ended:\n%s", name, complaints.String())
	case <-time.After(patience):
		stop()
		tb.Fatalf("%s does not come up:\n%s", name, complaints.String())
	}
	return s
}

// PID returns the process's id.
func (s *Server) PID() int { return s.cmd.Process.Pid }
