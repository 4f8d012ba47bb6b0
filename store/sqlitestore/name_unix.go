//go:build unix

package sqlitestore

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// stat describes a file, for [os.SameFile].
func stat(path string) (fs.FileInfo, error) { return os.Stat(path) }

// oneName checks that a database has one name. With two names, through a hard link or a bind mount
// of the file itself, two processes would write two logs for one database: each would admit the
// whole limit, and the file would break.
func oneName(path string) error {
	links, err := names(path)
	if err == nil && links > 1 { // the process that made the file may have ended before it removed the temporary name
		dropUnfinished(path)
		links, err = names(path)
	}
	switch {
	case err != nil:
		return err
	case links > 1:
		return fmt.Errorf("%s has %d names (hard links), and each would have its own log: keep one name and remove the others (find them with find -samefile)", path, links)
	}
	return mounted(path)
}

// dropUnfinished removes temporary names from the making of a file.
func dropUnfinished(path string) {
	file, err := os.Stat(path)
	if err != nil {
		return
	}
	dir, base := filepath.Split(path)
	entries, err := os.ReadDir(filepath.Clean(dir))
	if err != nil {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), base+unfinished) {
			continue
		}
		if other, err := e.Info(); err == nil && os.SameFile(file, other) {
			_ = os.Remove(filepath.Join(dir, e.Name())) // a name that stays is counted
		}
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

// mounted refuses a file that is itself a mount point, as far as the device number shows it.
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
		return fmt.Errorf("%s is itself a mount point, so its log is not shared with processes outside the mount: mount the directory, not the file", path)
	}
	return nil
}
