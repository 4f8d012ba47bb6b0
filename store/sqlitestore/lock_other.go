//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package sqlitestore

import (
	"errors"
	"os"
)

// lockFile fails: here nobody knows who has a database open.
func lockFile(*os.File, bool) error { return errors.ErrUnsupported }

func unlockFile(*os.File) {}

func likeDatabase(*os.File, string) {}

func deleted(*os.File) bool { return false }
