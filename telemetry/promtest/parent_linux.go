package promtest

import "syscall"

// dieWithParent makes a test binary that is killed leave nothing behind.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
