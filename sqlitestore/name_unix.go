//go:build unix

package sqlitestore

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// oneName checks that a database has one name. Under two, by a hard link or by mounting the file itself somewhere else, two processes would write two
// logs of one database: each would admit the whole limit, and the file would break.
func oneName(path string) error {
	for wait := time.Millisecond; ; wait *= 2 { // a file that is being created has two names for a moment
		links, err := names(path)
		switch {
		case err != nil:
			return err
		case links <= 1:
			return mounted(path)
		case wait > 300*time.Millisecond:
			return fmt.Errorf("%s has %d names (hard links), and each would have a log of its own: remove the others (find them with find -samefile)",
				path, links)
		}
		time.Sleep(wait)
	}
}

func names(path string) (uint64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink), nil //nolint:unconvert // not 64 bits everywhere
	}
	return 1, nil
}

// mounted refuses a file that is mounted by itself, as far as the device shows it.
func mounted(path string) error {
	file, err := os.Stat(path)
	if err != nil {
		return err
	}
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return err
	}
	f, ok1 := file.Sys().(*syscall.Stat_t)
	d, ok2 := dir.Sys().(*syscall.Stat_t)
	if ok1 && ok2 && f.Dev != d.Dev || mountPoint(path) {
		return fmt.Errorf("%s is mounted by itself, so that its log is not shared with the other name: mount the directory, not the file", path)
	}
	return nil
}
