//go:build !unix

package sqlitestore

import (
	"io/fs"
	"os"
)

// stat describes a file, for [os.SameFile]. What [os.Stat] returns on Windows looks for the file
// only when it is compared: by then it may be another one, and Wine does not let it open one that
// is mapped. Opening the file drops no locks here.
func stat(path string) (fs.FileInfo, error) {
	f, err := os.Open(path) //nolint:gosec // the file that the caller named
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	return f.Stat()
}

// oneName cannot check this here.
func oneName(string) error { return nil }
