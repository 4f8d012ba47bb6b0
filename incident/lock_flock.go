//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package incident

import (
	"os"
	"syscall"
)

// lock waits until no other process writes to the file. Closing the file unlocks it.
func lock(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return err
		}
	}
}
