//go:build unix

package regular

import "syscall"

// doNotWait makes opening a named pipe return without waiting for a writer. It has no effect on
// regular files.
const doNotWait = syscall.O_NONBLOCK
