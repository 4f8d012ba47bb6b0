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

// lock shows that a store has a database open. Its files stay open, so that [lock.alone] needs no
// disk: it is called while the disk fails.
type lock struct {
	path string

	mu    sync.Mutex
	owner *os.File // nil: there are no locks
	users *os.File // nil with owner, or if there is none, and none can be made
	owns  bool     // owner is locked for this store alone; otherwise users is shared with others
	lost  *lock    // set once the database is damaged; owner and users are nil then
}

// openLocks opens the lock files next to the database at path, and makes those that do not exist.
func openLocks(path string) (*lock, error) {
	l := &lock{path: path}
	var err error
	if l.owner, err = openLock(path, owned); err == nil {
		l.users, err = openLock(path, users)
	}
	if err != nil && (l.owner == nil || exists(path+users)) {
		l.free()
		return l, err
	}
	return l, nil // on a disk that cannot be written the owner does without the second file
}

// lockUsers locks the second file, shared or for this process alone.
func (l *lock) lockUsers(alone bool) error {
	if l.users == nil {
		return fmt.Errorf("%s cannot be made", l.path+users)
	}
	return lockPatiently(l.users, alone)
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
		err = l.lockUsers(false)
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
	if l.lost != nil {
		l.lost.free()
		l.lost = nil
	}
}

// lose ends the lock of a database that is damaged. The one for those that go on without it comes
// first: at each moment others see one of the two.
func (l *lock) lose() {
	lost, _ := lockDatabase(l.path+gone, slog.New(slog.DiscardHandler)) // without it the store is never alone
	l.free()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = lost
}

// alone reports whether nobody else has the database open, or goes on without it if it is damaged.
// If the owner has ended meanwhile, this store becomes the owner. It does not wait, and unless the
// database is damaged, or a lock file is missing, it needs no disk.
func (l *lock) alone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil {
		return l.lost.alone() && unused(l.path)
	}
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
	if l.users == nil {
		return !exists(l.path + users) // so nobody has a lock of it
	}
	if lockFile(l.users, true) != nil {
		return false
	}
	unlockFile(l.users)
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
	if !exists(path) && !exists(path+owned) { // nobody has it open
		return func() {}, false, nil
	}
	l, err := openLocks(path)
	if err == nil {
		err = lockFile(l.owner, true)
	}
	if err == nil {
		err = l.lockUsers(true)
	}
	switch {
	case err == nil || errors.Is(err, errors.ErrUnsupported):
		return l.free, false, nil
	case force:
		return l.free, true, nil
	}
	l.free()
	if !errors.Is(err, errLocked) {
		return nil, false,
			fmt.Errorf("%w: it cannot be found out whether a program has %s open: stop the programs that use it, and use --force: %w", ErrInUse, path, err)
	}
	return nil, false,
		fmt.Errorf("%w: a program has %s open, and would go on with the old file: stop the programs that use it, then run this again "+
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
