//go:build !unix

package pgtest

import "syscall"

func giveAway(string) error { return nil }

func attributes() (*syscall.SysProcAttr, error) { return nil, nil }
