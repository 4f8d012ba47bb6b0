package sqlitestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/store"
)

// Synchronous says how durable an answer must be before it is returned.
type Synchronous uint8

const (
	// Full syncs the log with every transaction: answers survive a loss of power. It is the
	// default.
	Full Synchronous = iota
	// Normal syncs only at checkpoints: answers survive a crash of the program, but a loss of power
	// may undo the last ones, and their units are granted again.
	Normal
)

// Options holds the optional settings of a Store. The zero value is ready to use.
type Options struct {
	Synchronous Synchronous
	// how long a caller waits while another process writes; 0 means 2 s; negative means not at all
	BusyTimeout time.Duration
	HistoryFor  time.Duration // how long the history is kept; 0 means 35 days; negative means that none is written
	Logger      *slog.Logger  // logs when a file is created, cleaning fails, or the file is damaged; nil discards
	Existing    bool          // open an existing database only; without one the error is fs.ErrNotExist

	// OpenLater makes Open succeed if there is a database that cannot be used at the moment,
	// because it is locked, or its disk is full, read-only or failing. Each call tries to open it
	// again, and fails until that works. If the database is damaged, each call fails until it is
	// repaired and opened again. A missing database that cannot be created is an error all the
	// same.
	OpenLater bool

	pragmas   []string // for tests: set on the writing connection
	committed func()   // for tests: called after a commit, before its number is in the mark
	weight    int      // for tests: size of the cache; 0 means maxWeight
	schema    fs.FS    // for tests: the migrations; nil means those in migrations
	noLines   bool     // for tests: a program that knows no lines
}

func (o *Options) busyTimeout() time.Duration {
	if o.BusyTimeout == 0 {
		return 2 * time.Second
	}
	return max(0, o.BusyTimeout)
}

// takeTime is how long a take may need: a disk is sometimes slow.
const takeTime = 500 * time.Millisecond

// TakeTime implements [store.Timed]. A take that is cut off before its turn is withdrawn, so
// less time is no reason for a warning.
func (s *Store) TakeTime(set time.Duration) time.Duration { return cmp.Or(max(0, set), takeTime) }

const historyFor = 35 * 24 * time.Hour

// Store keeps buckets in a SQLite file. It is safe for concurrent use, and several processes may
// use one file.
type Store struct {
	file atomic.Pointer[file] // nil until the database was opened: see Options.OpenLater
	path string               // absolute, without symbolic links
	main fs.FileInfo          // the file that was found there
	opts Options
	lock *lock
	wall func() int64 // µs
	last atomic.Int64 // the latest instant that was used

	checkLogs atomic.Bool // for tests: check the log in the next transaction

	mu     sync.Mutex
	queue  []*call
	closed bool
	broken error // set for good once the file is found damaged
	held   error // why no transaction can begin at the moment, as far as is known; nil if one can

	writer *writer       // for tests: only its goroutine may touch it
	wake   chan struct{} // holds a token when the writer has work
	done   chan struct{} // closed when the writer has ended
	pool   sync.Pool

	watchers watchers

	readMu sync.Mutex
	reader *conn // guarded by readMu; opened when needed
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Resetter = (*Store)(nil)
	_ store.Lister   = (*Store)(nil)
	_ store.Journal  = (*Store)(nil)
	_ store.Pinger   = (*Store)(nil)
	_ store.Timed    = (*Store)(nil)
	_ store.Liner    = (*Store)(nil)
	_ store.Watcher  = (*Store)(nil)
)

// Open opens the database at path; opts may be nil. A missing file is created, but its directory
// must exist. If a mark (the file's name with ".mark") says that there was a database, Open fails
// with [ErrDamaged] instead, because an empty one would admit every limit again. [Repair] makes
// one, see [RepairOptions.Hold] and [RepairOptions.Fresh]. Open writes the mark once a new database
// is durable.
//
// A file that is empty, truncated, damaged, of another program or of a newer version of this one is
// refused ([ErrDamaged], [ErrForeign]), and not changed. While it is being repaired the error is
// [ErrInUse]. Opening a file of less than 16 MiB checks
// its structure.
func Open(path string, opts *Options) (*Store, error) {
	return open(path, opts, func() int64 { return time.Now().UnixMicro() })
}

func open(path string, opts *Options, wall func() int64) (*Store, error) {
	s := &Store{wall: wall, wake: make(chan struct{}, 1), done: make(chan struct{})}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.Logger == nil {
		s.opts.Logger = slog.New(slog.DiscardHandler)
	}
	if s.opts.HistoryFor == 0 {
		s.opts.HistoryFor = historyFor
	}
	s.pool.New = func() any { return &call{done: make(chan struct{}, 1)} }
	s.writer = &writer{s: s, cache: newCache(s.opts.weight)}
	err := s.claim(path)
	claimed := err == nil
	s.writer.lines = newLineFile(s.path, s.opts.Logger)
	s.writer.lines.changed, s.writer.lines.off = s.writer.lineChanged, s.opts.noLines
	if claimed {
		err = s.writer.open()
	}
	switch {
	case err == nil:
	case s.opts.OpenLater && errors.Is(err, ErrDamaged):
		s.broken = err
		s.lock.lose()
	case s.opts.OpenLater && claimed && passes(err):
		s.writer.hold(err)
		s.writer.next = s.now() + cleanRetry.Microseconds()
	default:
		s.lock.free()
		return nil, storeError("open", err)
	}
	go s.writer.run()
	return s, nil
}

// claim finds the database, or makes it, and locks it.
func (s *Store) claim(path string) error {
	found, err := locate(path, &s.opts)
	if err != nil {
		found = intended(path)
	}
	s.path, s.lock = found, &lock{path: found}
	if err != nil {
		return err
	}
	l, err := lockDatabase(found, s.opts.Logger)
	if err != nil {
		return err
	}
	s.lock = l
	s.main, err = stat(found)
	return err
}

// intended returns where a database that is missing should be.
func intended(path string) string {
	if target, err := os.Readlink(path); err == nil {
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return path
}

// count opens the mark for the number of transactions. Without it the store works, but nobody will
// notice that the log was lost.
func (s *Store) count(f *file) *counter {
	c, err := openCounter(f.path, s.opts.Synchronous)
	if f.undone {
		s.opts.Logger.Warn("sqlitestore: a loss of power has undone the last transactions, because they were not synced: their units are granted again", "path", f.path)
		if err == nil {
			err = c.set(f.commits)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // without a mark the reason was logged before
		s.uncounted(err)
	}
	return c
}

func (s *Store) uncounted(err error) {
	s.opts.Logger.Warn("sqlitestore: the mark next to the database cannot be changed: if the -wal of the database is lost, nobody will notice", "error", err)
}

// now returns the process's time in µs, which never runs backwards.
func (s *Store) now() int64 {
	for {
		now, last := s.wall(), s.last.Load()
		if now <= last {
			return last
		}
		if s.last.CompareAndSwap(last, now) {
			return now
		}
	}
}

// Take implements [store.Store]. A call whose ctx ends before its transaction begins takes
// nothing; one whose ctx ends later may have.
func (s *Store) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if len(batch) == 0 {
		return s.usable()
	}
	c := s.get("take")
	c.setTakes(batch)
	if err := s.do(ctx, c); err != nil {
		return err
	}
	copy(out, c.decisions)
	s.put(c)
	return nil
}

// Settle implements [store.Store]. If ctx ends, it behaves as [Store.Take].
func (s *Store) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	if len(batch) == 0 {
		return s.usable()
	}
	c := s.get("settle")
	c.setSettlements(batch)
	if err := s.do(ctx, c); err != nil {
		return err
	}
	copy(out, c.outcomes)
	s.put(c)
	return nil
}

// Peek implements [store.Store]. It does not wait for other processes.
func (s *Store) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	if len(buckets) == 0 {
		return s.usable()
	}
	c := s.get("peek")
	c.setPeek(buckets, priority)
	if err := s.do(ctx, c); err != nil {
		return err
	}
	copy(out, c.statuses)
	s.put(c)
	return nil
}

// Reset implements [store.Resetter].
func (s *Store) Reset(ctx context.Context, keys []store.Key) error {
	if len(keys) == 0 {
		return s.usable()
	}
	c := s.get("reset")
	c.keys = append(c.keys[:0], keys...)
	if err := s.do(ctx, c); err != nil {
		return err
	}
	s.put(c)
	return nil
}

// Ping implements [store.Pinger]. It writes, because a file that can only be read cannot decide.
func (s *Store) Ping(ctx context.Context) error {
	c := s.get("ping")
	if err := s.do(ctx, c); err != nil {
		return err
	}
	s.put(c)
	return nil
}

// Close implements [store.Store]. It waits for the writer.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	err := s.closeReader() // the writer is closed last: it moves the log into the file
	s.signal()
	<-s.done
	s.lock.free()
	if err != nil {
		return storeError("close", explain(err))
	}
	return nil
}

func (s *Store) closeReader() error {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	if s.reader == nil {
		return nil
	}
	err := s.reader.close()
	s.reader = nil
	return err
}

// SoleOwner reports whether this store is the only one, in this process or another, that has the
// database open at this moment, by locks of the operating system that end with their process. While
// it is true no [Repair] can begin; another process may open the database at any time, and then it
// is false. If the database is damaged, it reports whether this store is the only one that found it
// so, and nobody has the database open; a repair can begin.
//
// It is false after [Store.Close], and where such locks do not work: in a directory in which no
// file can be created, and on systems without flock (Windows).
func (s *Store) SoleOwner() bool { return s.lock.alone() }

// usable returns why the store cannot decide, as far as it is known.
func (s *Store) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	return nil
}

// setBroken records for good that the file is damaged.
func (s *Store) setBroken(err error) {
	if !errors.Is(err, ErrDamaged) || isBucket(err) {
		return
	}
	s.mu.Lock()
	first := s.broken == nil
	if first {
		s.broken = err
	}
	s.mu.Unlock()
	if first {
		s.lock.lose() // so that it can be repaired: this store never uses it again
		s.opts.Logger.Error("sqlitestore: the database is damaged", "error", err)
	}
}

// opened returns the database, or why it could not be opened yet: see [Options.OpenLater].
func (s *Store) opened() (*file, error) {
	if f := s.file.Load(); f != nil {
		return f, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file.Load(), s.held // it is opened before held becomes nil
}

// nothingDone is the error for a call whose caller left before its transaction began.
func (s *Store) nothingDone(left error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		return fmt.Errorf("%w: %w", store.ErrNothingDone, left)
	}
	return fmt.Errorf("%w: %w (%w)", store.ErrNothingDone, left, explain(s.held))
}

func (s *Store) isBroken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// forever is later than any instant.
const forever = math.MaxInt64
