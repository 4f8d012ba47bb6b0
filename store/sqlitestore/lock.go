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
//
// A store that has found its database to be damaged gives up both, so that it can be repaired. It
// has the same locks on .lost.owner and .lost.users instead, by which those that go on without the
// database know of each other.
const (
	owned = ".owner"
	users = ".users"
	gone  = ".lost"
)

// ErrInUse means that a repair was refused because a process has the database open.
var ErrInUse = errors.New("the database is in use")

// errLocked means that another process has a lock.
var errLocked = errors.New("locked by another process")

// lock shows that a store has a database open.
type lock struct {
	path string

	mu    sync.Mutex
	owner *os.File // locked for this store alone, or nil
	user  *os.File // shared, or nil
	lost  *lock    // set once the database is damaged; owner and user are nil then
}

// lockDatabase locks the database at path for a store. Without lock files the store works, but a
// repair cannot notice that the database is in use. It fails only while a repair is in progress.
func lockDatabase(path string, log *slog.Logger) (*lock, error) {
	l := &lock{path: path}
	var err error
	if l.owner, err = openLock(path, owned, true); errors.Is(err, errLocked) {
		l.user, err = openLockPatiently(path, users, false)
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
	for _, f := range [...]*os.File{l.owner, l.user} {
		if f != nil {
			closeLock(f)
		}
	}
	l.owner, l.user = nil, nil
	if l.lost != nil {
		l.lost.free()
		l.lost = nil
	}
}

// lose ends the lock of a database that is damaged.
func (l *lock) lose() {
	l.free()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost, _ = lockDatabase(l.path+gone, slog.New(slog.DiscardHandler)) // without it the store is never alone
}

// alone reports whether nobody else has the database open, or goes on without it if it is damaged.
// If the owner has ended meanwhile, this store becomes the owner.
func (l *lock) alone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil {
		return l.lost.alone() && unused(l.path)
	}
	if l.owner == nil {
		if l.user == nil {
			return false
		}
		f, err := openLock(l.path, owned, true)
		if err != nil {
			return false
		}
		closeLock(l.user)
		l.owner, l.user = f, nil
	}
	if !exists(l.path + users) {
		return true // so nobody has a lock of it; on a disk that cannot be written none can be made
	}
	f, err := openLockPatiently(l.path, users, true)
	if err != nil {
		return false
	}
	closeLock(f)
	return true
}

// unused reports whether nobody has the database open at the moment.
func unused(path string) bool {
	unlock, _, err := lockForRepair(path, false)
	if err != nil {
		return false
	}
	unlock()
	return true
}

// lockForRepair locks a database that nobody may have open. used is true if somebody does, which is
// an error unless force is set.
func lockForRepair(path string, force bool) (unlock func(), used bool, err error) {
	l := &lock{path: path}
	if !exists(path) && !exists(path+owned) { // nobody has it open
		return l.free, false, nil
	}
	if l.owner, err = openLock(path, owned, true); err == nil {
		l.user, err = openLockPatiently(path, users, true)
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

func closeLock(f *os.File) {
	unlockFile(f)
	_ = f.Close() // nothing was written
}

// openLock opens a lock file, makes it if it does not exist, and locks it.
func openLock(path, suffix string, alone bool) (*os.File, error) {
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
	if err != nil {
		return nil, err
	}
	if err := lockFile(f, alone); err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

// How often, and how far apart, a lock is tried that others hold only for a moment: while a store
// finds out whether it is alone.
const (
	lockTries = 20
	lockPause = 5 * time.Millisecond
)

func openLockPatiently(path, suffix string, alone bool) (f *os.File, err error) {
	for range lockTries {
		if f, err = openLock(path, suffix, alone); !errors.Is(err, errLocked) {
			return f, err
		}
		time.Sleep(lockPause)
	}
	return nil, err
}
