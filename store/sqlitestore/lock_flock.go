//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package sqlitestore

import (
	"errors"
	"os"
	"syscall"
)

// lockFile locks a file, shared or for this process alone, without waiting. Each opened file has
// its own lock, within one process as well. errLocked means that another one excludes it.
func lockFile(f *os.File, alone bool) error {
	how := syscall.LOCK_SH
	if alone {
		how = syscall.LOCK_EX
	}
	for {
		switch err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errLocked
		default:
			return err
		}
	}
}

// unlockFile ends a lock. Closing the file is not enough: a process that is being started has a
// copy of the descriptor for a moment.
func unlockFile(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) // it fails only for a file that has no lock
}

// likeDatabase gives a new lock file the owner and the mode of its database, so that whoever may
// use the database may lock it.
func likeDatabase(f *os.File, path string) {
	info, err := os.Stat(path)
	if err != nil {
		return
	}
	_ = f.Chmod(info.Mode().Perm() | private) // whoever cannot use it says so
	if st, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		_ = f.Chown(int(st.Uid), int(st.Gid)) // as above
	}
}

// deleted reports whether an open file has no name any more. It needs no disk.
func deleted(f *os.File) bool {
	info, err := f.Stat()
	if err != nil {
		return true
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink == 0
}
