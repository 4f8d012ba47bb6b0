package ledgerfile

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/drawgate/drawgate/audit"
)

// Options holds what a [Writer] can do without. The zero value is ready to use.
type Options struct {
	PartSize int64         // bytes after which another file is begun; 0 means 64 MiB
	PartAge  time.Duration // age at which another file is begun; 0 means 24h
	MaxAge   time.Duration // how long files are kept, by when they were last written; 0 means 35 days
	// bytes of all files in the folder, beyond which the oldest are deleted; each counts as 1 MiB
	// at least; 0 means 16 GiB
	MaxSize int64
	Logger  *slog.Logger // nil discards
	// Pending reports whether what calls used has still to be sent to the store, which was
	// unavailable when they were settled. It must be quick, and must not call the Writer. nil:
	// never.
	Pending func() bool
	// Miscounted counts how often the store may have counted a call wrongly for good, because it
	// was unavailable for long. It is asked after Pending, and must be as quick. nil: never.
	Miscounted func() uint64
}

const (
	defaultSize = 64 << 20
	defaultAge  = 24 * time.Hour
	defaultKeep = 35 * 24 * time.Hour
	defaultMost = 16 << 30
	syncEvery   = time.Second
	logEvery    = time.Minute // between lines of the log about what could not be written
	lookEvery   = time.Second // between looks whether the file is still there
)

// Writer appends to a ledger. It is safe for concurrent use.
type Writer struct {
	dir  string
	run  string
	host string
	opts Options

	mu      sync.Mutex
	path    string      // guarded by mu: of the last file
	file    *os.File    // guarded by mu; nil: it could not be opened, or the writer is closed
	buf     []byte      // guarded by mu
	n       uint64      // guarded by mu: of the last line
	part    int         // guarded by mu: of the last file
	size    int64       // guarded by mu: of the file
	begun   time.Time   // guarded by mu: when the file was
	torn    bool        // guarded by mu: the last line was written in part
	dirty   bool        // guarded by mu: something has to be synchronized
	syncing bool        // guarded by mu: the disk is being waited for
	running int         // guarded by mu: calls that were granted, and have not ended
	ends    ends        // guarded by mu
	latest  time.Time   // guarded by mu: of the last line
	timer   *time.Timer // guarded by mu; nil: nothing runs, and nothing has to be synchronized
	lost    int64       // guarded by mu: lines that could not be written
	retry   time.Time   // guarded by mu: when a file may be opened again
	looked  time.Time   // guarded by mu: when the file was last known to be in its folder
	logged  time.Time   // guarded by mu
	closed  bool        // guarded by mu
}

// Open begins a ledger of this process in a folder, which is made if there is none. Several
// processes may share the folder. opts may be nil. Close the Writer after the last call has ended.
func Open(dir string, opts *Options) (*Writer, error) {
	w := &Writer{dir: dir, run: rand.Text()[:16]}
	if opts != nil {
		w.opts = *opts
	}
	o := &w.opts
	o.PartSize, o.PartAge = cmp.Or(o.PartSize, defaultSize), cmp.Or(o.PartAge, defaultAge)
	o.MaxAge, o.MaxSize = cmp.Or(o.MaxAge, defaultKeep), cmp.Or(o.MaxSize, defaultMost)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	w.host, _ = os.Hostname() // "" if it has no name
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("ledgerfile: the folder cannot be made: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.begin(time.Now()); err != nil {
		w.drop()
		return nil, fmt.Errorf("ledgerfile: the ledger cannot be begun: %w", err)
	}
	return w, nil
}

// Lost returns how many lines could not be written.
func (w *Writer) Lost() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// Close ends the ledger. Calls that end later are not in it.
func (w *Writer) Close() error {
	w.listen()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.write(&audit.Line{Event: audit.Closed})
	w.closed = true
	if w.timer != nil {
		w.timer.Stop()
	}
	return w.end()
}

// end closes the file.
func (w *Writer) end() error {
	if w.file == nil {
		return nil
	}
	f := w.file
	w.file, w.dirty = nil, false
	err := f.Sync()
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("ledgerfile: closing the ledger: %w", err)
	}
	return nil
}

// begin opens the next file, whose first line says whose it is.
func (w *Writer) begin(now time.Time) error {
	w.part++
	name := filepath.Join(w.dir, fmt.Sprintf("%s%s-%s-%04d%s", audit.Prefix, now.UTC().Format("20060102T150405Z"),
		w.run, w.part, audit.Suffix))
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o640) //nolint:gosec // the folder is the operator's, and others of the group may audit
	if err != nil {
		w.part--
		return err
	}
	w.file, w.size, w.begun, w.looked, w.torn = f, 0, now, now, false
	w.prune(now)
	if err := w.put(&audit.Line{Event: audit.Opened, Version: audit.Version, Run: w.run, Host: w.host, Part: w.part},
		now); err != nil {
		return err
	}
	w.path = name
	return nil
}

// write appends a line, in another file if it is time for one. The caller holds mu.
func (w *Writer) write(l *audit.Line) {
	if w.closed {
		return
	}
	now := time.Now()
	if w.file != nil && (w.size >= w.opts.PartSize || now.Sub(w.begun) >= w.opts.PartAge) {
		if err := w.end(); err != nil {
			w.report(err, now)
		}
		w.retry = time.Time{}
	}
	w.look(now)
	if w.file == nil && !now.Before(w.retry) {
		w.retry = now.Add(syncEvery)
		err := os.MkdirAll(w.dir, 0o750) // somebody may have deleted it
		if err == nil {
			err = w.begin(now)
		}
		if err != nil {
			w.drop()
			w.report(err, now)
		}
	}
	if err := w.put(l, now); err != nil {
		w.report(err, now)
	}
	w.watch()
}

// look ends the file if it was deleted, with or without its folder: what is written to it would be
// lost, and writing does not fail. The caller holds mu.
func (w *Writer) look(now time.Time) {
	if w.file == nil || now.Sub(w.looked) < lookEvery {
		return
	}
	w.looked = now
	if _, err := os.Stat(w.path); !errors.Is(err, fs.ErrNotExist) { // no other file gets this name
		return
	}
	w.opts.Logger.Error("the ledger's file was deleted or renamed while it was written: a new one is begun, and an audit counts from there", "file", w.path)
	_ = w.file.Close() // it is gone
	w.file, w.dirty, w.retry = nil, false, time.Time{}
}

// drop removes a file that could not be begun.
func (w *Writer) drop() {
	if w.file != nil {
		_ = w.file.Close() // something is wrong with it already
		_ = os.Remove(w.file.Name())
		w.file = nil
	}
}

// put appends a line to the file. Its number counts even if that fails. The caller holds mu.
func (w *Writer) put(l *audit.Line, now time.Time) error {
	w.n++
	l.N, l.At = w.n, now.UnixNano()
	if l.Heard = 0; w.ends.heard > w.ends.written || l.Event == audit.Opened { // each file shows that it tells this
		l.Heard = max(1, w.ends.heard)
	}
	miscounted := w.ends.miscounted
	l.Miscounted = miscounted > w.ends.writtenMiscounted
	if w.file == nil {
		w.lost++
		w.mark()
		return nil
	}
	w.buf = w.buf[:0]
	if w.torn {
		w.buf = append(w.buf, '\n')
	}
	w.buf = l.Append(w.buf)
	n, err := w.file.Write(w.buf)
	w.size += int64(n)
	w.latest, w.dirty = now, true
	if err != nil {
		w.torn = w.torn || n > 0
		w.lost++
		w.mark()
		return err
	}
	w.torn = false
	w.ends.writtenMiscounted = miscounted
	if l.Heard > 0 {
		w.ends.written = l.Heard
	}
	return nil
}

// mark renames the last file because lines after it are missing: a later line shows the gap, but
// the process may end before there is one. The caller holds mu.
func (w *Writer) mark() {
	base, _ := strings.CutSuffix(w.path, audit.Suffix)
	if base == "" || strings.HasSuffix(base, audit.Lost) {
		return
	}
	if name := base + audit.Lost + audit.Suffix; os.Rename(w.path, name) == nil {
		w.path = name
	}
}

// report logs that lines are missing, though not every time. The caller holds mu.
func (w *Writer) report(err error, now time.Time) {
	if !w.logged.IsZero() && now.Sub(w.logged) < logEvery {
		return
	}
	w.logged = now
	w.opts.Logger.Error("the ledger could not be written, and an audit will find a gap", "dir", w.dir, "lost", w.lost,
		"error", err)
}

// watch synchronizes the file in a second, if there is something to do. The caller holds mu.
func (w *Writer) watch() {
	if w.timer == nil && (w.dirty || w.running > 0 || w.ends.unheard() || w.ends.heard > w.ends.written) {
		w.timer = time.AfterFunc(syncEvery, w.tick)
	}
}

// tick synchronizes the file, without the lock, and says that this process lives, or what the store
// has heard.
func (w *Writer) tick() {
	w.listen()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = nil
	if w.closed {
		return
	}
	if w.running > 0 && time.Since(w.latest) > (audit.AliveEvery-2)*time.Second || w.ends.heard > w.ends.written {
		w.write(&audit.Line{Event: audit.Alive})
	}
	if f := w.file; f != nil && w.dirty && !w.syncing { // a disk that hangs gets one goroutine, not more and more
		w.dirty, w.syncing = false, true
		w.mu.Unlock()
		err := f.Sync() // a file that was closed meanwhile was synchronized
		w.mu.Lock()
		w.syncing = false
		if err != nil && f == w.file {
			w.report(err, time.Now())
		}
	}
	w.watch()
}
