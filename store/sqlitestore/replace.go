package sqlitestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A repair makes the new file next to the damaged one, complete and durable, before it touches the
// damaged one. Then a database, its log and its index must be renamed, and the new file put in
// their place. No system does that atomically: in between, the database could look undamaged
// without its log, or the new one could be paired with a log that is not its own. So a note says
// that a repair is in progress, and nobody opens or makes the file while the note exists.

const (
	repairing = ".repairing" // suffix of the note's name; the note contains the new name of the damaged file
	damaged   = ".damaged-"  // suffix of a damaged file's name; the time of the repair follows it
)

// parts are the suffixes of a database's files.
var parts = [...]string{"", "-wal", "-shm", "-journal"}

// unrepaired refuses a file whose repair was interrupted.
func unrepaired(path string) error {
	_, err := os.Lstat(path + repairing)
	switch {
	case err == nil:
		return fmt.Errorf("%w: a repair of %s was interrupted: run it again (drawgate repair)", ErrDamaged, path)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENAMETOOLONG): // nor could a repair have made it
		return nil
	}
	return err
}

func exists(path string) bool {
	_, err := os.Lstat(path) //nolint:gosec // beside what is to be repaired
	return err == nil
}

// replace replaces the database at path with a new one that has what can be read of the old one. If
// it fails, nothing has changed.
func replace(path string, readable bool, id, commits int64, opts *RepairOptions, now int64, r *Repaired) error {
	temp := path + unfinished + "repaired"
	defer dropFiles(temp)
	if err := build(temp, path, readable, id, commits, opts, now, r); err != nil {
		return err
	}
	opts.changed()
	aside := asideOf(path, now)
	if err := writeNote(path, aside); err != nil {
		return err
	}
	opts.changed()
	err := setAside(path, aside, opts, r)
	if err == nil {
		err = put(temp, path, aside)
	}
	if err != nil {
		return errors.Join(err, resume(path, &Repaired{}))
	}
	opts.changed()
	dropFiles(temp) // it may have been linked, and would be a second name
	return dropNote(path)
}

// dropFiles removes a database that was not finished.
func dropFiles(temp string) {
	for _, end := range parts {
		_ = os.Remove(temp + end) // a leftover does no harm
	}
}

// build makes the new database.
func build(temp, path string, readable bool, id, commits int64, opts *RepairOptions, now int64, r *Repaired) error {
	mode := private
	if info, err := os.Stat(path); err == nil {
		mode |= info.Mode().Perm() // whoever shares the file can still do so
	}
	c, err := dialNew(temp, mode)
	if err != nil {
		return err
	}
	_, err = ready(c, &Options{})
	if err == nil && readable {
		err = salvage(c, path, r)
	}
	if err == nil && !opts.Fresh {
		err = r.hold(c, opts, now)
	}
	if err == nil {
		err = describe(c, id, commits)
	}
	if err == nil {
		err = c.emptyLog()
	}
	return errors.Join(err, c.close())
}

// asideOf returns an unused name for the damaged file.
func asideOf(path string, now int64) string {
	for ; ; now++ {
		to := path + damaged + time.UnixMicro(now).UTC().Format("20060102T150405.000000")
		if !slices.ContainsFunc(parts[:], func(end string) bool { return exists(to + end) }) {
			return to
		}
	}
}

// writeNote durably records where the damaged files go.
func writeNote(path, aside string) (err error) {
	f, err := os.OpenFile(path+repairing, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // beside what is to be repaired
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("another repair of %s is in progress: %w", path, err)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(filepath.Base(aside) + "\n")
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(filepath.Dir(path))
}

// dropNote makes the repair durable, and then removes the note.
func dropNote(path string) error {
	if err := syncDir(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Remove(path + repairing); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// setAside renames the damaged files. If the file system allows it, the database also keeps its own
// name until the new one takes its place.
func setAside(path, aside string, opts *RepairOptions, r *Repaired) error {
	for _, end := range parts {
		if !exists(path + end) {
			continue
		}
		if end != "" || os.Link(path, aside) != nil {
			if err := os.Rename(path+end, aside+end); err != nil {
				return err
			}
		}
		r.Aside = append(r.Aside, aside+end)
		opts.changed()
	}
	return nil
}

// put puts the new database in the place of the damaged one, and not of any other file.
func put(temp, path, aside string) error {
	if sameFile(path, aside) {
		return os.Rename(temp, path)
	}
	err := os.Link(temp, path)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("another file was put at %s during the repair: %w", path, err)
	case err != nil: // a file system without hard links
		return os.Rename(temp, path)
	}
	return nil
}

func sameFile(a, b string) bool {
	x, err := os.Lstat(a)
	if err != nil {
		return false
	}
	y, err := os.Lstat(b) //nolint:gosec // beside what is to be repaired
	return err == nil && os.SameFile(x, y)
}

// resume cleans up after an interrupted repair. If the new file is in place, it records where the
// damaged one is. Otherwise it moves everything back.
func resume(path string, r *Repaired) error {
	dropFiles(path + unfinished + "repaired")
	note, err := os.ReadFile(path + repairing) //nolint:gosec // beside what is to be repaired
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(string(note), "\n")
	aside := filepath.Join(filepath.Dir(path), name)
	known := filepath.Base(aside) == name && strings.HasPrefix(name, filepath.Base(path)+damaged)
	switch {
	case known && (!exists(path) || sameFile(path, aside)):
		if err := putBack(path, aside); err != nil {
			return err
		}
	case !exists(path):
		return fmt.Errorf("%s does not say where the damaged file is: rename that file back, and remove %[1]s",
			path+repairing)
	default: // the new file is in place, or nothing has been touched yet
		for _, end := range parts {
			if known && exists(aside+end) {
				r.Aside = append(r.Aside, aside+end)
			}
		}
	}
	return dropNote(path)
}

// putBack renames the damaged files back, the database last, so that its name shows whether this
// was completed.
func putBack(path, aside string) error {
	for _, end := range parts[1:] {
		if err := move(aside+end, path+end); err != nil {
			return err
		}
	}
	if sameFile(path, aside) { // renaming one of two names of a file does nothing
		return os.Remove(aside) //nolint:gosec // beside what is to be repaired
	}
	return move(aside, path)
}

// move renames a file if it exists.
func move(from, to string) error {
	err := os.Rename(from, to) //nolint:gosec // beside what is to be repaired
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
