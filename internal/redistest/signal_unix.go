//go:build unix

package redistest

import "syscall"

func hang(pid int) error   { return syscall.Kill(pid, syscall.SIGSTOP) }
func resume(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }
