//go:build !unix

package regular

// doNotWait is nothing here: no path of the file system leads to a named pipe.
const doNotWait = 0
