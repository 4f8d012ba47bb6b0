//go:build !unix

package regular

// doNotWait is nothing here: a path of the file system leads to no named pipe.
const doNotWait = 0
