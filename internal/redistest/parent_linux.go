package redistest

import "syscall"

// DieWithParent makes sure that a killed test binary leaves no process behind.
func DieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
