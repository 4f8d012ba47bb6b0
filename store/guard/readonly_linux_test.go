package guard_test

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestSQLiteReadOnly: the file system of the file turns read-only, as a broken one does: a write
// fails first, so that nothing is open for writing, and then nothing can be opened for writing any
// more.
//
// req: D10
func TestSQLiteReadOnly(t *testing.T) {
	t.Parallel()
	if !inChildOf(t, private()) {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	sqliteFault(t, filepath.Join(dir, "state.db"), true, func(l *load) {
		setFileSize(t, 0)
		l.turn() // something is written
		remount(t, dir, syscall.MS_RDONLY)
		setFileSize(t, 1<<62)
	}, func() { remount(t, dir, 0) })
}

// remount changes the flags of the file system mounted at dir, as soon as no open file prevents it.
func remount(t *testing.T, dir string, flags uintptr) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|flags, "")
		if err == nil {
			return
		}
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(end) {
			t.Errorf("it cannot be mounted again: %v", err)
			return
		}
	}
}

// private returns attributes for a process with mounts of its own: as root, or as root of its own
// user namespace.
func private() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		a.Cloneflags = syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return a
}
