package sqlitestore

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Two empty files next to a database show who has it open, by locks of the operating system that
// end with the process. SQLite's own locks cannot show it: they only last for a transaction.
//
// The first process to open the database locks .owner for itself. Those that come later share a
// lock of .users instead. So nobody has the database open if both can be locked, as a repair does,
// and the owner is alone if it can lock .users. One file is not enough: flock cannot turn a lock
// that excludes others into a shared one without a moment in which there is none.
const (
	owned = ".owner"
	users = ".users"
)

// ErrInUse means that a repair was refused because a process has the database open.
var ErrInUse = errors.New("the database is in use")

// errLocked means that another process has a lock.
var errLocked = errors.New("locked by another process")

// lock shows that a store has a database open. Its files stay open, so that [lock.alone] needs no
// disk: it is called while the disk fails.
type lock struct {
	mu    sync.Mutex
	owner *os.File // nil: there are no locks
	users *os.File // nil with owner
	owns  bool     // owner is locked for this store alone; otherwise users is shared with others
}

// openLocks opens the lock files next to the database at path, and makes those that do not exist.
func openLocks(path string) (l *lock, err error) {
	l = &lock{}
	if l.owner, err = openLock(path, owned); err == nil {
		l.users, err = openLock(path, users)
	}
	if err != nil {
		l.free()
	}
	return l, err
}

// lockDatabase locks the database at path for a store. Without lock files the store works, but a
// repair cannot notice that the database is in use. It fails only while a repair is in progress.
func lockDatabase(path string, log *slog.Logger) (*lock, error) {
	l, err := openLocks(path)
	if err == nil {
		err = lockFile(l.owner, true)
		l.owns = err == nil
	}
	if errors.Is(err, errLocked) {
		err = lockPatiently(l.users, false)
	}
	if err != nil {
		l.free()
	}
	switch {
	case errors.Is(err, errLocked):
		return nil, fmt.Errorf("%w: %s is being repaired: try again afterwards", ErrInUse, path)
	case err != nil && !errors.Is(err, errors.ErrUnsupported):
		log.Warn("sqlitestore: the lock files next to the database cannot be used: a repair will not notice that it is in use", "path", path, "error", err)
	}
	return l, nil
}

// free ends the lock.
func (l *lock) free() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range [...]*os.File{l.owner, l.users} {
		if f != nil {
			unlockFile(f)
			_ = f.Close() // nothing was written
		}
	}
	l.owner, l.users, l.owns = nil, nil, false
}

// alone reports whether nobody else has the database open. If the owner has ended meanwhile, this
// store becomes the owner. It does not wait.
func (l *lock) alone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner == nil {
		return false
	}
	if !l.owns {
		if lockFile(l.owner, true) != nil {
			return false
		}
		unlockFile(l.users)
		l.owns = true
	}
	if deleted(l.owner) { // another process can become the owner of a new file
		return false
	}
	if lockFile(l.users, true) != nil {
		return false
	}
	unlockFile(l.users)
	return true
}

// lockForRepair locks a database that nobody may have open. used is true if somebody does, which is
// an error unless force is set.
func lockForRepair(path string, force bool) (unlock func(), used bool, err error) {
	if !exists(path) && !exists(path+owned) { // nobody has it open
		return func() {}, false, nil
	}
	l, err := openLocks(path)
	if err == nil {
		err = lockFile(l.owner, true)
	}
	if err == nil {
		err = lockPatiently(l.users, true)
	}
	switch {
	case err == nil || errors.Is(err, errors.ErrUnsupported):
		return l.free, false, nil
	case force:
		return l.free, true, nil
	}
	l.free()
	if !errors.Is(err, errLocked) {
		return nil, false, fmt.Errorf("%w: it cannot be found out whether a program has %s open: stop the programs that use it, and use --force: %w", ErrInUse, path, err)
	}
	return nil, false, fmt.Errorf("%w: a program has %s open, and would go on with the old file: stop the programs that use it, then run this again "+
		"(fuser %[2]s lists them); --force does it nevertheless", ErrInUse, path)
}

// openLock opens a lock file, and makes it if it does not exist.
func openLock(path, suffix string) (*os.File, error) {
	name := path + suffix
	f, err := os.Open(name) //nolint:gosec // beside the file that the caller named
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDONLY, private) //nolint:gosec // as above
		if errors.Is(err, fs.ErrExist) {                                       // another process has made it meanwhile
			f, err = os.Open(name) //nolint:gosec // as above
		} else if err == nil {
			likeDatabase(f, path)
		}
	}
	return f, err
}

// How often, and how far apart, a lock is tried that others hold only for a moment: while a store
// finds out whether it is alone.
const (
	lockTries = 20
	lockPause = 5 * time.Millisecond
)

func lockPatiently(f *os.File, alone bool) (err error) {
	for range lockTries {
		if err = lockFile(f, alone); !errors.Is(err, errLocked) {
			return err
		}
		time.Sleep(lockPause)
	}
	return err
}
