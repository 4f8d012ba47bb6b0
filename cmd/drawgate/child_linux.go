package main

import "syscall"

// dieWithParent ends the command when this process is killed, because nobody would renew its hold
// then. The signal is SIGKILL, because nobody could send a second one. It does not reach processes
// that the command has started.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
