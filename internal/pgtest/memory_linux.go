package pgtest

import "syscall"

// memory returns a folder in memory with room for several servers; "" if there is none. A
// container often has one of 64 MB, which one server fills.
func memory() string {
	const dir, least = "/dev/shm", 1 << 30
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < least {
		return ""
	}
	return dir
}
