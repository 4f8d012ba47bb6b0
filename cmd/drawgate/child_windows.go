package main

import (
	"os"
	"syscall"
)

var forwarded = []os.Signal{os.Interrupt, syscall.SIGTERM}

func (c *child) isolate(bool) {}

// signal ends the command: Windows has no signals.
func (c *child) signal(os.Signal) { _ = c.cmd.Process.Kill() }

func (c *child) left() bool { return false }

// fromTerminal reports whether the console itself informs the command.
func fromTerminal(sig os.Signal) bool { return sig == os.Interrupt }

func terminal(*os.File) bool { return true }

func endedBy(*os.ProcessState) (int, bool) { return 0, false }
