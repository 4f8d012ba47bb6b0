package celerytest

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
)

// Rabbit is its own RabbitMQ server on a free port of the loopback interface. Its user is guest,
// with the password guest.
type Rabbit struct {
	Addr string // host:port

	tb   testing.TB
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

const patience = 5 * time.Minute

// StartRabbit starts a RabbitMQ, and stops it at the test's end.
func StartRabbit(tb testing.TB) *Rabbit {
	tb.Helper()
	// The script of the package's name wants to be run by a service.
	program := needs.Match(tb, "/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server")
	dir, names := tb.TempDir(), redistest.FreeAddr(tb)
	_, port, _ := net.SplitHostPort(names)
	// Otherwise the server would start one that outlives it.
	epmd := exec.Command("epmd", "-address", "127.0.0.1", "-port", port)
	epmd.SysProcAttr = redistest.DieWithParent()
	if err := epmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = epmd.Process.Kill()
		_ = epmd.Wait() // it is killed: its exit code says nothing
	})
	for range 3 { // a port that was free a moment ago may be taken
		r := &Rabbit{Addr: redistest.FreeAddr(tb), tb: tb, done: make(chan struct{})}
		if r.start(program, dir, port) {
			return r
		}
	}
	tb.Fatal("RabbitMQ does not start")
	return nil
}

// start starts the server and waits until it accepts connections. It reports false if the server
// ends instead.
func (r *Rabbit) start(program, dir, names string) bool {
	r.tb.Helper()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			r.tb.Fatal(err)
		}
		return path
	}
	_, dist, _ := net.SplitHostPort(redistest.FreeAddr(r.tb))
	r.cmd = exec.Command(program)
	r.cmd.Env = append(os.Environ(), "HOME="+dir, "RABBITMQ_NODENAME=t@localhost", "RABBITMQ_MNESIA_BASE="+dir,
		"RABBITMQ_LOG_BASE="+dir,
		"RABBITMQ_CONFIG_FILE="+write("r.conf", "listeners.tcp.1 = "+r.Addr+"\n"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+write("plugins", "[].\n"),
		"ERL_EPMD_ADDRESS=127.0.0.1", "ERL_EPMD_PORT="+names, "RABBITMQ_DIST_PORT="+dist,
		"RUNNING_UNDER_SYSTEMD=1") // the script then becomes the server, instead of starting it
	out := redistest.NewOutput("completed with")
	r.cmd.Stdout, r.cmd.Stderr, r.cmd.SysProcAttr = out, out, redistest.DieWithParent()
	if err := r.cmd.Start(); err != nil {
		r.tb.Fatal(err)
	}
	go func() { // ends with the process
		_ = r.cmd.Wait() // it is killed: its exit code says nothing
		close(r.done)
	}()
	r.tb.Cleanup(r.Kill9)
	select {
	case <-out.Shown():
		return true
	case <-r.done:
		r.tb.Logf("RabbitMQ has ended:\n%s", out)
	case <-time.After(patience):
		r.tb.Fatalf("RabbitMQ does not come up:\n%s", out)
	}
	return false
}

// URL returns the server's URL.
func (r *Rabbit) URL() string { return "amqp://guest:guest@" + r.Addr + "//" }

// Kill9 ends the server as a crash would.
func (r *Rabbit) Kill9() {
	_ = r.cmd.Process.Kill() // it may have ended already
	<-r.done
}

// Stop makes the server hang (SIGSTOP): connections stay open, and nothing answers.
func (r *Rabbit) Stop() {
	r.tb.Helper()
	redistest.Hang(r.tb, r.cmd.Process.Pid)
}
