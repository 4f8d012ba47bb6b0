package sqlitestore

import (
	"database/sql/driver"
	"io/fs"
	"log/slog"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// OpenAt is Open with another clock, which says µs.
func OpenAt(path string, opts *Options, wall func() int64) (*Store, error) {
	return open(path, opts, wall)
}

// Exec runs SQL on a connection of its own, as another program would.
func Exec(path, sql string) error {
	c, err := dial(path, "rw")
	if err != nil {
		return err
	}
	err = c.script("PRAGMA busy_timeout = 5000; " + sql)
	if cerr := c.close(); err == nil {
		err = cerr
	}
	return err
}

// Pragma returns the first value of a pragma.
func Pragma(path, text string) (string, error) {
	c, err := dial(path, "rw")
	if err != nil {
		return "", err
	}
	defer c.close()
	return c.pragma(text)
}

// With returns options that set pragmas on the writing connection, and bound its cache.
func With(weight int, pragmas ...string) *Options { return &Options{weight: weight, pragmas: pragmas} }

// Migrations are the steps of the schema, as this program has them.
func Migrations() fs.FS { return migrations }

// WithSchema returns options of a program with other steps.
func WithSchema(steps fs.FS) *Options { return &Options{schema: steps, BusyTimeout: time.Minute} }

// WriterPragma asks a store's writing connection. Its writer must rest meanwhile, as it does in a
// bubble after synctest.Wait.
func WriterPragma(s *Store, text string) (string, error) { return s.writer.conn.pragma(text) }

// CloseConn closes a store's writing connection, as some errors do. Its writer must rest meanwhile.
func CloseConn(s *Store) { s.writer.closeConn() }

// ReaderPragma asks a store's reading connection, which has to be open.
func ReaderPragma(s *Store, text string) (string, error) {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	return s.reader.pragma(text)
}

// Lock holds the database's write lock until the function it returns is called.
func Lock(path string) (unlock func() error, err error) {
	c, err := dial(path, "rw")
	if err != nil {
		return nil, err
	}
	if err := c.script("PRAGMA busy_timeout = 5000; BEGIN IMMEDIATE"); err != nil {
		return nil, err
	}
	return func() error {
		if err := c.script("ROLLBACK"); err != nil {
			return err
		}
		return c.close()
	}, nil
}

// LockWhole keeps everybody else from the database, readers too, until the function it returns is
// called. It needs a database that nobody has open.
func LockWhole(path string) (unlock func() error, err error) {
	c, err := dial(path, "rw")
	if err != nil {
		return nil, err
	}
	return c.close, c.script("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT")
}

// CheckLogs has the next transaction check the identity of the log, which it otherwise does once a
// second.
func CheckLogs(s *Store) { s.checkLogs.Store(true) }

// Count returns the number of rows of a table.
func Count(tb testing.TB, path, table string) int {
	tb.Helper()
	c, err := dial(path, "rw")
	if err != nil {
		tb.Fatal(err)
	}
	defer c.close()
	rows, err := c.raw.(driver.QueryerContext).QueryContext(tb.Context(), "SELECT count(*) FROM "+table, nil)
	if err != nil {
		tb.Fatal(err)
	}
	n := int64(-1)
	if err := c.each(rows, func(row []driver.Value) error { n, _ = row[0].(int64); return nil }); err != nil {
		tb.Fatal(err)
	}
	return int(n)
}

// RepairAt is Repair at another time, in µs.
func RepairAt(path string, opts *RepairOptions, now int64) (*Repaired, error) {
	if opts == nil {
		opts = &RepairOptions{}
	}
	r, err := repair(path, opts, now)
	if err != nil {
		return nil, storeError("repair", explain(err))
	}
	return r, nil
}

// Stepwise returns options that call step after each change that a repair makes to the directory.
func Stepwise(step func()) *RepairOptions { return &RepairOptions{step: step} }

// Committed returns options of a store that calls f after each commit, before the mark has its
// number.
func Committed(f func()) *Options { return &Options{committed: f} }

// Counts returns how many transactions a database had, and how many its mark says.
func Counts(path string) (database, marked int64, err error) {
	m, err := readMark(path)
	if err != nil {
		return 0, 0, err
	}
	c, err := dial(path, "ro")
	if err != nil {
		return 0, 0, err
	}
	defer c.close()
	database, err = readCommits(c)
	return database, m.commits, err
}

// NotMade is the error for a database that cannot be made.
var NotMade = notMade

// LineOf returns the line of a bucket, as it is in the file.
func LineOf(tb testing.TB, path string, key store.Key) *record.Line {
	tb.Helper()
	l := newLineFile(path, slog.New(slog.DiscardHandler))
	defer l.close()
	l.sync(true)
	if !l.usable() {
		tb.Fatal("the file with the lines cannot be read")
	}
	if x := l.lines[key]; x != nil {
		return record.DecodeLine(x.bytes)
	}
	return &record.Line{}
}

// ReadLines reads the file with the lines.
func ReadLines(path string) {
	l := newLineFile(path, slog.New(slog.DiscardHandler))
	defer l.close()
	l.sync(false)
	l.sync(true)
	for _, x := range l.lines {
		x.decode(0)
	}
}

// SomeLines returns the content of a file with lines.
func SomeLines() []byte {
	buf := append([]byte(lineMagic), make([]byte, 16)...)
	buf[len(buf)-9] = 1
	for i := range 3 {
		rec := &record.Line{Tickets: []record.Ticket{{
			Number: 7, Arrival: 1, End: 2,
			Claims: []record.Claim{{Limit: 1, N: int64(i)}},
		}}}
		buf = appendLine(buf, &line{key: store.Key{Tenant: "t", Policy: "p", Name: "k"}, bytes: rec.Append(nil)}, 1)
	}
	buf[len(buf)-1]--
	buf[len(lineMagic)+15] = byte(len(buf))
	return buf
}

// WithoutLines returns options of a program that knows no lines.
func WithoutLines() *Options { return &Options{noLines: true} }

// LinesIntact reports whether the file with the lines can be read.
func LinesIntact(path string) error {
	l := newLineFile(path, slog.New(slog.DiscardHandler))
	defer l.close()
	if err := l.open(false); err != nil {
		return err
	}
	return l.read()
}
