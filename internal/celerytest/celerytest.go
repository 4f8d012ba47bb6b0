// Package celerytest runs real workers of Celery and a real RabbitMQ for tests.
package celerytest

import (
	"bytes"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
)

//go:embed tasks.py
var tasks string

// App is a program of Celery in a directory of its own. Its module tasks has the application app,
// and the task block, which runs until the file exists that its first argument names.
type App struct {
	tb     testing.TB
	dir    string
	broker string
}

// New returns an App that uses the broker at a URL.
func New(tb testing.TB, broker string) *App {
	tb.Helper()
	a := &App{tb: tb, dir: tb.TempDir(), broker: broker}
	if err := os.WriteFile(filepath.Join(a.dir, "tasks.py"), []byte(tasks), 0o600); err != nil {
		tb.Fatal(err)
	}
	return a
}

// python makes a command of Python, from .tools in the root of the repository.
func (a *App) python(args ...string) *exec.Cmd {
	a.tb.Helper()
	cmd := exec.Command(needs.Tool(a.tb, "python/bin/python"), args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = a.dir, append(os.Environ(), "CELERY_BROKER_URL="+a.broker),
		redistest.DieWithParent()
	return cmd
}

// Run runs a program of Python, such as one that sends tasks.
func (a *App) Run(program string) {
	a.tb.Helper()
	if out, err := a.python("-c", "from tasks import app, block\n"+program).CombinedOutput(); err != nil {
		a.tb.Fatalf("%v\n%s", err, out)
	}
}

// Worker is a worker of Celery, with one thread.
type Worker struct {
	app  *App
	cmd  *exec.Cmd
	kill func()
}

// Worker starts a worker that fetches from queues, which commas separate, and stops it at the
// test's end. It may take a while until it works.
func (a *App) Worker(name, queues string) *Worker {
	a.tb.Helper()
	w := &Worker{app: a, cmd: a.python("-m", "celery", "-A", "tasks", "worker", "-n", name, "-Q", queues, "--pool",
		"threads", "--concurrency", "1")}
	out := &bytes.Buffer{}
	w.cmd.Stdout, w.cmd.Stderr = out, out
	if err := w.cmd.Start(); err != nil {
		a.tb.Fatal(err)
	}
	w.kill = sync.OnceFunc(func() {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait() // it is killed: its exit code says nothing
		if a.tb.Failed() {
			a.tb.Logf("worker %s:\n%s", name, out)
		}
	})
	a.tb.Cleanup(w.kill)
	return w
}

// Kill9 ends the worker as a crash would.
func (w *Worker) Kill9() { w.kill() }

// Stop makes the worker hang (SIGSTOP).
func (w *Worker) Stop() {
	w.app.tb.Helper()
	redistest.Hang(w.app.tb, w.cmd.Process.Pid)
}
