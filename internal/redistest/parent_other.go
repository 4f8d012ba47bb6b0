//go:build !linux

package redistest

import "syscall"

func DieWithParent() *syscall.SysProcAttr { return nil }
