package sqlitestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// Tickets are in a file of their own next to the database, and not in one of its tables: a refusal
// writes nothing but its ticket, and must not wait for the disk. Without syncs a SQLite file may be
// damaged by a loss of power (https://sqlite.org/pragma.html#pragma_synchronous), and a table of the
// database would share its syncs, its log and its fate. What this file loses is the order of those
// who wait, and nothing else; so it is never synced, and a file that cannot be read starts again.
//
// All processes read and write it only while they hold the write lock of the database, so there is
// one at a time. It is a log: a header, then a record for each change of a line. The header says
// where the log ends, and is written after it: a process that is killed before has written nothing.
// When most of the log is outdated, it is written anew in place, with another number.

// lined is the suffix of the name of the file with the lines. An empty one has no tickets.
const lined = ".line"

const (
	lineMagic   = "drawgate line 1\n"
	lineHead    = len(lineMagic) + 8 + 8 // and the number of the log, and its end
	lineRecord  = 8                      // before each record: its length, its checksum
	lineGarbage = 256 << 10              // a log with less that is outdated is not written anew
	mostLines   = 8 << 20                // in bytes: who comes then leaves no ticket
	mostLog     = lineGarbage + 3*mostLines
	lineRetry   = time.Second // after the file could not be used
)

// ticketLife is the longest life of a ticket, in µs: see [store.Ticket]. One that ends later was
// written by a clock that has been set back since.
const ticketLife = int64(5 * time.Second / time.Microsecond)

var errLineFile = errors.New("it is damaged")

// line is the line of a bucket in memory.
type line struct {
	key   store.Key
	bytes []byte       // as stored
	rec   *record.Line // decoded; nil: not yet
	dirty bool         // to be written in this transaction
}

// decode returns the line as of now, which is the instant of the bucket's next decision or earlier.
func (l *line) decode(now int64) *record.Line {
	if l.rec == nil {
		l.rec = record.DecodeLine(l.bytes)
		n := len(l.rec.Tickets)
		l.rec.Tickets = slices.DeleteFunc(l.rec.Tickets, func(x record.Ticket) bool { return x.End > now+ticketLife })
		l.rec.Changed = len(l.rec.Tickets) != n
	}
	return l.rec
}

// lineFile is the file with the lines of all buckets, and what is known of it.
type lineFile struct {
	path string
	db   string // path of the database
	log  *slog.Logger
	// called with a line that another process has changed, as it was and as it is; nil: no line
	changed func(was, is *line)

	off     bool     // for tests: see Options.noLines
	f       *os.File // nil: not open
	id, end int64    // of the log, as far as it was read; 0: nothing was
	lines   map[store.Key]*line
	size    int       // of the records of all lines, in bytes
	retry   time.Time // it cannot be used until then
	warned  bool
	dirty   []*line
	buf     []byte
}

func newLineFile(db string, log *slog.Logger) *lineFile {
	return &lineFile{path: db + lined, db: db, log: log, lines: map[store.Key]*line{}}
}

// usable reports whether tickets can be kept.
func (l *lineFile) usable() bool { return !l.off && l.retry.IsZero() }

// forget drops what is known of the file, so that it is read again.
func (l *lineFile) forget() {
	clear(l.dirty)
	l.dirty, l.id, l.end = l.dirty[:0], 0, 0
}

func (l *lineFile) close() {
	if l.f != nil {
		_ = l.f.Close() // what it has not written is lost, and may be
		l.f = nil
	}
	l.forget()
}

// fail does without the file for a while.
func (l *lineFile) fail(err error) {
	l.close()
	l.retry = time.Now().Add(lineRetry)
	clear(l.lines)
	l.size = 0
	if !l.warned {
		l.warned = true
		l.log.Warn("sqlitestore: the file with the tickets of those who wait cannot be used: other processes may overtake them", "path", l.path, "error", err)
	}
}

// check opens the file again if another one has its name now, or none.
func (l *lineFile) check() {
	if l.f == nil {
		return
	}
	was, err := l.f.Stat()
	if err == nil {
		var now fs.FileInfo
		if now, err = os.Stat(l.path); err == nil && os.SameFile(was, now) {
			return
		}
	}
	l.close()
}

// open opens the file, and makes one if create is set. Without one f is nil.
func (l *lineFile) open(create bool) error {
	info, err := os.Lstat(l.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !create:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		l.f, err = os.OpenFile(l.path, os.O_CREATE|os.O_EXCL|os.O_RDWR, private)
		if err == nil {
			likeDatabase(l.f, l.db)
		}
		return err
	case err != nil:
		return err
	case !info.Mode().IsRegular(): // another file must not be written to, wherever a link leads
		return errors.New("it is not a regular file")
	}
	f, err := os.OpenFile(l.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if now, err := f.Stat(); err != nil || !os.SameFile(info, now) {
		return errors.Join(err, errors.New("it was replaced"), f.Close())
	}
	l.f = f
	return nil
}

// sync reads what other processes have written. The write lock is held, unless locked is false:
// then the file may be changing, and what cannot be read is read the next time.
func (l *lineFile) sync(locked bool) {
	if !l.usable() {
		if l.off || time.Now().Before(l.retry) {
			return
		}
		l.retry = time.Time{}
	}
	if l.f == nil {
		if err := l.open(false); err != nil {
			l.fail(err)
			return
		}
	}
	err := l.read()
	switch {
	case err == nil:
	case !locked:
		l.forget()
	case errors.Is(err, errLineFile):
		if err = l.truncate(); err == nil {
			err = l.read()
		}
		if err != nil {
			l.fail(err)
		}
	default:
		l.fail(err)
	}
}

// head reads the header: zeros if there is none.
func (l *lineFile) head() (id, end int64, err error) {
	var b [lineHead]byte
	n, err := l.f.ReadAt(b[:], 0)
	switch {
	case n == 0 && errors.Is(err, io.EOF):
		return 0, 0, nil
	case err != nil && !errors.Is(err, io.EOF):
		return 0, 0, err
	}
	id = int64(binary.BigEndian.Uint64(b[len(lineMagic):]))
	end = int64(binary.BigEndian.Uint64(b[len(lineMagic)+8:]))
	if n < lineHead || string(b[:len(lineMagic)]) != lineMagic || end < int64(lineHead) || id == 0 {
		return 0, 0, errLineFile
	}
	return id, end, nil
}

// read reads what was added to the log, or all of it if it was written anew.
func (l *lineFile) read() error {
	var id, end int64
	if l.f != nil {
		var err error
		if id, end, err = l.head(); err != nil {
			return err
		}
	}
	if id == l.id && end == l.end {
		if id == 0 && len(l.lines) > 0 { // forgotten
			l.replace(map[store.Key]*line{})
		}
		return nil
	}
	from := l.end
	if id != l.id || end < l.end {
		from = int64(lineHead)
	}
	if end-from > mostLog {
		return errLineFile
	}
	l.buf = slices.Grow(l.buf[:0], int(max(0, end-from)))[:max(0, end-from)]
	if n, err := l.f.ReadAt(l.buf, from); n < len(l.buf) {
		if errors.Is(err, io.EOF) {
			return errLineFile
		}
		return err
	}
	found, err := parseLines(l.buf, id)
	if err != nil {
		return err
	}
	if from == int64(lineHead) {
		all := make(map[store.Key]*line, len(found))
		for _, x := range found {
			all[x.key] = x
		}
		l.replace(all)
	} else {
		for _, x := range found {
			l.swap(x)
		}
	}
	l.id, l.end = id, end
	l.spare()
	return nil
}

// spare drops a large buffer.
func (l *lineFile) spare() {
	if cap(l.buf) > lineGarbage {
		l.buf = nil
	}
}

// replace replaces all lines.
func (l *lineFile) replace(all map[store.Key]*line) {
	for k := range l.lines {
		if all[k] == nil {
			l.swap(&line{key: k})
		}
	}
	for _, x := range all {
		l.swap(x)
	}
}

// swap takes over a line of another process.
func (l *lineFile) swap(x *line) {
	was := l.lines[x.key]
	l.put(x)
	if l.changed != nil {
		l.changed(was, x)
	}
}

// put sets the line of a bucket, which is dropped if it has no bytes.
func (l *lineFile) put(x *line) {
	if was := l.lines[x.key]; was != nil {
		l.size -= recordSize(was)
	}
	if len(x.bytes) == 0 {
		delete(l.lines, x.key)
		return
	}
	l.lines[x.key] = x
	l.size += recordSize(x)
}

// set changes the line of a bucket in this transaction.
func (l *lineFile) set(key store.Key, rec *record.Line) {
	rec.Changed = false
	x := l.lines[key]
	if x == nil {
		if l.size > mostLines || len(rec.Tickets) == 0 {
			return
		}
		x = &line{key: key, rec: rec}
		l.lines[key] = x
	}
	x.rec = rec
	if !x.dirty {
		x.dirty = true
		l.dirty = append(l.dirty, x)
	}
}

// flush writes the lines that were changed, while the write lock is still held. A failure is no
// reason to refuse what was taken.
func (l *lineFile) flush() {
	if len(l.dirty) == 0 {
		return
	}
	if err := l.write(); err != nil {
		l.fail(err)
		return
	}
	l.warned = false
	l.spare()
}

func (l *lineFile) write() error {
	if l.f == nil {
		if err := l.open(true); err != nil {
			return err
		}
	}
	id := l.id
	if id == 0 {
		id = newLogID()
	}
	buf := l.buf[:0]
	for i, x := range l.dirty {
		was := recordSize(x)
		if x.bytes == nil {
			was = 0
		}
		x.bytes = x.rec.Append(x.bytes[:0])
		buf = appendLine(buf, x, id)
		l.size -= was
		if x.dirty = false; len(x.bytes) == 0 {
			delete(l.lines, x.key)
		} else {
			l.size += recordSize(x)
		}
		l.dirty[i] = nil
	}
	l.buf, l.dirty = buf, l.dirty[:0]
	end := max(l.end, int64(lineHead))
	if l.id == 0 || end+int64(len(buf)) > int64(lineGarbage+2*l.size) {
		return l.rewrite()
	}
	if _, err := l.f.WriteAt(buf, end); err != nil {
		return err
	}
	return l.setHead(id, end+int64(len(buf)))
}

// rewrite writes all lines anew. Until that is done there is none.
func (l *lineFile) rewrite() error {
	id := newLogID()
	if err := l.setHead(id, int64(lineHead)); err != nil {
		return err
	}
	l.buf = l.buf[:0]
	for _, x := range l.lines {
		l.buf = appendLine(l.buf, x, id)
	}
	if _, err := l.f.WriteAt(l.buf, int64(lineHead)); err != nil {
		return err
	}
	end := int64(lineHead + len(l.buf))
	if err := l.setHead(id, end); err != nil {
		return err
	}
	return l.f.Truncate(end)
}

// truncate removes all lines.
func (l *lineFile) truncate() error {
	clear(l.lines)
	l.size = 0
	l.forget()
	if l.f == nil {
		return nil
	}
	return l.f.Truncate(0)
}

func (l *lineFile) setHead(id, end int64) error {
	var b [lineHead]byte
	copy(b[:], lineMagic)
	binary.BigEndian.PutUint64(b[len(lineMagic):], uint64(id))
	binary.BigEndian.PutUint64(b[len(lineMagic)+8:], uint64(end))
	_, err := l.f.WriteAt(b[:], 0)
	l.id, l.end = id, end
	return err
}

// newLogID returns a number that no other log has.
func newLogID() int64 { return 1 + rand.Int64N(1<<62) }

// recordSize returns the size of a line's record in the file, but for a few bytes.
func recordSize(x *line) int {
	return lineRecord + 3 + len(x.key.Tenant) + len(x.key.Policy) + len(x.key.Name) + len(x.bytes)
}

var lineSums = crc32.MakeTable(crc32.Castagnoli)

// lineSum returns the checksum of a record in the log with this number: one that an earlier log has
// left behind has another one.
func lineSum(id int64, body []byte) uint32 {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(id))
	return crc32.Update(crc32.Checksum(b[:], lineSums), lineSums, body)
}

// appendLine appends the record of a line.
func appendLine(buf []byte, x *line, id int64) []byte {
	at := len(buf)
	buf = append(buf, make([]byte, lineRecord)...)
	for _, part := range [...]string{x.key.Tenant, x.key.Policy, x.key.Name} {
		buf = append(binary.AppendUvarint(buf, uint64(len(part))), part...)
	}
	buf = append(buf, x.bytes...)
	body := buf[at+lineRecord:]
	binary.BigEndian.PutUint32(buf[at:], uint32(len(body)))
	binary.BigEndian.PutUint32(buf[at+4:], lineSum(id, body))
	return buf
}

// parseLines reads records, in their order.
func parseLines(b []byte, id int64) (found []*line, err error) {
	for len(b) > 0 {
		if len(b) < lineRecord {
			return nil, errLineFile
		}
		n := int64(binary.BigEndian.Uint32(b))
		sum := binary.BigEndian.Uint32(b[4:])
		if b = b[lineRecord:]; n > int64(len(b)) || lineSum(id, b[:n]) != sum {
			return nil, errLineFile
		}
		x := &line{}
		rest := b[:n]
		for _, part := range [...]*string{&x.key.Tenant, &x.key.Policy, &x.key.Name} {
			size, k := binary.Uvarint(rest)
			if k <= 0 || size > uint64(len(rest)-k) {
				return nil, fmt.Errorf("%w: a key", errLineFile)
			}
			*part, rest = string(rest[k:k+int(size)]), rest[k+int(size):]
		}
		if len(rest) > 0 {
			x.bytes = slices.Clone(rest)
		}
		found, b = append(found, x), b[n:]
	}
	return found, nil
}
