package sqlitestore

import (
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

//go:embed migrations/*.sql
var migrations embed.FS

// applicationID identifies our databases: "DRGW".
const applicationID = 0x44524757

// quickCheck is the size in bytes up to which opening a file checks its structure (about 0.1 s).
const quickCheck = 16 << 20

// empty is the size in bytes up to which SQLite treats a file as a new database.
const empty = 1

// file is a database file that passed the checks, with what identifies it.
type file struct {
	path     string // absolute, without symbolic links
	main     fs.FileInfo
	wal, shm fs.FileInfo
	schema   int64 // its version
	repaired repairMark
	commits  int64 // transactions that had changed it when it was opened
	undone   bool  // a loss of power has undone the last ones, which [Normal] allows
}

// connect checks a locked file, brings its schema up to date, and opens a connection.
func connect(found string, o *Options) (*file, *conn, error) {
	if err := unrepaired(found); err != nil {
		return nil, nil, err
	}
	if err := oneName(found); err != nil {
		return nil, nil, err
	}
	c, err := dial(found, "rw")
	if err != nil {
		return nil, nil, explainOpen(found, err)
	}
	f, err := vet(found, c, o)
	if err != nil {
		c.leave(found)
		return nil, nil, explainOpen(found, err)
	}
	return f, c, nil
}

// locate returns the path without symbolic links if the file exists and is not empty. It makes one
// that does not exist.
func locate(path string, o *Options) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := unrepaired(path); err != nil {
			return "", err
		}
		if err := missing(path); err != nil {
			return "", err
		}
		if err := create(path, o); err != nil {
			return "", err
		}
		info, err = os.Stat(path)
	}
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a regular file", path)
	case info.Size() <= empty:
		return "", fmt.Errorf("%w: %s is empty: restore it from a backup; or %s", ErrDamaged, path, waysOut(path))
	}
	return filepath.EvalSymlinks(path)
}

// unfinished is the suffix of a database that is still being made.
const unfinished = ".new-"

// dangling returns the error for a symbolic link to a missing file. If a mark says that the file
// existed, the error says so.
func dangling(path string) error {
	if target := intended(path); target != path {
		if err := missing(target); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s is a symbolic link to a file that does not exist", path)
}

// notMade says why a database cannot be made. A service may write to few folders: for all others
// its file system is read-only.
func notMade(path string, err error) error {
	if errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%s cannot be made: its file system is read-only for this process: name a file where it may write, "+
			"such as store: sqlite:///var/lib/drawgate/drawgate.db: %w", path, err)
	}
	return fmt.Errorf("%s cannot be made: check that its directory can be written: %w", path, explain(err))
}

// create makes a new database next to path and links it there once it is complete. So a file at
// path is never half made, even if the process is killed, and if several processes do it one wins.
func create(path string, o *Options) error {
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return fmt.Errorf("%s: its directory must exist: %w", path, err)
	}
	_, noLog := os.Stat(path + "-wal")
	switch info, err := os.Lstat(path); { // checked after the log, because the file is made before the log
	case err == nil && info.Mode()&fs.ModeSymlink != 0:
		return dangling(path)
	case err == nil:
		return nil // another process has made it meanwhile
	case noLog == nil:
		return fmt.Errorf("%w: %s does not exist but its -wal does: restore the file; or %s", ErrDamaged, path,
			waysOut(path))
	}
	if o.Existing {
		return fmt.Errorf("there is no database %s: %w", path, fs.ErrNotExist)
	}
	temp := path + unfinished + rand.Text()
	defer dropFiles(temp)
	c, err := dialNew(temp, private)
	if err != nil {
		return notMade(path, err)
	}
	_, err = ready(c, o)
	if err == nil {
		_, err = identify(c, o)
	}
	if err = errors.Join(err, c.emptyLog(), c.close()); err != nil {
		return explain(err)
	}
	err = os.Link(temp, path)
	if errors.Is(err, fs.ErrExist) {
		return nil // another process has made it meanwhile
	}
	if err != nil { // a file system without hard links
		err = os.Rename(temp, path)
	}
	if err != nil {
		return err
	}
	o.Logger.Info("sqlitestore: created a new database: nothing is used yet", "path", path)
	return syncDir(filepath.Dir(path))
}

// syncDir makes a new name in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the directory of the file that the caller named
	if err != nil {
		return err
	}
	_ = d.Sync() // not supported everywhere
	return d.Close()
}

// emptyLog moves the log into the file, so that the file alone is complete. Closing it does that
// too, but does not report a failure.
func (c *conn) emptyLog() error {
	busy, err := number(c, "wal_checkpoint(TRUNCATE)")
	if err == nil && busy != 0 {
		err = errors.New("the log cannot be moved into the file: another process has it open")
	}
	return err
}

// settings applies the settings that are not stored in the file.
func settings(c *conn, o *Options) error {
	mode := "FULL"
	if o.Synchronous == Normal {
		mode = "NORMAL"
	}
	if _, err := c.pragma(fmt.Sprintf("busy_timeout = %d", o.busyTimeout().Milliseconds())); err != nil {
		return err
	}
	if got, err := c.pragma("journal_mode = WAL"); err != nil {
		return err
	} else if got != "wal" {
		return fmt.Errorf("write-ahead logging is not possible here (journal mode %s): put the file on a local disk",
			got)
	}
	for _, p := range [...]string{"synchronous = " + mode, "cache_size = -8000", "wal_autocheckpoint = 2000"} {
		if _, err := c.pragma(p); err != nil {
			return err
		}
	}
	return nil
}

// vet checks that a file is one of ours and undamaged, before anything is written.
func vet(path string, c *conn, o *Options) (*file, error) {
	// This comes before any read: another process may be recovering or closing the write-ahead log.
	if _, err := c.pragma(fmt.Sprintf("busy_timeout = %d", o.busyTimeout().Milliseconds())); err != nil {
		return nil, err
	}
	id, err := number(c, "application_id")
	if err != nil {
		return nil, err
	}
	if id != applicationID {
		return nil, fmt.Errorf("%w: %s is a database of another program (its application_id is %d)", ErrForeign, path,
			id)
	}
	if err := whole(path, c); err != nil {
		return nil, err
	}
	m, err := readMark(path)
	if err != nil {
		return nil, err
	}
	if identity, err := readIdentity(c); err != nil {
		return nil, err
	} else if err := m.fits(path, identity); err != nil {
		return nil, err
	}
	commits, err := readCommits(c) // after the mark was read: others may be committing
	if err != nil {
		return nil, err
	}
	missing := m.commits - commits
	if missing > 0 && !m.unsynced {
		return nil, lost(path, missing)
	}
	schema, err := ready(c, o)
	if err != nil {
		return nil, err
	}
	if !m.there {
		if err := remember(path, c, o); err != nil {
			return nil, err
		}
	}
	u, err := readRepairMark(c)
	if err != nil {
		return nil, err
	}
	// From here on the driver does not wait for locks. The store does, so that callers can leave.
	for _, p := range append([]string{"busy_timeout = 0"}, o.pragmas...) {
		if _, err := c.pragma(p); err != nil {
			return nil, err
		}
	}
	f := &file{path: path, schema: schema, repaired: u, commits: commits, undone: missing > 0}
	for end, info := range map[string]*fs.FileInfo{"": &f.main, "-wal": &f.wal, "-shm": &f.shm} {
		if *info, err = stat(path + end); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// remember writes the mark of a database that has none. If that fails the store still works, but
// cannot notice that the file was deleted.
func remember(path string, c *conn, o *Options) error {
	identity, err := identify(c, o)
	if err == nil {
		err = writeMark(path, identity)
	}
	if k := code(err); k == codeCorrupt || k == codeNotADB {
		return err
	}
	if err != nil {
		o.Logger.Warn("sqlitestore: the mark next to the database cannot be written: if the database is deleted, nobody will notice", "path", path, "error", err)
	}
	return nil
}

func number(c *conn, pragma string) (int64, error) {
	text, err := c.pragma(pragma)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}

// whole makes the cheap checks of a file. SQLite itself compares its length with its header.
func whole(path string, c *conn) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() > quickCheck {
		return err
	}
	if found, err := c.pragma("quick_check(1)"); err != nil {
		return err
	} else if found != "ok" {
		return fmt.Errorf("%w: %s: %s", ErrDamaged, advice[codeCorrupt], found)
	}
	return nil
}

// ready configures a connection and brings the schema of its file up to date. It returns the
// schema's version.
func ready(c *conn, o *Options) (int64, error) {
	if err := settings(c, o); err != nil {
		return 0, err
	}
	return migrate(c, o)
}

// migrate brings the schema up to date: one transaction per step, numbered by user_version. It
// returns the version.
func migrate(c *conn, o *Options) (int64, error) {
	version, steps, err := outdated(c, o)
	for i := 0; i < len(steps) && err == nil; i++ {
		if err = step(c, version, steps[i]); err != nil {
			err = fmt.Errorf("schema version %d: %w", version+1, err)
		}
		version++
	}
	return version, err
}

// outdated returns the version of a file's schema, and the migrations that bring it up to date.
func outdated(c *conn, o *Options) (version int64, steps []string, err error) {
	schema := o.schema
	if schema == nil {
		schema = migrations
	}
	names, err := fs.Glob(schema, "migrations/*.sql") // in order
	if err != nil {
		return 0, nil, err
	}
	version, err = number(c, "user_version")
	if known := int64(len(names)); err == nil && version > known {
		err = newer(version, known)
	}
	if err != nil {
		return 0, nil, err
	}
	for _, name := range names[version:] {
		text, err := fs.ReadFile(schema, name)
		if err != nil {
			return 0, nil, err
		}
		steps = append(steps, string(text))
	}
	return version, steps, nil
}

// newer is the error for a file whose schema is newer than this program.
func newer(version, known int64) error {
	return fmt.Errorf("%w: its schema has version %d, but this program only supports versions up to %d: use a newer version", ErrForeign, version, known)
}

// step runs one migration, unless another process has done so meanwhile.
func step(c *conn, from int64, text string) error {
	if err := c.script("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	version, err := number(c, "user_version")
	if err == nil && version == from {
		err = c.script(text + fmt.Sprintf("\nPRAGMA user_version = %d;", from+1))
	}
	if err != nil {
		return errors.Join(err, c.script("ROLLBACK"))
	}
	return c.script("COMMIT")
}

// check reports whether the file and its log are still the ones that were opened. A store that
// writes into a deleted file would lose everything, and one that continues with another file would
// grant its quota again.
func (f *file) check(logs bool) error {
	if err := same(f.main, f.path, ""); err != nil || !logs {
		return err
	}
	if err := same(f.wal, f.path, "-wal"); err != nil {
		return err
	}
	if err := oneName(f.path); err != nil {
		return err
	}
	return same(f.shm, f.path, "-shm")
}

// same checks that a part of the database at path, by its suffix, is still the one that was opened.
func same(was fs.FileInfo, path, part string) error {
	now, err := stat(path + part)
	switch {
	case errors.Is(err, fs.ErrNotExist) && part == "":
		return fmt.Errorf("%w: %s was deleted while it was in use: restore it from a backup or create a new one (%s), and restart the programs that use it", ErrDamaged, path, command("repair --hold", path))
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s was deleted while it was in use: stop the programs that use it, which writes "+
			"what they still have of it into %s; if they cannot open it afterwards, repair it (%s)",
			ErrDamaged, path+part, path, command("repair", path))
	case err != nil:
		return err
	case !os.SameFile(was, now):
		return fmt.Errorf("%w: %s was replaced while it was in use: restart the programs that use it "+
			"if the new file is the right one", ErrDamaged, path+part)
	}
	return nil
}

// checkLogs is how often the log's identity is checked. The file's own identity is checked in each
// transaction.
const checkLogs = time.Second
