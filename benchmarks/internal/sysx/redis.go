package sysx

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// Redis is a redis-server of our own on loopback, without persistence. It dies with this process.
type Redis struct {
	Addr string
	cmd  *exec.Cmd
	dir  string
	done chan struct{} // closed when the process has ended
}

// StartRedis starts a server on a free port and waits until it accepts.
func StartRedis(port int) (*Redis, error) {
	r := &Redis{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), done: make(chan struct{})}
	if c, err := net.DialTimeout("tcp", r.Addr, 100*time.Millisecond); err == nil {
		return nil, fmt.Errorf("%s is taken", c.RemoteAddr())
	}
	dir, err := os.MkdirTemp("", "bench-redis")
	if err != nil {
		return nil, err
	}
	r.dir = dir
	r.cmd = exec.Command("redis-server", "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "",
		"--appendonly", "no", "--dir", dir, "--daemonize", "no")
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = r.cmd.Wait(); close(r.done) }() // it is killed: its exit code says nothing
	for range 250 {
		c, err := net.DialTimeout("tcp", r.Addr, 200*time.Millisecond)
		if err == nil {
			return r, c.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	r.Kill()
	return nil, fmt.Errorf("redis-server does not accept on %s", r.Addr)
}

// PID is the server's process id.
func (r *Redis) PID() int { return r.cmd.Process.Pid }

// Pause stops the process (SIGSTOP) and Resume continues it.
func (r *Redis) Pause() error { return r.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume continues a paused server.
func (r *Redis) Resume() error { return r.cmd.Process.Signal(syscall.SIGCONT) }

// Kill is kill -9, and removes the server's folder.
func (r *Redis) Kill() {
	_ = r.cmd.Process.Kill() // it may have ended already
	<-r.done
	_ = os.RemoveAll(r.dir)
}
