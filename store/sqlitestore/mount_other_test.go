//go:build !linux

package sqlitestore_test

import (
	"errors"
	"os/exec"
)

func privately(*exec.Cmd)        {}
func mountSmall(string) error    { return errors.ErrUnsupported }
func remount(string, bool) error { return errors.ErrUnsupported }
