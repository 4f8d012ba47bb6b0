package promtest

import "syscall"

// dieWithParent ends the child when the test binary is killed, so that nothing is left running.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
