//go:build unix

package main

import (
	"errors"
	"os"
	"syscall"

	"github.com/mattn/go-isatty"
)

// forwarded are the signals that the command gets too.
var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// isolate gives the command a process group, so that all that it starts can be reached by a signal.
// bound: it must not outlive its hold.
//
// A command at a terminal stays in our group: another one could not read from it, and job control
// would not reach it.
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

// left reports whether anybody of the command's own process group is there.
func (c *child) left() bool {
	return c.group && !errors.Is(syscall.Kill(-c.cmd.Process.Pid, 0), syscall.ESRCH)
}

// fromTerminal reports whether a terminal sends this signal to the whole group by itself.
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
