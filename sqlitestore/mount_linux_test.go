package sqlitestore_test

import (
	"errors"
	"syscall"
)

// mountSmall mounts a disk of 1 MiB at dir, if this process may.
func mountSmall(dir string) error { return syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m") }

// mountReadOnly mounts dir read-only on itself, if this process may.
func mountReadOnly(dir string) error {
	return errors.Join(syscall.Mount(dir, dir, "", syscall.MS_BIND, ""),
		syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""))
}

// remount makes the file system that is mounted at dir read-only, or writable again.
func remount(dir string, ro bool) error {
	flags := uintptr(syscall.MS_REMOUNT)
	if ro {
		flags |= syscall.MS_RDONLY
	}
	return syscall.Mount("tmpfs", dir, "tmpfs", flags, "size=1m")
}

func unmount(dir string) error { return syscall.Unmount(dir, 0) }
