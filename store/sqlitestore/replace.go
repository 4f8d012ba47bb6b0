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

// A repair makes the new file beside the damaged one, complete and durable, before it touches that.
// Then a database, its log and its index have to be renamed, and the new file put in their place.
// No system does that at once, and in between the database could pass for whole without its log, or
// the new one be given a log that is not its own. So a note says for as long that a repair is under
// way, and nobody opens or makes the file while it is there.

const (
	repairing = ".repairing" // follows the name of a database in that of the note, which says the name of the damaged file
	damaged   = ".damaged-"  // follows it in that of a damaged file, with the instant of the repair
)

// parts are what follows the name of a database in the names of its files.
var parts = [...]string{"", "-wal", "-shm", "-journal"}

// unrepaired refuses a file whose repair was interrupted.
func unrepaired(path string) error {
	_, err := os.Lstat(path + repairing)
	switch {
	case err == nil:
		return fmt.Errorf("%w: a repair of %s has not come to its end: have it repaired again (drawgate repair)", ErrDamaged, path)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENAMETOOLONG): // nor could a repair have made it
		return nil
	}
	return err
}

func exists(path string) bool {
	_, err := os.Lstat(path) //nolint:gosec // beside what is to be repaired
	return err == nil
}

// replace puts a new database in the place of the one at path, with what can be read of that. If it
// fails nothing has changed.
func replace(path string, readable bool, id int64, opts *RepairOptions, now int64, r *Repaired) error {
	temp := path + unfinished + "repaired"
	defer dropFiles(temp)
	if err := build(temp, path, readable, id, opts, now, r); err != nil {
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
	dropFiles(temp) // it was perhaps linked, and would be a second name
	return dropNote(path)
}

// dropFiles removes a database that was not finished.
func dropFiles(temp string) {
	for _, end := range parts {
		_ = os.Remove(temp + end) // what is left of it does no harm
	}
}

// build makes the new database.
func build(temp, path string, readable bool, id int64, opts *RepairOptions, now int64, r *Repaired) error {
	mode := private
	if info, err := os.Stat(path); err == nil {
		mode |= info.Mode().Perm() // whoever shares the file goes on doing so
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
		_, err = c.exec(qSetMeta, metaIdentity, id)
	}
	if err == nil {
		err = c.emptyLog()
	}
	return errors.Join(err, c.close())
}

// asideOf returns a name for the damaged file that nothing has yet.
func asideOf(path string, now int64) string {
	for ; ; now++ {
		to := path + damaged + time.UnixMicro(now).UTC().Format("20060102T150405.000000")
		if !slices.ContainsFunc(parts[:], func(end string) bool { return exists(to + end) }) {
			return to
		}
	}
}

// writeNote says durably where the damaged files go.
func writeNote(path, aside string) (err error) {
	f, err := os.OpenFile(path+repairing, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // beside what is to be repaired
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("another repair of %s is under way: %w", path, err)
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

// dropNote makes what was done durable, and then says that it is done.
func dropNote(path string) error {
	if err := syncDir(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Remove(path + repairing); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// setAside gives the damaged files other names. The database keeps its own one as well, where the
// file system can, until the new one takes its place.
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

// put puts the new database in the place of the damaged one, and not in that of another file.
func put(temp, path, aside string) error {
	if sameFile(path, aside) {
		return os.Rename(temp, path)
	}
	err := os.Link(temp, path)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("somebody has put another file at %s meanwhile: %w", path, err)
	case err != nil: // a file system without links
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

// resume clears up after a repair that was interrupted. If the new file is in its place, it says
// where the damaged one is. Otherwise everything goes back to where it was.
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
		return fmt.Errorf("%s does not say where the damaged file is: give that its name again, and remove %[1]s", path+repairing)
	default: // the new file is in its place, or nothing has been touched yet
		for _, end := range parts {
			if known && exists(aside+end) {
				r.Aside = append(r.Aside, aside+end)
			}
		}
	}
	return dropNote(path)
}

// putBack gives the damaged files their own names again: the database last, so that it can be seen
// whether that was done.
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

// move renames a file, if it is there.
func move(from, to string) error {
	err := os.Rename(from, to) //nolint:gosec // beside what is to be repaired
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
