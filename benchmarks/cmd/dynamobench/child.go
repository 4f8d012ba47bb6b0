package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"
)

// patience is how long a process may take to answer.
const patience = 2 * time.Minute

// child is a process that is told and that answers in lines. It dies with this one.
type child struct {
	cmd        *exec.Cmd
	in         io.WriteCloser
	lines      chan string
	ended      chan struct{}
	complaints bytes.Buffer // complete when it has ended
}

func startChild(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, lines: make(chan string, 16), ended: make(chan struct{})}
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
		close(c.ended)
	}()
	return c, nil
}

// line returns the next line that the process prints.
func (c *child) line() (string, error) {
	select {
	case l := <-c.lines:
		return l, nil
	case <-c.ended:
		return "", fmt.Errorf("%s has ended: %s", c.cmd.Path, c.complaints.String())
	case <-time.After(patience):
		return "", fmt.Errorf("%s does not answer", c.cmd.Path)
	}
}

func (c *child) tell(line string) error {
	_, err := io.WriteString(c.in, line+"\n")
	return err
}

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) stop() {
	_ = c.cmd.Process.Kill() // it may have ended
	<-c.ended
}
