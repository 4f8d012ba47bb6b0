package config

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// maxLinks is how many symbolic links a path may go through.
const maxLinks = 40

// directories watches the directories in which a change can affect the position or the contents of
// certain files.
type directories struct {
	watcher *fsnotify.Watcher // nil if the system cannot report changes
	watched map[string]bool   // false for one that could not be watched
	log     *slog.Logger
}

func newDirectories(log *slog.Logger) *directories {
	d := &directories{watched: map[string]bool{}, log: log}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("config: the system does not report changed files: they are compared periodically instead", "error",
			err)
		return d
	}
	d.watcher = w
	return d
}

func (d *directories) events() <-chan fsnotify.Event {
	if d.watcher == nil {
		return nil
	}
	return d.watcher.Events
}

func (d *directories) errors() <-chan error {
	if d.watcher == nil {
		return nil
	}
	return d.watcher.Errors
}

func (d *directories) close() {
	if d.watcher != nil {
		_ = d.watcher.Close()
	}
}

// follow watches the directories of these files, and no others. It reports whether one of them is
// new, because earlier changes in it were missed.
func (d *directories) follow(paths []string) (more bool) {
	if d.watcher == nil {
		return false
	}
	wanted := map[string]bool{}
	for _, path := range paths {
		for _, dir := range directoriesOf(path) {
			wanted[dir] = true
		}
	}
	for dir := range d.watched {
		if !wanted[dir] {
			d.forget(dir)
		}
	}
	for dir := range wanted {
		if _, known := d.watched[dir]; known {
			continue
		}
		err := d.watcher.Add(dir)
		if err != nil && !os.IsNotExist(err) {
			d.log.Warn("config: a directory cannot be watched: its files are compared periodically instead",
				"directory", dir, "error", err)
		}
		if !os.IsNotExist(err) {
			d.watched[dir] = err == nil
		}
		more = true
	}
	return more
}

// note records that a watched directory has disappeared. Another one may replace it.
func (d *directories) note(e fsnotify.Event) {
	if d.watched[e.Name] && e.Has(fsnotify.Remove|fsnotify.Rename) {
		d.forget(e.Name)
	}
}

func (d *directories) forget(dir string) {
	if d.watched[dir] {
		_ = d.watcher.Remove(dir) // it may be gone
	}
	delete(d.watched, dir)
}

// directoriesOf returns the directories in which a change can make a path lead to another file.
// These are the directory of the file, each directory with a symbolic link on the way, and, if
// something is missing, the directory in which it would appear. If the path is a directory, it is
// included. The result has no symbolic links.
func directoriesOf(path string) (dirs []string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	root := filepath.VolumeName(path) + string(filepath.Separator)
	here, rest, links := root, steps(path), 0
	for len(rest) > 0 {
		step := rest[0]
		rest = rest[1:]
		if step == ".." {
			here = filepath.Dir(here)
			continue
		}
		next := filepath.Join(here, step)
		info, err := os.Lstat(next)
		if err != nil {
			return append(dirs, here)
		}
		if info.Mode()&os.ModeSymlink == 0 {
			if len(rest) == 0 {
				dirs = append(dirs, here)
			}
			if len(rest) == 0 && info.IsDir() {
				dirs = append(dirs, next)
			}
			here = next
			continue
		}
		dirs = append(dirs, here)
		target, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks {
			return dirs
		}
		if filepath.IsAbs(target) {
			here = root
		}
		rest = slices.Concat(steps(target), rest)
	}
	return dirs
}

// steps returns the names of a path.
func steps(path string) []string {
	path = path[len(filepath.VolumeName(path)):]
	return slices.DeleteFunc(strings.Split(filepath.ToSlash(path), "/"),
		func(s string) bool { return s == "" || s == "." })
}
