package sysx

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"
)

// Child is a process that is told and that answers in lines. It dies with this one.
type Child struct {
	Cmd        *exec.Cmd
	Ended      chan struct{} // closed when it has ended
	in         io.WriteCloser
	lines      chan string
	complaints bytes.Buffer // complete when it has ended
}

// StartChild starts a process.
func StartChild(cmd *exec.Cmd) (*Child, error) {
	c := &Child{Cmd: cmd, lines: make(chan string, 16), Ended: make(chan struct{})}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = &c.complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if c.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // ends with the process
		l := bufio.NewScanner(out)
		l.Buffer(nil, 64<<20) // of all latencies
		for l.Scan() {
			c.lines <- l.Text()
		}
		_ = cmd.Wait() // what it has to say is in its lines
		close(c.Ended)
	}()
	return c, nil
}

// Line returns the next line that the process prints, within patience.
func (c *Child) Line(patience time.Duration) (string, error) {
	select {
	case l := <-c.lines:
		return l, nil
	case <-c.Ended:
		return "", fmt.Errorf("%s has ended: %s", c.Cmd.Path, c.complaints.String())
	case <-time.After(patience):
		return "", fmt.Errorf("%s does not answer", c.Cmd.Path)
	}
}

// Tell writes a line to the process.
func (c *Child) Tell(line string) error {
	_, err := io.WriteString(c.in, line+"\n")
	return err
}

// Complaints returns what a process that has ended wrote to its standard error.
func (c *Child) Complaints() string { return c.complaints.String() }

// PID is the process id.
func (c *Child) PID() int { return c.Cmd.Process.Pid }

// Leave closes the process's input, which asks it to end, and waits for that.
func (c *Child) Leave(patience time.Duration) error {
	_ = c.in.Close() // it may have ended
	select {
	case <-c.Ended:
	case <-time.After(patience):
		return fmt.Errorf("%s does not end", c.Cmd.Path)
	}
	if !c.Cmd.ProcessState.Success() {
		return fmt.Errorf("%s: %s: %s", c.Cmd.Path, c.Cmd.ProcessState, c.complaints.String())
	}
	return nil
}

// Stop kills the process.
func (c *Child) Stop() {
	_ = c.Cmd.Process.Kill() // it may have ended
	<-c.Ended
}
