// Package pgtest runs real PostgreSQL servers for tests, and PgBouncer in front of them.
//
// The tests of a package share a server ([Shared]), each with a schema of its own. A test that
// kills its server, or sets it up in another way, has one of its own ([Start]). The package's
// TestMain calls [Run].
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/drawgate/drawgate/internal/redistest"
)

// Server is a PostgreSQL server on a free port of the loopback interface. Everybody who connects
// is its user postgres.
type Server struct {
	Addr string // host:port

	tb     testing.TB
	bin    string // the folder of PostgreSQL's programs
	dir    string // has the folder data
	args   []string
	shared bool
	proc   *process
}

// defaults are the settings of each server. What a server of a test has written is gone with the
// machine anyway, so it need not be on the disk; a commit waits for the file all the same.
var defaults = []string{
	"listen_addresses=127.0.0.1", "unix_socket_directories=",
	"fsync=off", "full_page_writes=off", "synchronous_commit=on", "max_connections=200",
	// In files of the data folder: otherwise a killed server leaves memory behind.
	"dynamic_shared_memory_type=mmap",
	// A standby connects again soon.
	"wal_retrieve_retry_interval=100ms",
}

const patience = 2 * time.Minute

// Start starts a server, with further settings such as "max_connections=10", and stops it at the
// test's end. The test is left out where package needs leaves it out.
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	s := &Server{tb: tb, bin: programs(tb)}
	tb.Cleanup(s.remove)
	if err := s.create(settings); err != nil {
		tb.Fatal(err)
	}
	return s
}

// all is what lasts until the end of the test binary.
var all struct {
	run      bool // Run removes it
	template string
	initOnce sync.Once
	initErr  error

	server    *Server
	startOnce sync.Once
	startErr  error
	idle      chan *pgconn.PgConn // to the shared server
}

// Run runs the tests of a package, and then stops what they shared:
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }
func Run(m *testing.M) int {
	all.run, all.idle = true, make(chan *pgconn.PgConn, 8)
	defer func() {
		if all.server != nil {
			all.server.remove()
		}
		_ = os.RemoveAll(all.template) // "" if there is none
	}()
	return m.Run()
}

// Shared returns the server that all tests of a package share, and starts it if it is the first to
// ask. It runs until the end of [Run].
func Shared(tb testing.TB) *Server {
	tb.Helper()
	bin := programs(tb)
	all.startOnce.Do(func() {
		all.server = &Server{tb: tb, bin: bin, shared: true}
		all.startErr = all.server.create(nil)
	})
	if all.startErr != nil {
		tb.Fatal(all.startErr)
	}
	s := *all.server
	s.tb = tb
	return &s
}

// create starts a new server, with an empty database.
func (s *Server) create(settings []string) error {
	template, err := initialized(s.bin)
	if err != nil {
		return err
	}
	if s.dir, err = newFolder(); err != nil {
		return err
	}
	if err := runIn(s.dir, "cp", "-a", template, s.data()); err != nil {
		return err
	}
	return s.launch(settings)
}

// initialized returns a data folder to copy, because making one takes ten times as long.
func initialized(bin string) (string, error) {
	all.initOnce.Do(func() {
		if !all.run {
			all.initErr = errors.New("TestMain has to call pgtest.Run")
			return
		}
		dir, err := newFolder()
		all.template = dir
		if err == nil {
			err = runIn(dir, filepath.Join(bin, "initdb"), "-D", filepath.Join(dir, "data"),
				"--no-sync", "--no-instructions", "--auth=trust", "--username=postgres",
				"--encoding=UTF8", "--locale=C", "--wal-segsize=1") // it keeps 64 of them, which are 1 GB by default
		}
		all.initErr = err
	})
	return filepath.Join(all.template, "data"), all.initErr
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// launch starts the server on a port that is free.
func (s *Server) launch(more []string) (err error) {
	s.tb.Helper()
	s.args = []string{"-D", s.data()}
	for _, list := range [][]string{defaults, more} {
		for _, setting := range list {
			s.args = append(s.args, "-c", setting)
		}
	}
	for range 5 { // a port that was free a moment ago may be taken
		s.Addr = redistest.FreeAddr(s.tb)
		if err = s.start(); err == nil {
			return nil
		}
		s.kill()
	}
	return err
}

// start starts the processes, and waits until the server answers.
func (s *Server) start() (err error) {
	_, port, _ := net.SplitHostPort(s.Addr)
	// A standby that has all is "ready to accept read-only connections".
	s.proc, err = start(s.dir, "ready to accept", filepath.Join(s.bin, "postgres"), append(s.args, "-p", port)...)
	return err
}

// remove ends the server, and removes its files.
func (s *Server) remove() {
	if s.proc != nil {
		// It collects its children then: whoever gets those of a killed one may leave them as
		// zombies.
		_ = s.proc.cmd.Process.Signal(syscall.SIGQUIT) // it may have ended already
		select {
		case <-s.proc.done:
		case <-time.After(10 * time.Second): // it hangs
		}
	}
	s.kill()
	_ = os.RemoveAll(s.dir) // "" if it has none
}

// kill ends all of the server's processes, also those that hang. Where there is no /proc, all but
// the main one end themselves when they see that it is gone.
func (s *Server) kill() {
	if s.proc == nil {
		return
	}
	_ = s.proc.cmd.Process.Kill() // it may have ended already
	for len(killIn(s.data())) > 0 {
		time.Sleep(time.Millisecond)
	}
	<-s.proc.done
	// The system keeps the memory by which a server knows its processes, also if these are gone.
	lock, _ := os.ReadFile(filepath.Join(s.data(), "postmaster.pid")) // none after a shutdown
	if lines := strings.Split(string(lock), "\n"); len(lines) > 6 {
		if ids := strings.Fields(lines[6]); len(ids) == 2 { // its key and its id
			_ = exec.Command("ipcrm", "-m", ids[1]).Run() // gone if the server has ended by itself
		}
	}
}

// own fails a test that would disturb the others.
func (s *Server) own() {
	s.tb.Helper()
	if s.shared {
		s.tb.Fatal("other tests use this server: start another one by pgtest.Start")
	}
}

// URL returns the server's URL.
func (s *Server) URL() string { return "postgres://postgres@" + s.Addr + "/postgres?sslmode=disable" }

// PID returns the process id of the server's main process, whose children answer.
func (s *Server) PID() int { return s.proc.cmd.Process.Pid }

// Kill9 ends the server as a crash would, with all of its processes.
func (s *Server) Kill9() {
	s.tb.Helper()
	s.own()
	s.kill()
}

// Shutdown ends the server in order, but cuts connections ("fast").
func (s *Server) Shutdown() {
	s.tb.Helper()
	s.own()
	_ = s.proc.cmd.Process.Signal(os.Interrupt) // it may have ended already
	select {
	case <-s.proc.done:
	case <-time.After(patience):
		s.tb.Fatalf("the server does not end\n%s", s.proc.out)
	}
}

// Restart starts the server again, on the same port and with its data: after Kill9, after
// Shutdown, or in place of the running one, which it kills.
func (s *Server) Restart() {
	s.tb.Helper()
	s.own()
	s.kill()
	if err := s.start(); err != nil {
		s.tb.Fatalf("the server does not start again: %v", err)
	}
}

// KillBackend kills the process of one connection, whose id pg_backend_pid() is. The server then
// cuts all connections, and recovers.
func (s *Server) KillBackend(pid int) {
	s.tb.Helper()
	s.own()
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Signal(syscall.SIGKILL)
	}
	if err != nil {
		s.tb.Fatalf("kill -9 %d: %v", pid, err)
	}
}

// schemas numbers the schemas of a test binary.
var schemas atomic.Int64

// Schema makes an empty schema, and returns the server's URL with the schema's name as the
// parameter "schema", which only Drawgate knows. The schema is dropped at the test's end.
func (s *Server) Schema(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("test_%d", schemas.Add(1))
	if _, err := s.try("CREATE SCHEMA " + name); err != nil {
		tb.Fatal(err)
	}
	if s.shared { // another one ends with its test, if it has not been killed
		tb.Cleanup(func() {
			// It would wait for a transaction that the test has left open.
			if _, err := s.try("SET lock_timeout = '30s'; DROP SCHEMA " + name + " CASCADE"); err != nil {
				tb.Error(err)
			}
		})
	}
	return s.URL() + "&schema=" + name
}

// Do runs SQL, and returns the rows as lines of text, with "|" between columns.
func (s *Server) Do(sql string) string {
	s.tb.Helper()
	text, err := s.try(sql)
	if err != nil {
		s.tb.Fatalf("%s on %s: %v", sql, s.Addr, err)
	}
	return text
}

func (s *Server) try(sql string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := s.connect(ctx)
	if err != nil {
		return "", err
	}
	defer s.release(ctx, c)
	return answers(c.Exec(ctx, sql).ReadAll())
}

// connect returns a connection to the server.
func (s *Server) connect(ctx context.Context) (*pgconn.PgConn, error) {
	if s.shared {
		select {
		case c := <-all.idle:
			return c, nil
		default:
		}
	}
	return pgconn.Connect(ctx, s.URL())
}

// release keeps a connection to the shared server for the next one: most of what a short statement
// costs is the process of a new connection.
func (s *Server) release(ctx context.Context, c *pgconn.PgConn) {
	if s.shared && !c.IsClosed() && c.TxStatus() == 'I' {
		if _, err := c.Exec(ctx, "DISCARD ALL").ReadAll(); err == nil {
			select {
			case all.idle <- c:
				return
			default:
			}
		}
	}
	_ = c.Close(ctx) // nobody uses it any more
}

// answers returns the rows of all answers.
func answers(results []*pgconn.Result, err error) (string, error) {
	var lines []string
	for _, result := range results {
		for _, row := range result.Rows {
			var columns []string
			for _, column := range row {
				columns = append(columns, string(column))
			}
			lines = append(lines, strings.Join(columns, "|"))
		}
	}
	return strings.Join(lines, "\n"), err
}
