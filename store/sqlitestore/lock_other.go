//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package sqlitestore

import (
	"errors"
	"os"
)

// lockFile fails: here nobody knows who has a database open.
func lockFile(*os.File, bool) error { return errors.ErrUnsupported }

func unlockFile(f *os.File) { _ = f.Close() } // nothing was written

func likeDatabase(*os.File, string) {}
