// Package regular opens regular files, and nothing else.
//
// Opening a named pipe waits until somebody writes, and opening a device may do anything. A file
// named by a person, or found in a directory, may turn into one at any time.
package regular

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Open opens a regular file for reading, through symbolic links. It never waits for a writer:
// anything else at path is an error, a *[fs.PathError].
func Open(path string) (*os.File, error) {
	info, err := os.Stat(path) // before opening: opening a device may do something
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		e.Op = "open" // the caller's operation
	}
	if err != nil {
		return nil, err
	}
	if err := check(path, info); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|doNotWait, 0) //nolint:gosec // the caller names it
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil { // it may be another file by now
		err = check(path, info)
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

// ReadFile is [os.ReadFile] of a regular file.
func ReadFile(path string) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(f)
}

func check(path string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("it is %s, not a regular file", kind(info.Mode()))}
}

func kind(m fs.FileMode) string {
	switch m.Type() {
	case fs.ModeDir:
		return "a directory"
	case fs.ModeNamedPipe:
		return "a named pipe"
	case fs.ModeSocket:
		return "a socket"
	}
	return "a device"
}
