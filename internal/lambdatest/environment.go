//go:build linux

package lambdatest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/internal/syncbuffer"
)

// Program is how a process is started. It gets AWS_LAMBDA_RUNTIME_API in addition.
type Program struct {
	Args []string // the first one is its path
	Dir  string
	Env  []string // in addition to that of the test
}

// Environment is one copy of a function, with its extension.
type Environment struct {
	Function  *Process
	Extension *Process // nil: there is none

	api *API
	tb  testing.TB
}

// Process is a process of an environment.
type Process struct {
	Out, Err *syncbuffer.Buffer
	cmd      *exec.Cmd
	ended    chan struct{} // closed when it has ended
}

// Launch starts an environment, and waits until it is ready: first the extension, until it has
// registered, and then the function. extension may be nil. Everything ends with the test.
func Launch(tb testing.TB, extension *Program, function Program) *Environment {
	tb.Helper()
	e := &Environment{api: NewAPI(tb), tb: tb}
	if extension != nil {
		e.Extension = e.start(*extension)
		select {
		case <-e.api.Registered:
		case <-e.Extension.ended:
			tb.Fatalf("the extension has ended: %s", e.Extension.Err)
		case <-time.After(patience):
			tb.Fatal("the extension does not register")
		}
	}
	e.Function = e.start(function)
	e.rest()
	return e
}

func (e *Environment) start(program Program) *Process {
	e.tb.Helper()
	p := &Process{Out: &syncbuffer.Buffer{}, Err: &syncbuffer.Buffer{}, ended: make(chan struct{})}
	p.cmd = exec.Command(program.Args[0], program.Args[1:]...) //nolint:gosec,noctx // a program of the test, which ends with it
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = program.Dir, p.Out, p.Err, redistest.DieWithParent()
	p.cmd.Env = append(append(os.Environ(), program.Env...), "AWS_LAMBDA_RUNTIME_API="+e.api.Addr)
	if err := p.cmd.Start(); err != nil {
		e.tb.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // the exit code says it
	}()
	e.tb.Cleanup(func() {
		p.kill()
		if e.tb.Failed() {
			e.tb.Logf("%s says:\n%s", program.Args[0], p.Err)
		}
	})
	return p
}

func (p *Process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// rest waits until the processes ask for what is next. Then Lambda may stop them.
func (e *Environment) rest() {
	e.tb.Helper()
	if e.Extension != nil {
		e.api.ExtensionRests()
	}
	select {
	case <-e.api.idle:
	case <-e.Function.ended:
		e.tb.Fatal("the function has ended")
	case <-time.After(patience):
		e.tb.Fatal("the function hangs")
	}
}

// Invoke runs one invocation to its end, and returns what the function answers.
func (e *Environment) Invoke(event string) (answer string) {
	e.tb.Helper()
	if e.Extension != nil {
		e.api.Event(patience)
	}
	e.api.events <- event
	select {
	case answer = <-e.api.answers:
	case <-time.After(patience):
		e.tb.Fatal("an invocation hangs")
	}
	e.rest()
	return answer
}

// Freeze stops the processes, and waits until they stand still.
func (e *Environment) Freeze() {
	e.tb.Helper()
	for _, p := range e.processes() {
		if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			e.tb.Error(err)
			continue
		}
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
			_, state, _ := bytes.Cut(stat, []byte(") "))
			if err != nil || bytes.HasPrefix(state, []byte("T")) {
				break
			}
		}
	}
}

// Thaw lets the processes go on.
func (e *Environment) Thaw() {
	e.tb.Helper()
	for _, p := range e.processes() {
		if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			e.tb.Error(err)
		}
	}
}

// Shake stops the processes again and again, at random instants, until ended is closed. Between two
// stops they run for at most run, and each stop lasts at most stop.
func (e *Environment) Shake(ended <-chan struct{}, run, stop time.Duration) {
	e.tb.Helper()
	for {
		select {
		case <-ended:
			return
		case <-time.After(rand.N(run)): //nolint:gosec // when, is no secret
		}
		e.Freeze()
		time.Sleep(rand.N(stop)) //nolint:gosec // as above
		e.Thaw()
	}
}

func (e *Environment) processes() []*Process {
	if e.Extension == nil {
		return []*Process{e.Function}
	}
	return []*Process{e.Function, e.Extension}
}

// Shutdown ends an environment that rests, as Lambda does: first the function, and then the
// extension, whose exit code it returns. took is how long the extension needed.
func (e *Environment) Shutdown() (code int, took time.Duration) {
	e.tb.Helper()
	e.Function.kill()
	e.api.Shutdown()
	start := time.Now()
	select {
	case <-e.Extension.ended:
	case <-time.After(patience):
		e.tb.Fatal("the extension does not end")
	}
	return e.Extension.cmd.ProcessState.ExitCode(), time.Since(start)
}
