//go:build !linux

package promtest

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
