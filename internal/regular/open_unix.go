//go:build unix

package regular

import "syscall"

// doNotWait keeps the opening of a named pipe from waiting for a writer. It changes nothing for
// regular files.
const doNotWait = syscall.O_NONBLOCK
