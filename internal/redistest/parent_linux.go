package redistest

import "syscall"

// dieWithParent makes sure that a killed test binary leaves no process behind.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
