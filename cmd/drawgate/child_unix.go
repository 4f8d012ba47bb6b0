//go:build unix

package main

import (
	"errors"
	"os"
	"syscall"

	"github.com/mattn/go-isatty"
)

// forwarded are the signals that are passed on to the command.
var forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1,
	syscall.SIGUSR2,
}

// isolate gives the command a process group, so that a signal reaches everything that it starts.
// bound means that the command must not outlive its hold.
//
// A command at a terminal stays in our group: in another one it could not read from the terminal,
// and job control would not reach it.
func (c *child) isolate(bound bool) {
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: c.group}
	if bound {
		dieWithParent(c.cmd.SysProcAttr)
	}
}

func (c *child) signal(sig os.Signal) {
	n, ok := sig.(syscall.Signal)
	if !ok {
		return
	}
	pid := c.cmd.Process.Pid
	if c.group {
		pid = -pid
	}
	_ = syscall.Kill(pid, n) // it may have ended in this moment
}

// left reports whether any process of the command's own group is still running.
func (c *child) left() bool {
	return c.group && !errors.Is(syscall.Kill(-c.cmd.Process.Pid, 0), syscall.ESRCH)
}

// fromTerminal reports whether the terminal itself sends this signal to the whole group.
func fromTerminal(sig os.Signal) bool { return sig == syscall.SIGINT || sig == syscall.SIGQUIT }

func terminal(f *os.File) bool { return isatty.IsTerminal(f.Fd()) }

// endedBy returns the signal that ended a process.
func endedBy(p *os.ProcessState) (int, bool) {
	w, ok := p.Sys().(syscall.WaitStatus)
	if !ok || !w.Signaled() {
		return 0, false
	}
	return int(w.Signal()), true
}
