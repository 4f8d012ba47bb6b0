package sysx

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Process is a server that this process started, and that dies with it.
type Process struct {
	Addr string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu      sync.Mutex
	printed bytes.Buffer // guarded by mu
}

// Free returns an address on loopback where nobody listens.
func Free() (string, error) {
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// StartProcess starts a server, and waits until it accepts connections at addr, for at most
// patience.
func StartProcess(cmd *exec.Cmd, addr string, patience time.Duration) (*Process, error) {
	p := &Process{Addr: addr, cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p, p
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if cmd.SysProcAttr.Pdeathsig == 0 {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { defer close(p.done); _ = cmd.Wait() }() // it is stopped: its exit code says nothing
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", addr)
		if err == nil {
			return p, c.Close()
		}
		select {
		case <-p.done:
			return nil, fmt.Errorf("%s has ended:\n%s", cmd.Path, p.Printed())
		default:
		}
	}
	p.Stop()
	return nil, fmt.Errorf("%s does not listen on %s:\n%s", cmd.Path, addr, p.Printed())
}

// Write implements io.Writer, for what the server prints.
func (p *Process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.printed.Write(b)
}

// Printed returns what the server has printed so far.
func (p *Process) Printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.printed.String()
}

// PID is the server's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// stopTime is how long a server may take to go.
const stopTime = 5 * time.Second

// Stop ends the server, and waits for that.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-p.done:
	case <-time.After(stopTime):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}
